"""The rehearsal's command line as a process of its own, watched and ended from outside."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.rehearsal import sweep
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.ownership import SESSION_VARIABLE
from slurm_cluster.rehearsal.paths import SessionPaths
from slurm_cluster.rehearsal.sessions import choose

PROJECT = Path(__file__).parents[2]


@dataclass
class SessionProcess:
    """A running ``python -m slurm_cluster.rehearsal``.

    Args:
        process: the supervisor.
        log: its output, standard error included.
    """

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text()

    @property
    def paths(self) -> SessionPaths:
        """Its session."""
        match = re.search(r" session ([0-9a-f]{4})$", self.output, re.MULTILINE)
        assert match, self.output
        return SessionPaths(match[1])

    def wait_for(self, pattern: str, *, seconds: float) -> re.Match[str]:
        """Wait until its output matches."""
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.output, re.MULTILINE)):
            assert self.process.poll() is None, f"ended before {pattern!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {pattern!r}\n{self.output}"
            time.sleep(0.1)
        return match

    def wait(self, *, seconds: float) -> int:
        """Wait for its end and return its exit status."""
        return self.process.wait(seconds)

    def left(self) -> list[str]:
        """Return what its session has on this machine, its lock file included."""
        paths = self.paths
        return [*sweep.find(paths), *([str(paths.lock)] if paths.lock.exists() else [])]

    def down(self) -> None:
        """Remove its session, which may live on after the process."""
        with contextlib.suppress(RehearsalError):  # it has removed itself
            choose(self.paths.session).end(120)


@contextmanager
def session_process(log: Path, app_dir: Path = PROJECT, *options: str, verb: str = "run") -> Iterator[SessionProcess]:
    """Start a rehearsal of ``app_dir``; one that still runs at the end is told to stop."""
    environment = {name: value for name, value in os.environ.items() if name != SESSION_VARIABLE}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "slurm_cluster.rehearsal", verb, "--app", str(app_dir), *options],
            cwd=PROJECT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield SessionProcess(process, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
