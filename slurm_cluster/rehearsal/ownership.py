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

    def sign(self) -> None:
        """Write this process into the lock file, for ``owner``."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

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
            owned.sign()
            return owned


def abandoned() -> Iterator[Ownership]:
    """Take the lock of each session whose owner is dead; the caller removes what it left and releases the lock."""
    for paths in _all():
        if owned := _take(paths, 0):
            os.ftruncate(owned.descriptor, 0)  # its owner is dead, and who sweeps does not own it
            yield owned


def living() -> dict[str, int]:
    """Return the pid of each living session's owner, by session id."""
    return {paths.session: pid for paths in _all() if (pid := owner(paths)) is not None}


def owner(paths: SessionPaths) -> int | None:
    """Return the pid of the process that owns a session; None if it is dead or there is no such session."""
    try:
        with paths.lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read() or 0) or None  # empty for a moment after its birth, and while it is swept
    except FileNotFoundError:
        pass
    return None


def _all() -> Iterator[SessionPaths]:
    for lock in sorted(STATE_ROOT.glob("*.lock")):
        try:
            yield SessionPaths(lock.stem)
        except ValueError:
            continue
