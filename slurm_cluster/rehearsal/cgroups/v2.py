"""Hosts with cgroup v2 alone, as every present distribution boots: a node gets a part of that tree with controllers.

Its systemd and its slurmd, with Slurm's cgroup/v2 plugin, manage that part as they would manage a machine's whole tree.
Where systemd runs the host, each group has one writer: a node then has a scope unit with delegation, made by systemd,
so that systemd neither changes nor removes what is below it (systemd's CGROUP_DELEGATION).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from slurm_cluster.rehearsal.cgroups.node import ROOT, NodeCgroups, enter

_NEEDED = ("cpuset", "cpu", "memory")
"""Controllers without which slurmd does not start as the product configures it."""

_WANTED = (*_NEEDED, "pids")
_SLICE = "machine.slice"
_SCOPE = ".scope"
_OWN_GROUPS = Path("/proc/self/cgroup")
_SYSTEMD_RUNS = Path("/run/systemd/system")
"""A directory where systemd is this machine's init, see sd_booted(3)."""


def problems() -> list[str]:
    """Return why nodes cannot get control groups on this machine; empty when they can."""
    return [*_kernel_problems(), *_v1_problems(), *(() if _systemd_runs() else _root_problems())]


def _kernel_problems() -> list[str]:
    found = []
    missing = [name for name in _NEEDED if name not in _controllers("cgroup.controllers")]
    if missing:
        found.append(
            f"{ROOT} does not offer the controller {', '.join(missing)}: take what disables it, such as "
            "cgroup_disable=memory, from the kernel's command line"
        )
    groups = [path for path in ROOT.iterdir() if path.is_dir()]
    if groups and not any((group / "cgroup.kill").exists() for group in groups):
        found.append("the kernel has no cgroup.kill: use Linux 5.14 or newer")
    return found


def _v1_problems() -> list[str]:
    listed = [line for line in _OWN_GROUPS.read_text().splitlines() if not line.startswith("0::")]
    if not listed:
        return []
    return [
        f"cgroup v1 hierarchies are mounted beside cgroup v2 ({', '.join(line.split(':')[1] for line in listed)}) and "
        "slurmd starts with one version only: unmount them, see `findmnt --types cgroup`, or reboot"
    ]


def _root_problems() -> list[str]:
    """Return why a container without systemd cannot hand its controllers on."""
    # The real root group has no type, and may have both processes and controllers.
    inner = (ROOT / "cgroup.type").exists() and (ROOT / "cgroup.procs").read_text().strip()
    missing = [name for name in _NEEDED if name not in _controllers("cgroup.subtree_control")]
    if not inner or not missing:
        return []
    return [
        f"processes run in {ROOT}, which is not the root of cgroup v2, so {', '.join(missing)} cannot be handed on: "
        "move them into a group below it, or use a machine where systemd runs"
    ]


def names(prefix: str) -> list[str]:
    """Return the names of nodes that have groups and begin with ``prefix``."""
    scopes = (path.name.removesuffix(_SCOPE) for path in (ROOT / _SLICE).glob(f"{prefix}*{_SCOPE}"))
    return sorted({*scopes, *(path.name for path in ROOT.glob(f"{prefix}*"))})


class NodeCgroupsV2(NodeCgroups):
    """The one group of the node, with the controllers that this machine offers.

    It gets none of this machine's swap space: EC2 instances have none, and with it a job outgrows its memory limit.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._scoped = _systemd_runs()

    @property
    def unified(self) -> Path:
        """A scope of systemd's, or a group of its own right below the root."""
        return ROOT / _SLICE / f"{self.name}{_SCOPE}" if self._scoped else ROOT / self.name

    def create(self) -> None:
        """Make the group and hand the controllers on to it; where systemd runs, ``entry`` does that."""
        if self._scoped:
            return
        offered, enabled = _controllers("cgroup.controllers"), _controllers("cgroup.subtree_control")
        if wanted := [f"+{name}" for name in _WANTED if name in offered and name not in enabled]:
            (ROOT / "cgroup.subtree_control").write_text(" ".join(wanted))
        self.unified.mkdir(exist_ok=True)
        swap = self.unified / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")

    def entry(self) -> list[str]:
        """Enter the group; a scope is made by this, and ends with its last process."""
        if not self._scoped:
            return enter(self.unified)
        return [
            *("systemd-run", "--scope", "--quiet", "--collect", f"--unit={self.name}{_SCOPE}", f"--slice={_SLICE}"),
            # The node's own systemd limits its units, as on a machine of its own.
            *("--property=Delegate=yes", "--property=TasksMax=infinity", "--property=MemorySwapMax=0", "--"),
        ]

    def remove(self) -> None:
        """Remove the group; a scope is also forgotten by systemd then, so that one of its name can be made again."""
        if self._scoped and self.unified.exists():
            # It may have ended by itself since.
            subprocess.run(["systemctl", "stop", "--quiet", self.unified.name], capture_output=True)
        super().remove()


def _systemd_runs() -> bool:
    return _SYSTEMD_RUNS.is_dir()


def _controllers(file: str) -> list[str]:
    return (ROOT / file).read_text().split()
