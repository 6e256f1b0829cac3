"""Finds and removes all that a session has on this machine: at its own end, and after the death of its owner."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slurm_cluster.rehearsal import leftovers as machine_leftovers
from slurm_cluster.rehearsal.network import leftovers as network_leftovers
from slurm_cluster.rehearsal.ownership import SESSION_VARIABLE, abandoned
from slurm_cluster.rehearsal.paths import SessionPaths

_KILL_SECONDS = 5.0


def find(paths: SessionPaths) -> list[str]:
    """Return what the session still has, a line each; empty when nothing is left."""
    found = [f"process {pid}: {_command_line(pid)}" for pid in _processes(paths.session)]
    found += machine_leftovers.find(paths)
    found += network_leftovers.find(paths.session)
    if paths.root.exists():
        found.append(f"directory {paths.root}")
    return found


def remove(paths: SessionPaths) -> list[str]:
    """Remove all that the session has and return what resisted.

    Processes go first: they could make new objects, and a live one keeps its namespaces and mounts.
    """
    _kill(paths.session)
    machine_leftovers.remove(paths)
    network_leftovers.remove(paths.session)
    shutil.rmtree(paths.root, ignore_errors=True)
    return find(paths)


def sweep_abandoned(say: Callable[[str], None]) -> None:
    """Remove what sessions left whose owners were killed.

    Raises:
        RuntimeError: something of such a session cannot be removed; its lock stays, so that the next run tries again.
    """
    for owned in abandoned():
        say(f"session {owned.paths.session} was killed: removing what it left")
        left = remove(owned.paths)
        if left:
            os.close(owned.descriptor)
            raise RuntimeError(
                f"session {owned.paths.session} was killed and this of it cannot be removed:\n  " + "\n  ".join(left)
            )
        owned.release()


def _processes(session: str) -> Iterator[int]:
    mark = f"{SESSION_VARIABLE}={session}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                yield int(entry.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return "ended"


def _kill(session: str) -> None:
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        pids = list(_processes(session))
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
