"""The gate of a deployment: bring the head to what the stack says, then prove that jobs run.

It ends at the first thing that is not so and says which. The result of a request is kept, so that the same request
asked twice is one piece of work.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from slurm_cluster.model.names import static_node_names
from slurm_cluster.model.node_files import STATE_DIR, STATUS_FILE
from slurm_cluster.model.spec import PartitionSpec
from slurm_cluster.runtime.node import files, node_table
from slurm_cluster.runtime.node.commands import Runner
from slurm_cluster.runtime.node.node_table import NodeState
from slurm_cluster.runtime.node.smoke_test import LIMIT_SECONDS, Tester
from slurm_cluster.runtime.node.status import BOOT_ID_FILE

RESULT_DIR = STATE_DIR / "gate"
_KEPT_RESULTS = 20
_ATTEMPTS = 3
_LISTED_NODES = 20
_ADDRESS_LOOKS = 5
_STOPPED_SECONDS = 120
"""How long a worker that had registered may be down or kept back: it may be rebooting."""

_LINE_LENGTH = 20_000
_SIZES = (2000, 800, 300, 100, 10)
_FAILURE_SIZE = 800
_REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")


class OnUpdate(StrEnum):
    """Which nodes an update tests."""

    FREE = "free"
    """Idle ones; those that run jobs and answer count as proven, others are named."""

    ALL = "all"
    """Every static worker, waiting for those that run jobs."""


class Stopped(Exception):
    """A stage did not succeed.

    Args:
        step: what was being done.
        reason: why it did not succeed.
    """

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"{step}: {reason}")
        self.step = step
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What the gate asks of the head.

    Args:
        run: runs programs.
        job_user: returns the name of the user who runs jobs.
        apply: makes the configuration what the stack says; returns what it did.
        partitions: returns the partitions that the stack names.
        addresses: returns the private address of each static worker's instance by node name, as far as it is known.
    """

    run: Runner
    job_user: Callable[[], str]
    apply: Callable[[], dict[str, Any]]
    partitions: Callable[[], Iterable[PartitionSpec]]
    addresses: Callable[[], Mapping[str, str]]


