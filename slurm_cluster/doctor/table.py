"""Nodes as slurmctld lists them, and which of them can be visited."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurm_cluster.model.node_states import ASLEEP
from slurm_cluster.runtime.node import node_table
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.node_table import NodeState

_FIELD = re.compile(r"\b(NodeName|Version|Partitions|CPUAlloc|CPUTot|RealMemory|SlurmdStartTime)=(\S+)")
_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node (scontrol(1) show node).

    Args:
        name: its NodeName.
        state: what slurmctld thinks of it.
        version: release of its slurmd, empty if it has never registered.
        partitions: those it is in.
        cpus: how many it has.
        allocated: how many of them jobs have.
        memory: RealMemory, MiB.
        started: when its slurmd was started, seconds since the epoch; 0 if unknown.
    """

    name: str
    state: NodeState
    version: str
    partitions: tuple[str, ...]
    cpus: int
    allocated: int
    memory: int
    started: float

    @property
    def asleep(self) -> bool:
        """Whether power saving has it switched off, or it does not exist yet: a job would start a machine."""
        return bool(self.state.flags & ASLEEP)

    @property
    def why_not(self) -> str:
        """Why no job of the doctor could start on it now, empty if one can."""
        if self.asleep:
            return "it is switched off by power saving"
        if not self.state.serves:
            return f"slurmctld has it as {self.state.state}"
        if self.state.kept_back or "COMPLETING" in self.state.flags:
            return f"slurmctld starts no job there ({self.state.state})"
        if not self.partitions:
            return "it is in no partition"
        if self.allocated >= self.cpus:
            return "it is busy with users' jobs"
        return ""


def read(run: Runner) -> dict[str, Node]:
    """Return the nodes by name.

    Raises:
        CommandError: slurmctld does not answer.
    """
    return parse(run(["scontrol", "--oneliner", "show", "nodes"], timeout=_SECONDS).stdout)


def parse(text: str) -> dict[str, Node]:
    """Return the nodes by name from ``scontrol --oneliner show nodes``."""
    states = node_table.parse(text)
    found = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(node_table.without_free_text(line)))
        if (name := fields.get("NodeName")) in states:
            found[name] = Node(
                name=name,
                state=states[name],
                version=_known(fields.get("Version", "")),
                partitions=tuple(part for part in _known(fields.get("Partitions", "")).split(",") if part),
                cpus=int(fields.get("CPUTot", "0")),
                allocated=int(fields.get("CPUAlloc", "0")),
                memory=int(fields.get("RealMemory", "0")),
                started=seconds(fields.get("SlurmdStartTime", "")),
            )
    return found


def _known(text: str) -> str:
    return "" if text in ("(null)", "N/A") else text


def seconds(text: str) -> float:
    """Return a time that Slurm shows in seconds since the epoch, 0 where it shows none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def expanded(run: Runner, wanted: Sequence[str]) -> list[str]:
    """Return the names in hostlist expressions such as ``node[1-3]``; one that is none stays as it is."""
    found: list[str] = []
    for text in wanted:
        names = [text]
        if "[" in text or "," in text:
            try:
                names = run(["scontrol", "show", "hostnames", text], timeout=_SECONDS).stdout.split()
            except CommandError:
                names = text.split(",") if "[" not in text else [text]
        found += names
    return list(dict.fromkeys(found))


def in_order(nodes: Iterable[Node], wanted: Sequence[str]) -> list[Node]:
    """Return the nodes to look at, those with trouble first.

    Args:
        nodes: all there are.
        wanted: names of those to look at, all if empty.
    """
    chosen = [node for node in nodes if (not wanted or node.name in wanted) and (wanted or not node.asleep)]
    return sorted(chosen, key=lambda node: node.state.serves and not node.state.kept_back)
