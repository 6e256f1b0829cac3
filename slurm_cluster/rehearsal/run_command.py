"""Runs a script on a node the way an operator does: AWS Systems Manager Run Command."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types_boto3_ssm import SSMClient

_POLL_SECONDS = 0.2
_FINAL = frozenset({"Success", "Failed", "TimedOut", "Cancelled", "Undeliverable", "Terminated"})


@dataclass(frozen=True)
class CommandResult:
    """What Run Command reports; output is cut at 24,000 and 8,000 characters, as by the service."""

    status: str
    exit_code: int
    stdout: str
    stderr: str


def run_command(ssm: SSMClient, instance_id: str, script: str, *, timeout_seconds: float) -> CommandResult:
    """Run shell ``script`` as root on the instance and wait for it.

    Raises:
        TimeoutError: the command had not ended after ``timeout_seconds``.
        botocore.exceptions.ClientError: Systems Manager refused, e.g. as the instance's agent is not online.
    """
    deadline = time.monotonic() + timeout_seconds
    command = ssm.send_command(
        InstanceIds=[instance_id],
        DocumentName="AWS-RunShellScript",
        Parameters={"commands": script.splitlines(), "executionTimeout": [str(max(1, int(timeout_seconds)))]},
    )["Command"]["CommandId"]
    while True:
        try:
            seen = ssm.get_command_invocation(CommandId=command, InstanceId=instance_id)
            if seen["Status"] in _FINAL:
                return CommandResult(
                    seen["Status"],
                    seen["ResponseCode"],
                    seen["StandardOutputContent"],
                    seen["StandardErrorContent"],
                )
        except ssm.exceptions.InvocationDoesNotExist:
            pass  # for a moment after SendCommand
        if time.monotonic() > deadline:
            raise TimeoutError(f"command {command} on {instance_id} had not ended after {timeout_seconds:.0f} s")
        time.sleep(_POLL_SECONDS)
