"""Control groups of nodes, on either kind of host: with cgroup v2 alone, or with cgroup v1 controllers beside it."""

from __future__ import annotations

from slurm_cluster.rehearsal.cgroups import v1, v2
from slurm_cluster.rehearsal.cgroups.node import ROOT, NodeCgroups, Version, is_alive

__all__ = ["NodeCgroups", "Version", "is_alive", "names", "of_node", "problems", "version"]


def version() -> Version:
    """Return which cgroup version has this machine's controllers, and so which of its plugins Slurm runs with."""
    return 2 if (ROOT / "cgroup.controllers").exists() else 1


def problems() -> list[str]:
    """Return why nodes cannot get control groups on this machine; empty when they can."""
    return v2.problems() if version() == 2 else v1.problems()


def names(prefix: str) -> list[str]:
    """Return the names of nodes that have control groups and begin with ``prefix``."""
    return v2.names(prefix) if version() == 2 else v1.names(prefix)


def of_node(name: str) -> NodeCgroups:
    """Return the groups of the node ``name``, whether they are there or not."""
    return v2.NodeCgroupsV2(name) if version() == 2 else v1.NodeCgroupsV1(name)