@dataclass
class Gate:
    """One run of the gate.

    Args:
        cluster: the cluster, as seen from its head.
        free_only: whether nodes that run jobs are left alone.
        wait_seconds: how long to wait for bootstrap and the workers together.
        limit: seconds after which a launch of the smoke test is given up.
        apply_only: whether it is enough that the head has taken up its configuration.
        status_file: what bootstrap writes.
        boot_id: id of this boot.
        sleep: waits between looks.
        clock: seconds of a steady clock.
    """

    cluster: Cluster
    free_only: bool
    wait_seconds: float
    limit: int = LIMIT_SECONDS
    apply_only: bool = False
    status_file: Path = STATUS_FILE
    boot_id: str = field(default_factory=lambda: BOOT_ID_FILE.read_text().strip())
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.result: dict[str, Any] = {
            "passed": False,
            "stage": "bootstrap",
            "failure": None,
            "nodes": {},
            "tested": [],
            "busy": [],
            "skipped": {},
            "table": {},
            "checks": [],
            "output": "",
            "applied": None,
        }
        self._addresses: Mapping[str, str] = {}
        self._began = self.clock()

    def pass_through(self) -> dict[str, Any]:
        """Run every stage, or up to the first that does not succeed; return the result."""
        self._began = self.clock()
        try:
            self._wait_for_bootstrap()
            self.result["stage"] = "apply"
            self.result["applied"] = self.cluster.apply()
            if not self.apply_only:
                self._prove()
            self.result.update(stage="done", passed=True)
        except Stopped as stopped:
            self.result["failure"] = {"step": stopped.step, "reason": stopped.reason}
        except Exception as problem:
            reason = str(problem) or type(problem).__name__
            self.result["failure"] = {"step": self.result["stage"], "reason": reason}
        return self.result

    def _prove(self) -> None:
        """Wait for the workers and test them.

        Raises:
            Stopped: one does not come, or a check failed.
        """
        tested = {
            item.name: static_node_names(item.name, item.static_nodes)
            for item in self.cluster.partitions()
            if item.static_nodes
        }
        self.result["stage"] = "workers"
        self._wait_for_workers([name for names in tested.values() for name in names])
        self.result["stage"] = "smoke-test"
        self._test(tested)

    def _wait_for_bootstrap(self) -> None:
        """Wait until bootstrap has succeeded in this boot.

        Raises:
            Stopped: it failed, or has not ended in time.
        """
        while True:
            status = _status(self.status_file, self.boot_id)
            if status.get("state") == "ready":
                return
            step = str(status.get("step") or "start")
            if status.get("state") == "failed":
                raise Stopped(step, str(status.get("reason")))
            if self._out_of_time():
                why = f": {status['trouble']}" if status.get("trouble") else ""
                raise Stopped(step, f"this step of bootstrap has not ended after {self.wait_seconds:g} seconds{why}")
            self.sleep(1)

    def _wait_for_workers(self, wanted: Sequence[str]) -> None:
        """Wait until every static worker has registered, and is idle where it is to be tested whatever it does.

        Raises:
            Stopped: one has not, is refused, or none is left to prove anything.
        """
        stopped_since: dict[str, float] = {}
        for look in itertools.count():
            states = node_table.read(self.cluster.run)
            if look % _ADDRESS_LOOKS == 0:
                self._addresses = self.cluster.addresses()
            missing = [name for name in wanted if not self._is_there(name, states)]
            refused = [name for name in missing if name in states and states[name].refused]
            if not missing:
                break
            stopped_since = {
                name: stopped_since.get(name, self.clock()) for name in missing if self._has_stopped(name, states)
            }
            lasting = any(self.clock() - since > _STOPPED_SECONDS for since in stopped_since.values())
            if refused or lasting or self._out_of_time():
                self._list(missing, states)
                reason = "; ".join(self._describe(name, states) for name in missing[:_LISTED_NODES])
                raise Stopped("workers", f"{len(missing)} of {len(wanted)} static workers are not ready: {reason}")
            self.sleep(1)
        if not wanted:
            raise Stopped("workers", "the cluster has no static workers: nothing can be proven")

    def _out_of_time(self) -> bool:
        return self.clock() - self._began > self.wait_seconds

    def _is_there(self, name: str, states: Mapping[str, NodeState]) -> bool:
        """Return whether a worker needs no more waiting for.

        In an update that tests free nodes, one that somebody keeps back or that went down is only named, for neither
        this nor a roll-back would bring it back; but its present instance must have registered once.
        """
        state = states.get(name)
        if state is None or state.refused or self._registered_elsewhere(name, state):
            return False
        if not self.free_only:
            return state.idle
        return "POWERED_DOWN" not in state.flags

    def _has_stopped(self, name: str, states: Mapping[str, NodeState]) -> bool:
        """Return whether a worker that had come is down or kept back, which waiting alone does not change."""
        state = states.get(name)
        if state is None or "POWERED_DOWN" in state.flags or self._registered_elsewhere(name, state):
            return False
        return not state.serves or state.kept_back

    def _registered_elsewhere(self, name: str, state: NodeState) -> bool:
        return state.address != self._addresses.get(name, state.address)

    def _test(self, tested: Mapping[str, Sequence[str]]) -> None:
        """Run the smoke test on one partition after the other.

        Raises:
            Stopped: a check failed, or no node is proven at the end.
        """
        for partition, names in tested.items():
            self._test_partition(partition, names)
        if not self.result["tested"] and not self.result["busy"]:
            skipped = "; ".join(f"{name}: {why}" for name, why in self.result["skipped"].items())
            raise Stopped("smoke-test", f"no static worker could be tested, and none runs jobs: {skipped}")

    def _test_partition(self, partition: str, names: Sequence[str]) -> None:
        """Test the free nodes of a partition and sort the others.

        A user's job may take a node between the look and the test: then there is another look.
        """
        refused: dict[str, str] = {}
        for _ in range(_ATTEMPTS):
            states = node_table.read(self.cluster.run)
            free = [name for name in names if name in states and states[name].idle] if self.free_only else list(names)
            tester = Tester(
                self.cluster.run, self.cluster.job_user(), self.clock, immediate=self.free_only, limit=self.limit
            )
            tester.hosts = {name: states[name].host for name in free if name in states}
            if set(tester.hosts) != set(free):
                raise Stopped("smoke-test", "slurmctld has stopped answering")
            for launch in (tester.launch, tester.launch_from_worker):
                if free and all(check.passed is not False for check in tester.checks):
                    launch(partition, free)
            failed = [check for check in tester.checks if check.passed is False]
            if not failed or failed[0].granted:
                break
        else:
            refused = dict.fromkeys(free, failed[0].detail)
            free, tester.outputs = [], []
        busy = [name for name in names if name in states and states[name].busy and name not in free]
        self.result["output"] += "".join(tester.outputs)
        self.result["checks"] += [vars(check) for check in tester.checks if check.granted]
        self.result["busy"] += busy
        left = [name for name in names if name not in (*free, *busy)]
        self.result["skipped"].update({name: refused.get(name) or self._describe(name, states) for name in left})
        if failed and failed[0].granted:
            self._list(failed[0].nodes, states)
            raise Stopped(failed[0].name, failed[0].detail)
        self.result["tested"] += free
        self.result["nodes"].update({name: states[name].host for name in (*free, *busy)})

    def _list(self, names: Iterable[str], states: Mapping[str, NodeState]) -> None:
        self.result["table"] = {
            name: {
                "state": states[name].state if name in states else "",
                "reason": states[name].reason if name in states else "",
                "address": states[name].address if name in states else "",
                "host": states[name].host if name in states else "",
                "instance_address": self._addresses.get(name, ""),
            }
            for name in list(names)[:_LISTED_NODES]
        }

    def _describe(self, name: str, states: Mapping[str, NodeState]) -> str:
        if name not in states:
            return f"{name} is unknown to slurmctld"
        state = states[name]
        text = f"{name} is {state.state}"
        if state.reason:
            text += f" ({state.reason})"
        if self._registered_elsewhere(name, state):
            text += f", registered from {state.address} and not from its instance {self._addresses[name]}"
        return text


