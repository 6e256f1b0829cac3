"""Finds and removes the namespaces of sessions, also of those that were killed.

Namespaces are all there is: both ends of every veth pair are made inside them and vanish with them.
"""

from __future__ import annotations

import re

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.paths import name

_SESSION_NAME = re.compile(r"sc([0-9a-f]{4})-.")


def sessions() -> list[str]:
    """Return the ids of the sessions that have namespaces, sorted."""
    return sorted({match[1] for netns in namespace.names() if (match := _SESSION_NAME.match(netns))})


def find(session: str) -> list[str]:
    """Return what the session still has, a line each."""
    return [f"network namespace {netns}" for netns in namespace.names(name(session))]


def remove(session: str) -> None:
    """Remove the session's namespaces; those in use vanish when their last process ends."""
    for netns in namespace.names(name(session)):
        namespace.delete(netns)
