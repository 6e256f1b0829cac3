"""Run Command of the emulated Systems Manager: which instances it reaches, and running a script in a node.

https://docs.aws.amazon.com/systems-manager/latest/userguide/monitor-commands.html
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_cluster.rehearsal.cloud.authorization import AGENT_ACTIONS
from slurm_cluster.rehearsal.cloud.emulator import ApiError, Emulator, Record, refuse_unknown
from slurm_cluster.rehearsal.cloud.instances import RUNNING, settle
from slurm_cluster.rehearsal.node_exec import command

DOCUMENT = "AWS-RunShellScript"
DEFAULT_TIMEOUT = 3600
"""The document's default of ``executionTimeout``, seconds."""

STDOUT_LIMIT, STDERR_LIMIT = 24_000, 8_000
"""Characters that GetCommandInvocation answers."""

_KILLED = 137
"""The agent's exit code for a command that it stopped (amazon-ssm-agent, CommandStoppedPreemptivelyExitCode)."""


_CANCEL_POLL = 0.5


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended; ``details`` is Run Command's StatusDetails."""

    code: int
    status: str
    details: str
    stdout: str
    stderr: str


def is_managed(emulator: Emulator, instance_id: str) -> bool:
    """Return whether Run Command reaches an instance: it runs, its agent does, and its role lets the agent work."""
    instance = emulator.instances.get(instance_id)
    if instance is None:
        return False
    settle(emulator, instance)
    if instance["State"]["Code"] != RUNNING or not emulator.node(instance_id, "agent-online").exists():
        return False
    profile = emulator.profile(instance["IamInstanceProfile"]["Arn"]) if instance["IamInstanceProfile"] else None
    if profile is None or profile.role is None:
        return False
    managed = all(emulator.role_allows(profile.role, action, "*") for action in AGENT_ACTIONS)
    if managed:
        instance["WasManaged"] = True
    return managed


def instance_information(emulator: Emulator, request: Mapping[str, Any]) -> dict[str, Any]:
    """SSM's ``DescribeInstanceInformation``: an instance appears once its agent has been online."""
    refuse_unknown("DescribeInstanceInformation", request, {"Filters", "InstanceInformationFilterList", "MaxResults"})
    wanted: set[str] | None = None
    for item in request.get("Filters") or []:
        refuse_unknown("DescribeInstanceInformation Filters", [item["Key"]], {"InstanceIds"})
        wanted = set(item["Values"]) & (wanted if wanted is not None else set(item["Values"]))
    for item in request.get("InstanceInformationFilterList") or []:
        refuse_unknown("DescribeInstanceInformation filter", [item["key"]], {"InstanceIds"})
        wanted = set(item["valueSet"]) & (wanted if wanted is not None else set(item["valueSet"]))
    entries = []
    for instance_id, instance in sorted(emulator.instances.items()):
        online = is_managed(emulator, instance_id)
        if (wanted is None or instance_id in wanted) and (online or instance.get("WasManaged")):
            entries.append(_information(instance, online=online))
    return {"InstanceInformationList": entries}


def _information(instance: Record, *, online: bool) -> dict[str, Any]:
    return {
        "InstanceId": instance["InstanceId"],
        "PingStatus": "Online" if online else "ConnectionLost",
        "LastPingDateTime": time.time(),
        "PlatformType": "Linux",
        "ResourceType": "EC2Instance",
        "IPAddress": instance["PrivateIpAddress"],
        "ComputerName": instance["PrivateDnsName"],
    }


def check_command(request: Mapping[str, Any]) -> None:
    """Refuse a ``SendCommand`` that cannot be rehearsed.

    Raises:
        ApiError: another document, or parameters that the document does not have.
    """
    if request.get("DocumentName") != DOCUMENT:
        raise ApiError("InvalidDocument", f"document {request.get('DocumentName')} is not rehearsed; use {DOCUMENT}")
    parameters = request.get("Parameters") or {}
    refuse_unknown(f"{DOCUMENT} parameters", parameters, {"commands", "executionTimeout", "workingDirectory"})
    if not parameters.get("commands"):
        raise ApiError("InvalidParameters", f"{DOCUMENT} needs the parameter commands")


def carry_out(
    emulator: Emulator, command_record: Record, instance_id: str, now: Callable[[], str], cancelled: set[str]
) -> None:
    """Run a command on one of its instances and note in its record how that ends.

    Args:
        command_record: ministack's record of the command.
        now: the time as Systems Manager writes it.
        cancelled: ids of cancelled commands; may grow meanwhile.
    """
    invocation = command_record["Invocations"][instance_id]
    invocation |= {"StatusDetails": "In Progress", "ExecutionStartDateTime": now()}
    invocation["Status"] = "InProgress"
    outcome = run(
        emulator,
        instance_id,
        command_record["Parameters"],
        is_cancelled=lambda: command_record["CommandId"] in cancelled,
    )
    invocation |= {
        "ResponseCode": outcome.code,
        "StandardOutputContent": outcome.stdout,
        "StandardErrorContent": outcome.stderr,
        "ExecutionEndDateTime": now(),
        "StatusDetails": outcome.details,
    }
    invocation["Status"] = outcome.status  # last: who sees it reads the rest


def run(
    emulator: Emulator,
    instance_id: str,
    parameters: Mapping[str, Any],
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run a script in an instance's node as its root and wait for it.

    Args:
        parameters: those of AWS-RunShellScript, lists of strings.
        is_cancelled: whether nobody wants it to go on.
    """
    script = "\n".join(parameters["commands"])
    if directory := (parameters.get("workingDirectory") or [""])[0]:
        script = f"cd -- '{directory}' || exit 1\n{script}"
    timeout = int((parameters.get("executionTimeout") or [DEFAULT_TIMEOUT])[0])
    try:
        pid1 = int(emulator.node(instance_id, "pid1").read_text())
    except FileNotFoundError:
        return Outcome(
            code=-1, status="Failed", details="Undeliverable", stdout="", stderr="the instance is not running"
        )
    process = subprocess.Popen(
        command(pid1, ["/bin/sh", "-c", script]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline, stopped = time.monotonic() + timeout, ""
    while True:
        left = deadline - time.monotonic()
        try:
            stdout, stderr = process.communicate(timeout=max(0.0, min(left, _CANCEL_POLL)))
            break
        except subprocess.TimeoutExpired:
            if is_cancelled() or left <= 0:
                stopped = "Cancelled" if is_cancelled() else "TimedOut"
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
                break
    code = _KILLED if stopped else process.returncode
    ended = stopped or ("Success" if code == 0 else "Failed")
    return Outcome(
        code=code,
        status=ended,
        details="Execution Timed Out" if stopped == "TimedOut" else ended,
        stdout=stdout.decode(errors="replace")[:STDOUT_LIMIT],
        stderr=stderr.decode(errors="replace")[:STDERR_LIMIT],
    )
