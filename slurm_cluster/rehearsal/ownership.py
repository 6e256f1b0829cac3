"""Who owns a session, and whether its owner still lives.

A session's lock file is made before anything else of it and removed after everything else. Its living owner holds it
with flock(2), which the kernel releases however the owner ends; so a lock that can be taken belongs to a dead session.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_cluster.rehearsal.paths import STATE_ROOT, SessionPaths, new_session

SESSION_VARIABLE = "SLURM_CLUSTER_REHEARSAL_SESSION"
"""In the environment of every process that a session starts on the host; how its processes are found."""


@dataclass(frozen=True)
class Ownership:
    """A held session lock."""

    paths: SessionPaths
    descriptor: int

    def release(self) -> None:
        """Give the session up; call it when nothing of the session is left."""
        self.paths.lock.unlink(missing_ok=True)
        os.close(self.descriptor)


def _take(paths: SessionPaths, flags: int) -> Ownership | None:
    try:
        descriptor = os.open(paths.lock, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except (FileExistsError, FileNotFoundError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and flock the former holder may have removed the file: then the lock is of no session.
        if paths.lock.stat().st_ino == os.fstat(descriptor).st_ino:
            return Ownership(paths, descriptor)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def claim() -> Ownership:
    """Begin a session under a new id and return its held lock."""
    STATE_ROOT.mkdir(parents=True, exist_ok=True)
    while True:
        paths = SessionPaths(new_session())
        if not paths.root.exists() and (owned := _take(paths, os.O_CREAT | os.O_EXCL)):
            return owned


def abandoned() -> Iterator[Ownership]:
    """Take the lock of each session whose owner is dead; the caller removes what it left and releases the lock."""
    for lock in sorted(STATE_ROOT.glob("*.lock")):
        try:
            paths = SessionPaths(lock.stem)
        except ValueError:
            continue
        if owned := _take(paths, 0):
            yield owned
