"""slurmctld's node table: what state each node is in, and from where it has registered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_cluster.model.node_states import BUSY, KEPT_BACK, NOT_SERVING
from slurm_cluster.runtime.node.commands import CommandError, Runner

_FIELD = re.compile(r"\b(NodeName|NodeHostName|NodeAddr|State)=(\S+)")
_REASON = re.compile(r"\bReason=(.*)$")
_FREE_TEXT = re.compile(r" (?:Reason|Comment|Extra)=")


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """One node as slurmctld sees it (scontrol(1) show node).

    Args:
        host: host name that it has registered.
        address: address that it has registered; its own name before that.
        state: base state and flags, joined by ``+``.
        reason: why it is down or drained, and who said so.
    """

    host: str
    address: str
    state: str
    reason: str

    @property
    def flags(self) -> frozenset[str]:
        """Base state and flags."""
        return frozenset(self.state.split("+"))

    @property
    def serves(self) -> bool:
        """Whether it is registered and slurmctld reaches it, or believes so."""
        return not self.flags & NOT_SERVING

    @property
    def refused(self) -> bool:
        """Whether slurmctld did not accept what it registered."""
        return "INVALID_REG" in self.flags

    @property
    def kept_back(self) -> bool:
        """Whether somebody keeps it from running jobs."""
        return bool(self.flags & KEPT_BACK)

    @property
    def idle(self) -> bool:
        """Whether a job could start on it now."""
        return self.serves and not self.kept_back and "IDLE" in self.flags and "COMPLETING" not in self.flags

    @property
    def busy(self) -> bool:
        """Whether it serves and runs jobs."""
        return self.serves and bool(self.flags & BUSY)


def without_free_text(line: str) -> str:
    """Return a line without what people wrote in it, which may look like fields."""
    return _FREE_TEXT.split(line, maxsplit=1)[0]


def parse(text: str) -> dict[str, NodeState]:
    """Return the nodes by name from ``scontrol --oneliner show nodes``."""
    found: dict[str, NodeState] = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(without_free_text(line)))
        reason = _REASON.search(line)
        if "NodeName" in fields:
            found[fields["NodeName"]] = NodeState(
                host=fields.get("NodeHostName", ""),
                address=fields.get("NodeAddr", ""),
                state=fields["State"],
                reason=reason[1].strip() if reason else "",
            )
    return found


def read(run: Runner) -> dict[str, NodeState]:
    """Return the nodes by name, none while slurmctld does not answer."""
    try:
        return parse(run(["scontrol", "--oneliner", "show", "nodes"], timeout=60).stdout)
    except CommandError:
        return {}
