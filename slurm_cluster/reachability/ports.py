"""Sets of ports, as sorted ranges that do not touch."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_cluster.model.flows import PortRange

Ports = tuple[PortRange, ...]


def union(ranges: Iterable[PortRange]) -> Ports:
    """Return the ports that are in any of the ranges."""
    merged: list[PortRange] = []
    for item in sorted(ranges):
        if merged and item.first <= merged[-1].last + 1:
            merged[-1] = PortRange(merged[-1].first, max(merged[-1].last, item.last))
        else:
            merged.append(item)
    return tuple(merged)


def minus(ports: Iterable[PortRange], taken: Iterable[PortRange]) -> Ports:
    """Return the ports of the first set that are not in the second."""
    left = list(union(ports))
    for hole in taken:
        left = [
            piece
            for item in left
            for piece in _pieces(
                (item.first, min(item.last, hole.first - 1)), (max(item.first, hole.last + 1), item.last)
            )
        ]
    return tuple(left)


def common(one: PortRange, other: PortRange) -> Ports:
    """Return the ports that are in both ranges."""
    return tuple(_pieces((max(one.first, other.first), min(one.last, other.last))))


def text(ports: Iterable[PortRange]) -> str:
    """Return them as one text, such as ``22, 1024-65535``."""
    return ", ".join(map(str, ports))


def _pieces(*bounds: tuple[int, int]) -> list[PortRange]:
    return [PortRange(first, last) for first, last in bounds if first <= last]
