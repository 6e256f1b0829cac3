"""What speaks for a machine being the head node or a worker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slurm_cluster.model.flows import PortRange, Role, SlurmPorts
from slurm_cluster.model.node_files import ROLE_TAG
from slurm_cluster.reachability.network import Group, Member, Network
from slurm_cluster.reachability.proof import Direction
from slurm_cluster.reachability.values import Id

_TAGS = {
    ROLE_TAG: {"head": Role.HEAD, "worker": Role.WORKER},
    "parallelcluster:node-type": {"HeadNode": Role.HEAD, "Master": Role.HEAD, "Compute": Role.WORKER},
}
_WORDS = {
    Role.HEAD: frozenset(("head", "master", "controller", "slurmctld", "slurmctl", "ctld", "scheduler", "management")),
    Role.WORKER: frozenset(("worker", "workers", "compute", "computes", "slurmd", "exec", "execute", "partition")),
}
_TAG, _SCRIPT, _OWN_NAME, _GROUP_NAME, _PORT, _MANY = 100, 12, 8, 6, 4, 1
_FEW_PORTS = 16
"""A rule for more ports than this says nothing about which daemon listens."""


@dataclass(frozen=True)
class Clue:
    """One thing that speaks for a role."""

    role: Role
    weight: int
    reason: str


def member_clues(network: Network, member: Member, ports: SlurmPorts) -> Iterator[Clue]:
    """Yield what speaks for a machine's role."""
    for tag, roles in _TAGS.items():
        value = member.tags.get(tag)
        if value in roles:
            yield Clue(roles[value], _TAG, f"its tag {tag} is {value}")
    if "slurmctld" in member.words:
        yield Clue(Role.HEAD, _SCRIPT, "its user data names slurmctld")
    elif "slurmd" in member.words:
        yield Clue(Role.WORKER, _SCRIPT, "its user data names slurmd")
    yield from _word_clues((member.name.rsplit("/", 1)[-1], member.tags.get("Name", "")), _OWN_NAME, "its name")
    for group_id in member.groups:
        yield from group_clues(network, group_id, ports)
    if member.many:
        yield Clue(Role.WORKER, _MANY, f"it is a {member.kind}")


def group_clues(network: Network, group_id: Id, ports: SlurmPorts) -> Iterator[Clue]:
    """Yield what speaks for the role of a security group's machines."""
    group = network.groups.get(group_id)
    yield from _word_clues(_names(group_id, group), _GROUP_NAME, f"the name of its security group {group_id}")
    for role, port in ((Role.HEAD, ports.slurmctld), (Role.WORKER, ports.slurmd)):
        if _listens(network, group_id, PortRange(port, port)):
            yield Clue(role, _PORT, f"its security group {group_id} lets in TCP {port}")


def _names(group_id: Id, group: Group | None) -> tuple[str, ...]:
    return (str(group_id).rsplit("/", 1)[-1], *(group.words if group else ()))


def _word_clues(names: Iterable[str], weight: int, what: str) -> Iterator[Clue]:
    """Yield what the first name that says anything says."""
    for name in names:
        words = _split(name)
        for role, known in _WORDS.items():
            found = sorted(known & words)
            if found and not any(words & others for other, others in _WORDS.items() if other is not role):
                yield Clue(role, weight, f"{what} says {found[0]}")
                return


def _split(name: str) -> set[str]:
    """Return the words of a name in camel case or with hyphens."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {part.lower() for part in parts}


def _listens(network: Network, group: Id, port: PortRange) -> bool:
    return any(
        rule.group == group
        and isinstance(rule.ports, PortRange)
        and rule.protocol == "tcp"
        and port in rule.ports
        and rule.ports.last - rule.ports.first < _FEW_PORTS
        for rule in network.rules_of(Direction.INGRESS)
    )
