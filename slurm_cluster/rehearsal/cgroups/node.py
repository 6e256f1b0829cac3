"""What control groups do for a node, whatever the host: it starts in them, is looked at and is ended by them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

Version = Literal[1, 2]

ROOT = Path("/sys/fs/cgroup")
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.02
_ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@"'


class NodeCgroups(ABC):
    """The groups of one node.

    systemd-nspawn makes those of the node's systemd, ``payload``, and its own, ``supervisor``, below the group that it
    is started in; nodes started from one group would share them.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def unified(self) -> Path:
        """The group in the cgroup2 hierarchy that systemd-nspawn is started in."""

    @property
    def tops(self) -> tuple[Path, ...]:
        """The node's uppermost group in each hierarchy that has one."""
        return (self.unified,)

    @abstractmethod
    def create(self) -> None:
        """Prepare what ``entry`` needs; what is there stays."""

    @abstractmethod
    def entry(self) -> list[str]:
        """Return the command that starts systemd-nspawn in the groups; append its own command to it."""

    def binds(self) -> list[str]:
        """Return systemd-nspawn's ``--bind`` options for groups that the node would not see otherwise."""
        return []

    @property
    def kill_file(self) -> Path:
        """What kills all processes of the node when 1 is written to it; frozen v1 ones are left."""
        return self.unified / "cgroup.kill"

    def pids(self) -> Iterator[int]:
        """Yield the pids of the node's processes and of its nspawn; one may come several times."""
        for top in self.tops:
            for path in files(top, "cgroup.procs"):
                with contextlib.suppress(OSError):  # the group may end while it is read
                    yield from (int(line) for line in path.read_text().split())

    def init(self) -> int | None:
        """Return the pid of the node's init process on this machine; None before it runs."""
        return next(filter(_is_init, self.pids()), None)

    def unit_runs(self, unit: str) -> bool:
        """Return whether the node's system unit, e.g. ``munge.service``, has a process."""
        path = self.unified / "payload" / "system.slice" / unit / "cgroup.events"
        with contextlib.suppress(OSError):
            return "populated 1" in path.read_text()
        return False

    def kill(self) -> None:
        """Kill every process of the node, frozen ones included, and wait until they are dead.

        Raises:
            TimeoutError: one is still there after 5 seconds.
        """
        # A process leaves its group before it has ended.
        pids = set(self.pids())
        with contextlib.suppress(FileNotFoundError):
            self.kill_file.write_text("1")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while pids := {pid for pid in pids if is_alive(pid)}.union(self.pids()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {sorted(pids)} of {self.name} cannot be killed")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_PAUSE_SECONDS)

    def remove(self) -> None:
        """Remove the groups; their processes must be dead or dying.

        Raises:
            TimeoutError: a process is still there after 5 seconds.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while left := [top for top in self.tops if top.exists()]:
            for top in left:
                _remove_tree(top)
            if not any(top.exists() for top in left):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"control groups {', '.join(map(str, left))} still have processes: end them first")
            time.sleep(_PAUSE_SECONDS)


def enter(*groups: Path) -> list[str]:
    """Return the command that moves itself into ``groups`` and becomes the program that is appended."""
    return ["sh", "-ec", _ENTER, "sh", *(str(group / "cgroup.procs") for group in groups), "--"]


def files(top: Path, name: str) -> Iterator[Path]:
    """Yield the file of that name of each group; os.walk, unlike rglob, bears groups that end meanwhile."""
    for directory, _, found in os.walk(top):
        if name in found:
            yield Path(directory, name)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits for its parent to take note of its end does not."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _is_init(pid: int) -> bool:
    """Return whether ``pid`` is a systemd that is the first process of a pid namespace right below ours."""
    try:
        status = Path("/proc", str(pid), "status").read_text()
    except OSError:
        return False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return fields.get("Name") == "systemd" and fields.get("NSpid", "").split()[1:] == ["1"]


def _remove_tree(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # busy until its dead processes are gone
            Path(directory).rmdir()
