"""Evidence of clusters that are healthy but for what a test changes in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import HEAD, Evidence, Machine
from slurm_cluster.runtime.verdict import REASON_LENGTH, Verdict, diagnose

HEAD_HOST = "head.0f0f0f0f.slurm.internal"
FIRST, SECOND = "cpu-static-1", "cpu-static-2"
ADDRESSES = {HEAD: "10.0.0.5", FIRST: "10.0.0.11", SECOND: "10.0.0.12"}
GROUPS = {"head": "sg-0aaaaaaaaaaaaaaaa", "worker": "sg-0bbbbbbbbbbbbbbbb"}
RUNNING_UNIT = {"active": "active", "sub": "running", "result": "success", "file": "disabled", "journal": ""}
STOPPED_UNIT = {"active": "inactive", "sub": "dead", "result": "success", "file": "disabled", "journal": "terminated"}


def ready() -> dict[str, Any]:
    """Return the status of a bootstrap that is done."""
    return {"state": "ready", "step": "slurmd", "reason": None, "seconds": 12.0}


def hostname(node: str) -> str:
    """Return the host name of a machine."""
    return "ip-" + ADDRESSES[node].replace(".", "-")


class Case:
    """A cluster of two workers in which everything answers; a test breaks parts of ``facts``, ``meetings``, ``gate``.

    Args:
        ports: Slurm's ports.
    """

    def __init__(self, ports: SlurmPorts | None = None) -> None:
        self.ports = ports or SlurmPorts()
        self.machines = {
            node: Machine(instance_id=f"i-{number:017x}", state="running", agent="Online")
            for number, node in enumerate(ADDRESSES)
        }
        self.facts: dict[str, dict[str, Any]] = {node: self._facts(node) for node in ADDRESSES}
        self.meetings: dict[str, dict[str, Any]] = {node: self._meeting(node) for node in ADDRESSES}
        self.statuses: dict[str, dict[str, Any]] = {}
        self.gate: dict[str, Any] | None = srun_failed()
        self.final = False

    def _facts(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "node": node,
            "hostname": hostname(node),
            "address": ADDRESSES[node],
            "status": ready(),
            "munge": copy.copy(RUNNING_UNIT),
            "slurm": copy.copy(RUNNING_UNIT),
            "credential": "MUNGE:AwQF:",
            "log": [],
        }
        if node == HEAD:
            found |= {"controller": True, "head_host": HEAD_HOST, "nodes": {}}
        return found

    def _meeting(self, node: str) -> dict[str, Any]:
        ports = probe_plan.listen_ports(self.ports)
        others = [other for other in ADDRESSES if other != node]
        meeting = {
            "listening": list(ports),
            "taken": [],
            "watching": True,
            "accepted": [],
            "arrived": [[ADDRESSES[other], port] for other in others for port in (self.daemon(node), *ports)],
            "connections": [
                {"host": ADDRESSES[other], "port": port, "outcome": "open", "attempts": 1, "left": True}
                for other in others
                for port in (self.daemon(other), *ports)
            ],
        }
        if node == HEAD:
            names = {name: other for other in others for name in (other, hostname(other))}
        else:
            names = {HEAD_HOST: HEAD}
        found: dict[str, Any] = {
            "meeting": meeting,
            "names": {name: {"addresses": [ADDRESSES[bearer]], "problem": ""} for name, bearer in names.items()},
        }
        if node != HEAD:
            found["credential"] = {"decoded": True, "status": "Success (0)", "age": 3}
        return found

    def daemon(self, node: str) -> int:
        """Return the port of a machine's daemon."""
        return self.ports.slurmctld if node == HEAD else self.ports.slurmd

    def connection(
        self,
        opener: str,
        listener: str,
        port: int,
        outcome: str,
        *,
        arrived: bool | None = None,
        left: bool | None = True,
    ) -> None:
        """Have one connection end otherwise; ``arrived`` and ``left`` say whether its SYN did."""
        for item in self.meetings[opener]["meeting"]["connections"]:
            if (item["host"], item["port"]) == (ADDRESSES[listener], port):
                item.update(outcome=outcome, left=left)
        syn = [ADDRESSES[opener], port]
        seen = self.meetings[listener]["meeting"]["arrived"]
        if arrived is False and syn in seen:
            seen.remove(syn)

    def drop(self, opener: str, listener: str, *ports: int) -> None:
        """Drop the SYNs from one machine to ports of another on the way, by default those of the srun range."""
        for port in ports or probe_plan.listen_ports(self.ports):
            self.connection(opener, listener, port, "timeout", arrived=False)

    def evidence(self) -> Evidence:
        """Return it as evidence."""
        answers: dict[str, Any] = {
            **{f"facts:{node}": found for node, found in self.facts.items()},
            **{f"meet:{node}": found for node, found in self.meetings.items()},
            **{f"status:{node}": {"status": found} for node, found in self.statuses.items()},
        }
        return Evidence(
            machines=self.machines,
            groups=GROUPS,
            ports=self.ports,
            gate=self.gate,
            answers=answers,
            final=self.final,
        )


def gate_result(stage: str, **more: Any) -> dict[str, Any]:
    """Return what the gate prints when it stops in a stage."""
    return {"passed": False, "stage": stage, "failure": None, "nodes": {}, "table": {}, "checks": [], **more}


def srun_failed(check: str = "srun:cpu", nodes: tuple[str, ...] = (FIRST, SECOND)) -> dict[str, Any]:
    """Return the result of a gate in which a launch brought no output."""
    detail = "no end after 60 seconds; expected cpu-static-1 ip-10-0-0-11; got no output; it said nothing"
    failed = {"name": check, "passed": False, "seconds": 60.1, "detail": detail, "nodes": list(nodes), "granted": True}
    return gate_result("smoke-test", failure={"step": check, "reason": detail}, checks=[failed])


def never_registered(node: str = FIRST, state: str = "IDLE+CLOUD+POWERED_DOWN", reason: str = "") -> dict[str, Any]:
    """Return the result of a gate that waited for a worker in vain."""
    instance = ADDRESSES.get(node, "10.0.0.99")
    entry = {"state": state, "reason": reason, "address": node, "host": node, "instance_address": instance}
    failure = {"step": "workers", "reason": f"1 of 2 static workers are not ready: {node} is {state}"}
    return gate_result("workers", failure=failure, table={node: entry})


NARROW = SlurmPorts(srun=PortRange(61000, 63000))


def verdict(change: Callable[[Case], object], case: Case | None = None) -> Verdict:
    """Return the verdict on a changed case, after seeing that its reason is one."""
    case = case or Case()
    change(case)
    found = diagnose(case.evidence())
    assert len(found.reason) <= REASON_LENGTH
    assert found.reason.startswith(f"{found.code}: ")
    return found


def differing_key(case: Case) -> None:
    """Have the first worker's munge not know the head's credential."""
    case.meetings[FIRST]["credential"] = {"decoded": False, "status": "Error: Invalid credential", "age": None}
