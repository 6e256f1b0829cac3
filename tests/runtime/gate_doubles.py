"""A cluster as the smoke test's function meets it, on a clock of its own."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm_cluster.model.flows import SlurmPorts
from slurm_cluster.runtime.functions.smoke_test.cloud import Instance, Outcome, UnknownCommand
from slurm_cluster.runtime.functions.smoke_test.request import Progress, Request, Settings
from slurm_cluster.runtime.functions.smoke_test.watch import Finding, Watch

PASSED: dict[str, Any] = {
    "passed": True,
    "stage": "done",
    "failure": None,
    "nodes": {"cpu-static-1": "ip-10-0-0-5.eu-west-1.compute.internal", "cpu-static-2": "ip-10-0-0-6"},
    "checks": [],
    "table": {},
    "output": "cpu-static-1 ip-10-0-0-5\ncpu-static-2 ip-10-0-0-6\n",
}

READY = {"state": "ready", "step": "slurmd", "seconds": 1, "reason": None}


class Clock:
    """Time that passes only by sleeping; things happen in it at their time."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self._plans: list[tuple[float, int, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._plans and self._plans[0][0] <= end:
            self.now, _, happen = heapq.heappop(self._plans)
            happen()
        self.now = end

    def after(self, seconds: float, happen: Callable[[], None]) -> float:
        """Let something happen later; return when."""
        when = self.now + seconds
        heapq.heappush(self._plans, (when, len(self._plans), happen))
        return when


@dataclass
class FakeNode:
    """One instance.

    Args:
        state: EC2's state name.
        agent: PingStatus; empty while it has not registered.
        console: its console.
        launched: when it started.
        status: what ``probe --status`` prints; None where the programs are not there yet.
        facts: what ``probe`` prints.
    """

    state: str = "running"
    agent: str = ""
    console: str = ""
    launched: float = 0.0
    status: dict[str, Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class FakeCloud:
    """In place of ``cloud.Cloud``.

    Args:
        clock: its time.
        nodes: by instance id.
        gate: result of the gate on the head and how long it takes; None: it never ends.
        rolling_back: whether the stack is.
    """

    clock: Clock
    nodes: dict[str, FakeNode]
    gate: tuple[Mapping[str, Any] | str, float] | None = (PASSED, 10.0)
    rolling_back: bool = False
    commands: dict[str, tuple[str, float]] = field(default_factory=dict)
    gates: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    invoked: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    unknown_for: float = 0.0
    _kept: dict[str, Any] = field(default_factory=dict)

    def instances(self, ids: Sequence[str]) -> dict[str, Instance]:
        return {
            item: Instance(state=self.nodes[item].state, launched=self.nodes[item].launched)
            for item in ids
            if item in self.nodes
        }

    def agents(self, ids: Sequence[str]) -> dict[str, str]:
        return {item: self.nodes[item].agent for item in ids if item in self.nodes and self.nodes[item].agent}

    def console(self, instance_id: str) -> str:
        return self.nodes[instance_id].console

    def send(self, ids: Sequence[str], script: str, seconds: int) -> dict[str, str]:
        command = f"command-{len(self.commands) + 1}"
        online = [item for item in ids if self.nodes[item].agent == "Online"]
        if online:
            self.commands[command] = (script, self.clock.now)
        return dict.fromkeys(online, command)

    def outcome(self, command: str, instance_id: str) -> Outcome | None:
        script, sent = self.commands[command]
        if self.clock.now - sent < self.unknown_for:
            raise UnknownCommand(command)
        node = self.nodes[instance_id]
        if " gate " in script:
            return self._gate(command, script, sent)
        if self.clock.now - sent < 1:
            return None
        answer = {"status": node.status} if "--status" in script else node.facts
        if node.status is None:
            return Outcome(succeeded=False, stdout="", why="Failed, exit status 127: no slurm-cluster yet")
        return Outcome(succeeded=True, stdout=json.dumps(answer), why="Success, exit status 0: ")

    def _gate(self, command: str, script: str, sent: float) -> Outcome | None:
        if self.gate is None or self.clock.now - sent < self.gate[1]:
            return None
        match = re.search(r"--request-id (\S+)", script)
        assert match
        if match[1] not in self._kept:
            # as the head does: the work of a request is done once
            self.gates.append(match[1])
            self._kept[match[1]] = self.gate[0]
        result = self._kept[match[1]]
        text = result if isinstance(result, str) else json.dumps(result)
        passed = not isinstance(result, str) and bool(result["passed"])
        return Outcome(succeeded=passed, stdout=text, why=f"exit status {0 if passed else 1}: ")

    def cancel(self, command: str, instance_id: str) -> None:
        self.cancelled.append(command)

    def is_rolling_back(self, stack_id: str) -> bool:
        return self.rolling_back

    def go_on(self, function: str, event: Mapping[str, Any]) -> None:
        self.invoked.append((function, event))


def _request(kind: str = "Create") -> Request:
    return Request(
        request_id="r-1",
        request_type=kind,
        stack_id="stack",
        instances={"head": "i-h", "cpu-static-1": "i-1", "cpu-static-2": "i-2"},
        groups={"head": "sg-head", "worker": "sg-worker"},
        ports=SlurmPorts(),
    )


class Bench:
    """One request to a cluster whose machines are up unless a test says otherwise."""

    def __init__(self, kind: str = "Create", on_update: str = "free") -> None:
        self.clock = Clock()
        self.began = self.clock.now
        self.nodes = {
            name: FakeNode(agent="Online", launched=self.began - 10, status=dict(READY))
            for name in ("i-h", "i-1", "i-2")
        }
        self.cloud = FakeCloud(self.clock, self.nodes)
        self.request = _request(kind)
        self.settings = Settings(on_update=on_update, budget_seconds=1800, log_group="log")
        self.progress = Progress(started=self.began)

    def watch(self) -> Watch:
        return Watch(
            request=self.request,
            settings=self.settings,
            progress=self.progress,
            cloud=self.cloud,  # type: ignore[arg-type]  # a double
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def run(self, seconds: float = 3600) -> Finding:
        finding = self.watch().run(self.clock.now + seconds)
        assert finding is not None
        return finding

    def took(self) -> float:
        return self.clock.now - self.began

    def script_of_a_run(self) -> str:
        self.run()
        return self.script()

    def script(self) -> str:
        (script,) = (script for script, _ in self.cloud.commands.values() if " gate " in script)
        return script
