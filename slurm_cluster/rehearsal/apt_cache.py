"""The cache of Debian packages that nodes of stock images install through: apt-cacher-ng, one for all sessions.

Two of it may not share a directory. So it belongs to no session: whoever needs it holds ``users.lock`` shared, the
first one starts ``apt_cache_daemon``, and that ends when it gets the lock for itself, which the kernel grants as well
when the holders were killed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from slurm_cluster.rehearsal import apt_cache_daemon
from slurm_cluster.rehearsal.ownership import SESSION_VARIABLE
from slurm_cluster.rehearsal.paths import cache_dir

_START_SECONDS = 30.0
_POLL_SECONDS = 0.05
_PACKAGE_ROOT = Path(__file__).parents[2]


class AptCacheError(RuntimeError):
    """apt-cacher-ng does not run; the message ends with its log."""


class AptCache:
    """The cache, kept running from here to ``stop``.

    Args:
        directory: where it keeps packages and files of its own; by default in the rehearsal's cache directory.

    Raises:
        AptCacheError: it did not start.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or cache_dir() / "apt"
        self._directory.mkdir(parents=True, exist_ok=True)
        with _locked(self._directory / "start.lock"):
            self._users = (self._directory / apt_cache_daemon.USERS).open("a")
            try:
                # Waits while a daemon that nobody held any more ends.
                fcntl.flock(self._users, fcntl.LOCK_SH)
                self.port = self._running() or self._start()
            except BaseException:
                self._users.close()
                raise

    def stop(self) -> None:
        """Let it go; it ends unless somebody else holds it."""
        self._users.close()

    def _running(self) -> int | None:
        """Return the port of the daemon that runs, if one does and answers."""
        with (self._directory / apt_cache_daemon.DAEMON).open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                port = int(lock.read() or 0)
                return port if port and _answers(port) else None
            # None runs. What a killed one served may end later than it, and must not be taken for the next one's.
            lock.truncate(0)
        return None

    def _start(self) -> int:
        log = self._directory / "daemon.log"
        with log.open("wb") as output:
            daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", apt_cache_daemon.__name__, str(self._directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # It outlives this session, whose end kills everything that bears its mark.
                env={
                    **{name: value for name, value in os.environ.items() if name != SESSION_VARIABLE},
                    "PYTHONPATH": str(_PACKAGE_ROOT),
                },
                cwd="/",
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_SECONDS
        while (port := self._running()) is None:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise AptCacheError(f"apt-cacher-ng did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(_POLL_SECONDS)
        return port


@contextmanager
def _locked(path: Path) -> Iterator[IO[str]]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
