"""Hosts with cgroup v1 controllers beside an empty cgroup2 hierarchy at ``unified`` ("hybrid").

A node's systemd runs in ``unified``; its slurmd is given groups of its own in the v1 hierarchies that Slurm's cgroup/v1
plugin uses. Memory is not among them: that hierarchy belongs to whoever runs this machine.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from slurm_cluster.rehearsal.cgroups.node import ROOT, NodeCgroups, enter, files

_SLURM = ("freezer", "cpuset", "devices")
_HIERARCHIES = ("unified", "systemd", *_SLURM)
_NODE_MOUNT = "/cg1"


def problems() -> list[str]:
    """Return why nodes cannot get control groups on this machine; empty when they can."""
    missing = [name for name in _HIERARCHIES if not (ROOT / name / "cgroup.procs").exists()]
    if not missing:
        return []
    return [
        f"{ROOT} has neither cgroup v2 alone nor, beside v1 controllers, the hierarchy {', '.join(missing)}: "
        "boot with cgroup v2, as systemd.unified_cgroup_hierarchy=1 on the kernel's command line does"
    ]


def names(prefix: str) -> list[str]:
    """Return the names of the control groups that begin with ``prefix``, in any hierarchy."""
    return sorted({path.name for hierarchy in _HIERARCHIES for path in (ROOT / hierarchy).glob(f"{prefix}*")})


class NodeCgroupsV1(NodeCgroups):
    """The groups called as the node, one in each hierarchy."""

    def _top(self, hierarchy: str) -> Path:
        return ROOT / hierarchy / self.name

    @property
    def unified(self) -> Path:
        """The group of the node's systemd; it has no controller."""
        return self._top("unified")

    @property
    def tops(self) -> tuple[Path, ...]:
        """One in each hierarchy."""
        return tuple(map(self._top, _HIERARCHIES))

    def create(self) -> None:
        """Make the groups; existing ones stay."""
        for top in self.tops:
            top.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # An empty cpuset takes no process, and its children could not be given anything.
            (self._top("cpuset") / setting).write_text((ROOT / "cpuset" / setting).read_text())

    def entry(self) -> list[str]:
        """Enter the two hierarchies that systemd-nspawn looks at, and have it mount cgroup2 alone in the node."""
        # Debian 13's systemd runs in nothing else.
        return [*enter(self.unified, self._top("systemd")), "env", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1"]

    def binds(self) -> list[str]:
        """Show Slurm's groups to the node; a drop-in of the image puts them where slurmd looks."""
        return [f"--bind={self._top(hierarchy)}:{_NODE_MOUNT}/{hierarchy}" for hierarchy in _SLURM]

    def kill(self) -> None:
        """Kill every process of the node, those that Slurm has frozen included; see ``NodeCgroups.kill``."""
        for path in files(self._top("freezer"), "freezer.state"):
            with contextlib.suppress(OSError):
                path.write_text("THAWED")
        super().kill()
