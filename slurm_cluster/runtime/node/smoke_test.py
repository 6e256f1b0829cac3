"""Proof that jobs run: on every static worker, and from a worker on another.

Exit statuses prove nothing here (srun ends with 0 although no task was started, before Slurm 26.05.2): what the tasks
print is compared, node by node, with what slurmctld has registered.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from slurm_cluster.model.names import static_node_names
from slurm_cluster.model.spec import PartitionSpec
from slurm_cluster.runtime.node import node_table
from slurm_cluster.runtime.node.commands import CommandError, Runner, last_words

JOB_NAME = "slurm-cluster-smoke-test"
_PATH = "/usr/local/bin:/usr/bin:/bin"
LIMIT_SECONDS = 60
"""A launch takes one or two; srun that gets no answer would go on for ten minutes."""
_OVERLAPPING_TASK = ("srun", "--overlap", "--nodes=1", "--ntasks=1")
_TELL = 'echo "$SLURMD_NODENAME $(hostname)"'
_IMMEDIATE_SECONDS = 10
_SHOWN_LINES = 8
_NOT_GRANTED = re.compile(r"(Unable to allocate resources|allocate failed): (?!Unable to contact)")
"""What srun and salloc say when they get no nodes at once (srun(1) --immediate)."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was tried.

    Args:
        name: stable name.
        passed: outcome; None where it does not apply to this cluster.
        seconds: how long it took.
        detail: what was found, with what was expected if that is something else.
        nodes: those that did not answer as expected.
        granted: whether the nodes could be had; only an ``immediate`` test does without an answer.
    """

    name: str
    passed: bool | None
    seconds: float
    detail: str
    nodes: list[str] = field(default_factory=list)
    granted: bool = True


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of the smoke test.

    Args:
        passed: whether at least one check applied and none failed.
        nodes: host name by node name, as slurmctld has registered them.
        checks: what was tried, in order.
        output: what the tasks that were started from the head printed.
    """

    passed: bool
    nodes: dict[str, str]
    checks: list[Check] = field(default_factory=list)
    output: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def smoke_test(
    run: Runner,
    job_user: str,
    partitions: Iterable[PartitionSpec],
    *,
    wait_seconds: float = 300,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Run the test as ``job_user``.

    Args:
        run: runs programs.
        job_user: an ordinary user, the same on every node.
        partitions: partitions of the cluster; those with static workers are tested.
        wait_seconds: how long to wait for the static workers to be idle.
        sleep: waits between looks.
        clock: seconds of a steady clock.
    """
    tested = {item.name: static_node_names(item.name, item.static_nodes) for item in partitions if item.static_nodes}
    wanted = [name for names in tested.values() for name in names]
    if not wanted:
        none = Check(name="workers-idle", passed=False, seconds=0, detail="the cluster has no static workers to test")
        return Result(passed=False, nodes={}, checks=[none])
    tester = Tester(run, job_user, clock)
    tester.wait_until_idle(wanted, wait_seconds, sleep)
    if tester.checks[-1].passed:
        for partition, names in tested.items():
            tester.launch(partition, names)
        for partition, names in tested.items():
            tester.launch_from_worker(partition, names)
    return Result(
        passed=all(check.passed is not False for check in tester.checks),
        nodes=tester.hosts,
        checks=tester.checks,
        output="".join(tester.outputs),
    )


class Tester:
    """Runs the checks and keeps what they found.

    Args:
        run: runs programs.
        job_user: an ordinary user, the same on every node.
        clock: seconds of a steady clock.
        immediate: whether a test that does not get its nodes within seconds is given up, as users' jobs came first.
        limit: seconds after which a launch is given up.
    """

    def __init__(
        self,
        run: Runner,
        job_user: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        immediate: bool = False,
        limit: int = LIMIT_SECONDS,
    ) -> None:
        self._run = run
        self._job_user = job_user
        self._clock = clock
        self._immediate = immediate
        self._limit = limit
        self.hosts: dict[str, str] = {}
        self.checks: list[Check] = []
        self.outputs: list[str] = []

    def wait_until_idle(self, wanted: Sequence[str], seconds: float, sleep: Callable[[float], None]) -> None:
        """Wait for nodes to be idle, and remember their hosts."""
        start = self._clock()
        while True:
            states = node_table.read(self._run)
            away = [name for name in wanted if name not in states or not states[name].idle]
            if not away or self._clock() - start > seconds:
                break
            sleep(1)
        self.hosts = {name: states[name].host for name in wanted if name in states}
        detail = f"{len(wanted)} workers are idle"
        if away:
            detail = f"not idle after {seconds:g} seconds: " + "; ".join(
                f"{name} {states[name].state} {states[name].reason}".strip()
                if name in states
                else f"{name} unknown to slurmctld"
                for name in away
            )
        self._record("workers-idle", not away, start, detail, away)

    def launch(self, partition: str, names: Sequence[str]) -> None:
        """One task on each static worker of a partition, started from the head."""
        start = self._clock()
        done = self._as_user(["srun", *self._allocation(partition, names), "--kill-on-bad-exit", "sh", "-c", _TELL])
        self.outputs.append(done.stdout)
        self._judge(f"srun:{partition}", start, done, self._pairs(names), names)

    def launch_from_worker(self, partition: str, names: Sequence[str]) -> None:
        """One task on each of two workers, started by an srun that itself runs on a worker."""
        check = f"srun-in-job:{partition}"
        if len(names) < 2:
            self.checks.append(
                Check(name=check, passed=None, seconds=0, detail="not applicable: the partition has one static worker")
            )
            return
        pair = list(names[:2])
        start = self._clock()
        inner = f"echo outer $(hostname); exec srun --overlap --nodes=2 --ntasks=2 sh -c '{_TELL}'"
        done = self._as_user(["salloc", *self._allocation(partition, pair), *_OVERLAPPING_TASK, "sh", "-c", inner])
        # Slurm chooses which of the two runs the inner srun.
        workers = [f"outer {_short(self.hosts[name])}" for name in pair]
        ran_on = [worker for worker in workers if worker in map(_short, done.stdout.splitlines())]
        self._judge(check, start, done, sorted([*self._pairs(pair), (ran_on or workers)[0]]), pair)

    def _allocation(self, partition: str, names: Sequence[str]) -> list[str]:
        count = len(names)
        return [
            f"--job-name={JOB_NAME}",
            f"--partition={partition}",
            f"--nodes={count}",
            f"--ntasks={count}",
            "--ntasks-per-node=1",
            f"--nodelist={','.join(names)}",
            "--time=5",
            "--chdir=/",
            *([f"--immediate={_IMMEDIATE_SECONDS}"] if self._immediate else []),
        ]

    def _as_user(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command as the job user with an environment of its own: no SLURM_* or SRUN_* setting leaks in."""
        clean = ["env", "-i", f"PATH={_PATH}", "LC_ALL=C", f"USER={self._job_user}", "HOME=/"]
        limited = ["timeout", "--kill-after=10", str(self._limit)]
        try:
            done = self._run(
                ["runuser", f"--user={self._job_user}", "--", *clean, *limited, *argv],
                check=False,
                timeout=self._limit + 30,
            )
        except CommandError as problem:
            done = subprocess.CompletedProcess(list(argv), 124, "", str(problem))
        if done.returncode != 0:
            self._run(["scancel", f"--user={self._job_user}", f"--name={JOB_NAME}"], check=False)
        return done

    def _pairs(self, names: Iterable[str]) -> list[str]:
        return sorted(f"{name} {_short(self.hosts[name])}" for name in names)

    def _judge(
        self,
        name: str,
        start: float,
        done: subprocess.CompletedProcess[str],
        expected: list[str],
        names: Sequence[str],
    ) -> None:
        printed = sorted(_short(line.strip()) for line in done.stdout.splitlines() if line.strip())
        if printed == expected and done.returncode == 0:
            self._record(name, True, start, f"answered: {_listed(printed)}")
            return
        how = (
            f"no end after {self._limit} seconds" if done.returncode in (124, 137) else f"exit status {done.returncode}"
        )
        detail = f"{how}; {_difference(expected, printed)}; {last_words(done)}"
        silent = [node for node in names if printed.count(f"{node} {_short(self.hosts[node])}") != 1]
        granted = not (self._immediate and not printed and _NOT_GRANTED.search(done.stderr))
        self._record(name, False, start, detail, silent or names, granted=granted)

    def _record(
        self, name: str, passed: bool, start: float, detail: str, nodes: Iterable[str] = (), *, granted: bool = True
    ) -> None:
        seconds = round(self._clock() - start, 2)
        self.checks.append(
            Check(name=name, passed=passed, seconds=seconds, detail=detail, nodes=list(nodes), granted=granted)
        )


def _difference(expected: Sequence[str], printed: Sequence[str]) -> str:
    """Return what was expected and what came: of many lines only those that differ, and few of them."""
    if len(expected) <= _SHOWN_LINES:
        return f"expected {_listed(expected)}; got {_listed(printed) or 'no output'}"
    missing = list((Counter(expected) - Counter(printed)).elements())
    surplus = list((Counter(printed) - Counter(expected)).elements())
    got = _listed(surplus) or (f"the other {len(printed)}" if printed else "no output")
    return f"of {len(expected)} expected {_listed(missing) or 'none'} did not come; got {got}"


def _listed(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - _SHOWN_LINES} more" if len(lines) > _SHOWN_LINES else ""
    return ", ".join(lines[:_SHOWN_LINES]) + more


def _short(text: str) -> str:
    """Return ``text``, which ends with a host name, with that name cut at its first dot."""
    return text.split(".")[0]
