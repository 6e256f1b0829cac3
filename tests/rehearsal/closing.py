"""Closing one flow of the table on a rehearsed cluster, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from slurm_cluster.model.flows import Flow, PortRange
from slurm_cluster.rehearsal.session import Rehearsal


def own_ports(flow: Flow, flows: Iterable[Flow]) -> tuple[PortRange, ...]:
    """Return the ports of ``flow`` without the daemon ports that another row between the same roles is about.

    The wide srun range contains slurmctld's and slurmd's port. They have rules of their own: without the srun range's
    rule they are still open.
    """
    pair = (flow.opener, flow.listener)
    daemons = {
        other.ports.first
        for other in flows
        if other.id != flow.id and (other.opener, other.listener) == pair and other.ports.first == other.ports.last
    }
    parts = []
    first = flow.ports.first
    for port in sorted(port for port in daemons if first <= port <= flow.ports.last):
        if first < port:
            parts.append(PortRange(first, port - 1))
        first = port + 1
    if first <= flow.ports.last:
        parts.append(PortRange(first, flow.ports.last))
    return tuple(parts)


@contextmanager
def closed(rehearsal: Rehearsal, flow: Flow, flows: Iterable[Flow]) -> Iterator[None]:
    """Drop new connections of ``flow``, silently, while the block runs."""
    with ExitStack() as closures:
        for ports in own_ports(flow, flows):
            closures.enter_context(rehearsal.closed(replace(flow, ports=ports)))
        yield