def _status(path: Path, boot_id: str) -> dict[str, Any]:
    """Return what bootstrap has written in this boot, nothing before it has."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) and value.get("boot_id") == boot_id else {}


def text(result: Mapping[str, Any]) -> str:
    """Return the result as one JSON line that Run Command shows whole: it cuts at 24,000 characters."""
    # a check that failed is the last one of many, and the first to be looked at
    checks = sorted(result.get("checks", ()), key=lambda check: check["passed"] is not False)
    told = {**result, "checks": checks}
    for size in _SIZES:
        sizes = {"failure": max(size, _FAILURE_SIZE)}
        line = json.dumps({name: _cut(value, sizes.get(name, size)) for name, value in told.items()})
        if len(line) <= _LINE_LENGTH:
            break
    return line


def _cut(value: Any, size: int) -> Any:
    """Return a JSON value with texts of at most ``size`` characters, and a tenth as many members a list or object."""
    if isinstance(value, str):
        return value[:size]
    if isinstance(value, Mapping):
        return {key: _cut(item, size) for key, item in list(value.items())[: max(10, size // 10)]}
    if isinstance(value, list | tuple):
        return [_cut(item, size) for item in value[: max(1, size // 10)]]
    return value


@contextlib.contextmanager
def request(request_id: str, *, directory: Path = RESULT_DIR) -> Iterator[Request]:
    """Enter one request, alone on this head: another of any id waits until it has ended."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Request(directory, request_id)


class Request:
    """The kept result of one request.

    Args:
        directory: where results are.
        request_id: any text.
    """

    def __init__(self, directory: Path, request_id: str) -> None:
        known = _REQUEST_ID.fullmatch(request_id)
        self._directory = directory
        self._path = directory / f"{request_id if known else hashlib.sha256(request_id.encode()).hexdigest()}.json"

    @property
    def result(self) -> dict[str, Any] | None:
        """What the request came to, None if it has not ended yet."""
        content = files.read(self._path)
        return json.loads(content) if content else None

    def keep(self, result: Mapping[str, Any]) -> None:
        """Keep the result; of many requests the latest."""
        files.replace(self._path, json.dumps(result) + "\n", mode=0o600, uid=os.geteuid(), gid=os.getegid())
        kept = sorted(self._directory.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in kept[:-_KEPT_RESULTS]:
            old.unlink(missing_ok=True)
