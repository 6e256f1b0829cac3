"""Control groups of one node.

Hosts that rehearse have cgroup v1 controllers beside an empty cgroup2 hierarchy at ``unified`` ("hybrid"). A node's
systemd runs in ``unified``; its slurmd is given groups of its own in the v1 hierarchies that Slurm's cgroup/v1 plugin
uses. Memory is not among them: that hierarchy belongs to whoever runs this machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_SLURM = ("freezer", "cpuset", "devices")
_HIERARCHIES = ("unified", "systemd", *_SLURM)
_NODE_MOUNT = "/cg1"
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.02


def problems() -> list[str]:
    """Return why nodes cannot get control groups on this machine; empty when they can."""
    missing = [name for name in _HIERARCHIES if not (ROOT / name / "cgroup.procs").exists()]
    if not missing:
        return []
    return [
        f"no cgroup hierarchy {', '.join(missing)} below {ROOT}: nodes need cgroup v1 controllers beside cgroup2; "
        "boot with systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=0"
    ]


def names(prefix: str) -> list[str]:
    """Return the names of the control groups that begin with ``prefix``, in any hierarchy."""
    return sorted({path.name for hierarchy in _HIERARCHIES for path in (ROOT / hierarchy).glob(f"{prefix}*")})


@dataclass(frozen=True)
class NodeCgroups:
    """The groups called ``name``, one in each hierarchy."""

    name: str

    def _top(self, hierarchy: str) -> Path:
        return ROOT / hierarchy / self.name

    def create(self) -> None:
        """Make the groups; existing ones stay."""
        for hierarchy in _HIERARCHIES:
            self._top(hierarchy).mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # An empty cpuset takes no process, and its children could not be given anything.
            (self._top("cpuset") / setting).write_text((ROOT / "cpuset" / setting).read_text())

    def entry_files(self) -> list[str]:
        """Return the files into which systemd-nspawn's process writes its pid before it starts.

        nspawn puts a node's groups below its own, so nodes started from one group would share theirs.
        """
        return [str(self._top(hierarchy) / "cgroup.procs") for hierarchy in ("unified", "systemd")]

    @property
    def kill_file(self) -> Path:
        """What kills all processes of the node but frozen ones when 1 is written to it."""
        return self._top("unified") / "cgroup.kill"

    def binds(self) -> list[str]:
        """Return systemd-nspawn's ``--bind`` options that show Slurm's groups to the node."""
        return [f"--bind={self._top(hierarchy)}:{_NODE_MOUNT}/{hierarchy}" for hierarchy in _SLURM]

    def pids(self) -> Iterator[int]:
        """Yield the pids of the node's processes and of its nspawn; one may come several times."""
        for hierarchy in _HIERARCHIES:
            for path in _files(self._top(hierarchy), "cgroup.procs"):
                with contextlib.suppress(OSError):  # the group may end while it is read
                    yield from (int(line) for line in path.read_text().split())

    def unit_runs(self, unit: str) -> bool:
        """Return whether the node's system unit, e.g. ``munge.service``, has a process."""
        path = self._top("unified") / "payload" / "system.slice" / unit / "cgroup.events"
        with contextlib.suppress(OSError):
            return "populated 1" in path.read_text()
        return False

    def kill(self) -> None:
        """Kill every process of the node, frozen ones included, and wait until they are dead.

        Raises:
            TimeoutError: one is still there after 5 seconds.
        """
        for path in _files(self._top("freezer"), "freezer.state"):
            with contextlib.suppress(OSError):
                path.write_text("THAWED")
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
        while left := [top for top in map(self._top, _HIERARCHIES) if top.exists()]:
            for top in left:
                _remove_tree(top)
            if not any(top.exists() for top in left):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"control groups {', '.join(map(str, left))} still have processes: end them first")
            time.sleep(_PAUSE_SECONDS)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits for its parent to take note of its end does not."""
    try:
        state = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _files(top: Path, name: str) -> Iterator[Path]:
    """Yield the file of that name of each group; os.walk, unlike rglob, bears groups that end meanwhile."""
    for directory, _, files in os.walk(top):
        if name in files:
            yield Path(directory, name)


def _remove_tree(top: Path) -> None:
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):  # busy until its dead processes are gone
            Path(directory).rmdir()
