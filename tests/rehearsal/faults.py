"""What a fault of a live cluster is: how it is made and mended, and what must be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from slurm_cluster.runtime.verdict import Code
from tests.rehearsal.breakage import Breakage

HEAD, FIRST, SECOND, THIRD, FOURTH = "head", *(f"cpu-static-{number}" for number in range(1, 5))
"""The fourth worker is there in one round only."""


class Asked(StrEnum):
    """Who is asked what is wrong."""

    DOCTOR = "slurm-doctor"
    WATCH = "smoke test, waiting"
    """By what agents, consoles and bootstraps say."""

    PROBES = "smoke test, probing"
    TEST = "smoke test"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault.

    Args:
        name: what is wrong, for people.
        broken: breaks and mends it.
        code: the verdict that it must get.
        node: the machine that the verdict must name.
        words: part of the verdict's sentence.
        besides: verdicts that may follow, as they are true too.
    """

    name: str
    broken: Breakage
    code: Code
    node: str
    words: str
    besides: tuple[Code, ...] = ()

    @property
    def of_network(self) -> bool:
        """Whether the network is what is wrong."""
        return is_of_network(self.code)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Faults that are there at the same time.

    Args:
        faults: each on another machine, or in another flow.
        asked: who is asked.
    """

    faults: tuple[Fault, ...]
    asked: Asked = Asked.DOCTOR

    @property
    def name(self) -> str:
        """Its faults."""
        return " and ".join(fault.name for fault in self.faults)


def is_of_network(code: Code) -> bool:
    """Return whether a verdict blames the network: security groups, routes, packet filters."""
    return code.endswith("-blocked") or code in (Code.HOST_FIREWALL, Code.NODE_UNREACHABLE)
