"""Names of partitions and nodes.

A static worker is ``<partition>-static-<n>`` and an elastic one ``<partition>-<n>``, so no two partitions can ever
claim the same node name: a partition name does not end in ``-static`` and node numbers hold digits only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PARTITION_NAME = re.compile(r"[a-z][a-z0-9-]{0,24}")
_RESERVED = ("all", "default")
_CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def partition_name_problem(name: object) -> str | None:
    """Return what is wrong with ``name`` as a partition name, or None."""
    if not isinstance(name, str) or not PARTITION_NAME.fullmatch(name):
        return (
            f"partition name {name!r} is not allowed: "
            "use 1 to 25 lower-case letters, digits and hyphens, a letter first"
        )
    if name in _RESERVED:
        return f"partition name {name!r} is a keyword of slurm.conf (ALL, DEFAULT): choose another"
    if name.endswith("-static"):
        return f"partition name {name!r} is not allowed: it must not end in '-static', the ending of static node names"
    return None


def cluster_name_problem(name: object) -> str | None:
    """Return what is wrong with ``name`` as slurm.conf's ClusterName, or None.

    Forty characters is where accounting databases stop (slurm.conf(5) ClusterName, accounting guide).
    """
    if not isinstance(name, str) or not _CLUSTER_NAME.fullmatch(name):
        return (
            f"cluster name {name!r} is not allowed: "
            "use 1 to 40 lower-case letters, digits, hyphens and underscores, a letter or digit first"
        )
    return None


def static_node_name(partition: str, number: int) -> str:
    """Return the Slurm node name of static worker ``number``, counted from 1."""
    return f"{partition}-static-{number}"


def static_node_names(partition: str, count: int) -> tuple[str, ...]:
    """Return the Slurm node names of ``count`` static workers."""
    return tuple(static_node_name(partition, number) for number in range(1, count + 1))


def static_node_list(partition: str, count: int) -> str:
    """Return the same names as a host list expression, the form that slurm.conf(5) NodeName takes."""
    return static_node_name(partition, 1) if count == 1 else f"{partition}-static-[1-{count}]"


def duplicates(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that occur more than once, in the order of their second occurrence."""
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for name in names:
        if name in seen:
            twice[name] = None
        seen.add(name)
    return tuple(twice)
