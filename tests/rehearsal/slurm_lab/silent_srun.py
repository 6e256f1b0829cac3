"""The failure this package was born from, timed: an srun whose ports are closed to its own task.

Slurm 24.11 waits 600 seconds for a task to launch (src/api/step_launch.c), then KillWait and two seconds more.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from slurm_cluster.rehearsal.image import ensure_baked_image
from tests.rehearsal.slurm_lab.lab_cluster import LabCluster

_SRUN_SECONDS = 800.0
_IMAGE_SECONDS = 1200.0
_STOP_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Srun:
    """How one ``srun hostname`` on the head ended."""

    stdout: str
    stderr: str
    status: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Story:
    """The same command with the worker's way back open, closed and open again.

    Args:
        before: the first srun.
        closed: the second, while new connections from the worker to srun's ports were dropped.
        after: the third.
        slurmd_log: what slurmd wrote during the second.
        dropped_packets: what the firewall dropped during the second.
    """

    before: Srun
    closed: Srun
    after: Srun
    slurmd_log: str
    dropped_packets: int


class StoryThread:
    """Runs the story beside other tests; starts at once, about 635 seconds long.

    The thread that starts the machines is theirs for life: they die with it.
    """

    def __init__(self) -> None:
        self._cluster: LabCluster | None = None
        self._story: Story | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="silent-srun", daemon=True)
        self._thread.start()

    def result(self) -> Story:
        """Wait for the end of the story and return it.

        Raises:
            TimeoutError: it has not ended in time.
            Exception: what made it fail.
        """
        self._thread.join(_IMAGE_SECONDS + _SRUN_SECONDS)
        if self._error is not None:
            raise self._error
        if self._story is None:
            raise TimeoutError(f"the story has not ended within {_IMAGE_SECONDS + _SRUN_SECONDS:.0f} s")
        return self._story

    def stop(self) -> None:
        """End the machines, and with them whatever the thread waits for."""
        if self._cluster is not None:
            self._cluster.kill()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._cluster = LabCluster(ensure_baked_image(lambda _line: None))
            with self._cluster as cluster:
                self._story = _tell(cluster)
        except BaseException as error:  # a thread's error is its waiter's
            self._error = error


def _tell(cluster: LabCluster) -> Story:
    before = _srun(cluster)
    written = len(cluster.worker.read("/var/log/slurm/slurmd.log"))
    with cluster.closed("srun-io") as dropped_packets:
        closed = _srun(cluster)
        dropped = dropped_packets()
    slurmd_log = cluster.worker.read("/var/log/slurm/slurmd.log")[written:]
    cluster.await_idle()
    return Story(before=before, closed=closed, after=_srun(cluster), slurmd_log=slurmd_log, dropped_packets=dropped)


def _srun(cluster: LabCluster) -> Srun:
    start = time.monotonic()
    done = cluster.head.run(["srun", "hostname"], timeout=_SRUN_SECONDS)
    return Srun(stdout=done.stdout, stderr=done.stderr, status=done.returncode, seconds=time.monotonic() - start)
