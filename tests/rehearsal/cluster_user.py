"""A deployed cluster as its users and its administrator meet it: commands, jobs, logs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_cluster.rehearsal.node import Node

JOB_USER_UID = 1000


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Poll ``condition`` until it holds.

    Raises:
        AssertionError: it does not hold within ``seconds``; ``what`` says what was waited for.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)


@dataclass(frozen=True)
class ClusterUser:
    """Acts on the nodes of one cluster; ``head`` and ``workers`` are what tests name them by.

    Args:
        nodes: by node name, the head as ``head``.
    """

    nodes: Mapping[str, Node]

    @property
    def head(self) -> Node:
        """The head node."""
        return self.nodes["head"]

    @property
    def workers(self) -> list[Node]:
        """The workers, in the order of their names."""
        return [self.nodes[name] for name in sorted(self.nodes) if name != "head"]

    def root(self, node: Node, script: str, *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell script as root."""
        return node.exec(["sh", "-c", script], timeout=timeout)

    def user(
        self, node: Node, script: str, *, timeout: float = 60, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell script as the job user, in a login shell."""
        as_user = f'exec runuser --login "$(id -nu {JOB_USER_UID})" --command "$1"'
        return node.exec(["sh", "-c", as_user, "as-user", script], timeout=timeout, input=input)

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch script on the head and return the job id; see ``output``."""
        command = " ".join(["sbatch", "--parsable", "--output=/var/tmp/job-%j.out", *options])
        done = self.user(self.head, command, input=f"#!/bin/bash\n{script}\n")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def output(self, job: str, node: Node) -> str:
        """Return what a job has written so far; ``node`` is the first of its nodes. No file system is shared."""
        return self.root(node, f"cat /var/tmp/job-{job}.out").stdout

    def state(self, job: str) -> str:
        """Return a job's state as squeue(1) words it; slurmctld remembers ended jobs for five minutes."""
        return self.user(self.head, f"squeue --noheader --states=all --format=%T --jobs={job}").stdout.strip()

    def wait_for_end(self, job: str, *, seconds: float) -> str:
        """Wait until a job is over and return its last state."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_until(lambda: self.state(job) in over, seconds=seconds, what=f"end of job {job}, now {self.state(job)!r}")
        return self.state(job)

    def settle(self) -> None:
        """Cancel every job and wait until each worker is idle and answers."""
        self.root(self.head, f"scancel --user={JOB_USER_UID}")

        def states() -> list[str]:
            done = self.root(self.head, "sinfo --noheader --Node --format=%T")
            return done.stdout.split()

        all_idle = ["idle"] * len(self.workers)
        wait_until(lambda: states() == all_idle, seconds=120, what=f"all workers idle, now {states()}")

    def log(self, node: Node, *, since: float) -> str:
        """Return what Slurm's daemons and steps have logged on ``node`` since the time ``since``."""
        only = "--identifier=slurmctld --identifier=slurmd --identifier=slurmstepd"
        return self.root(node, f"journalctl --quiet --output=cat --since=@{int(since)} {only}").stdout
