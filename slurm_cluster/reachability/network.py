"""A network as packets see it: groups and their rules, network ACLs, subnets, and the machines in them.

Made from templates or from a live account; what nobody knows is a ``Token`` or is marked as incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Network

from slurm_cluster.model.flows import PortRange
from slurm_cluster.reachability.proof import Direction, FoundRule
from slurm_cluster.reachability.values import Id, Token

Cidr = IPv4Network | IPv6Network | Token


@dataclass(frozen=True)
class GroupPeer:
    """The members of a security group."""

    group: Id


@dataclass(frozen=True)
class CidrPeer:
    """The addresses of a range."""

    cidr: Cidr


@dataclass(frozen=True)
class PrefixListPeer:
    """The addresses of a prefix list."""

    id: Id


Peer = GroupPeer | CidrPeer | PrefixListPeer


@dataclass(frozen=True, kw_only=True)
class GroupRule:
    """One rule of a security group.

    Args:
        found: the rule as it is reported.
        group: the group that has it.
        protocol: ``tcp``, ``udp``, another protocol's name, ``-1`` for all, or a token.
        ports: its ports; None for all, a token where they are not known.
        peer: who is let in, or where to.
    """

    found: FoundRule
    group: Id
    protocol: str | Token
    ports: PortRange | Token | None
    peer: Peer

    @property
    def direction(self) -> Direction:
        """Whether it lets in or out."""
        return self.found.direction


@dataclass(frozen=True, kw_only=True)
class Group:
    """One security group.

    Args:
        id: its identity.
        name: as written: logical id or sg-....
        complete: whether all of its rules are in ``Network.rules``; False for a group that was made elsewhere.
        vpc: its VPC, where known.
        allows_all_egress: whether the rule that EC2 gives every new group (everything may go out) is in force and not
            among ``Network.rules``.
        template: the template that makes it; empty where none does.
        words: what else it is called: group name, Name tag, description.
        extended_by: nested stack that is given the group and may add rules to it, and whose template nobody gave;
            empty where there is none.
    """

    id: Id
    name: str
    complete: bool
    vpc: Id | None = None
    allows_all_egress: bool = False
    template: str = ""
    words: tuple[str, ...] = ()
    extended_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One machine, or many alike.

    Args:
        name: as written: logical id or i-....
        kind: ``instance``, ``network interface``, ``launch template``, ``auto scaling group``.
        groups: security groups of its primary network interface.
        subnets: the subnets it may be in; empty where unknown.
        many: whether it stands for several machines.
        address: its private address, where fixed.
        tags: its tags, those that a launch template gives its instances included.
        words: what else is written about it, its user data for example.
        template: the template that makes it.
    """

    name: str
    kind: str
    groups: tuple[Id, ...]
    subnets: tuple[Id, ...] = ()
    many: bool = False
    address: IPv4Address | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    words: tuple[str, ...] = ()
    template: str = ""


@dataclass(frozen=True, kw_only=True)
class AclEntry:
    """One numbered entry of a network ACL; the lowest number that fits a packet decides."""

    number: int
    allow: bool
    direction: Direction
    protocol: str | Token
    ports: PortRange | Token | None
    cidr: Cidr


@dataclass(frozen=True, kw_only=True)
class NetworkAcl:
    """One network ACL; what no entry fits is denied.

    Args:
        id: its identity.
        name: as written.
        entries: in any order.
        complete: whether all entries are known.
        template: the template that makes it.
    """

    id: Id
    name: str
    entries: tuple[AclEntry, ...]
    complete: bool = True
    template: str = ""


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """One subnet.

    Args:
        id: its identity.
        name: as written.
        cidr: its IPv4 addresses; None where unknown.
        vpc: its VPC; None where unknown.
        acl: its network ACL; None where unknown: then it is taken to be a VPC's default one, which admits everything,
            and the proof says so.
    """

    id: Id
    name: str
    cidr: Cidr | None = None
    vpc: Id | None = None
    acl: Id | None = None


@dataclass(frozen=True, kw_only=True)
class Vpc:
    """One VPC.

    Args:
        id: its identity.
        cidrs: all its IPv4 ranges; empty where not all of them are known.
    """

    id: Id
    cidrs: tuple[Cidr, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reference:
    """How a stack's template writes an id.

    Args:
        stack: name of the stack.
        template: name of its template.
        value: a CloudFormation value in JSON.
    """

    stack: str
    template: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Network:
    """All of it. A group, subnet, prefix list or ACL that is not in the mappings is one of which nothing is known."""

    groups: Mapping[Id, Group]
    rules: tuple[GroupRule, ...]
    members: tuple[Member, ...]
    subnets: Mapping[Id, Subnet] = field(default_factory=dict)
    vpcs: Mapping[Id, Vpc] = field(default_factory=dict)
    acls: Mapping[Id, NetworkAcl] = field(default_factory=dict)
    prefix_lists: Mapping[Id, tuple[Cidr, ...]] = field(default_factory=dict)
    references: Mapping[Id, tuple[Reference, ...]] = field(default_factory=dict)

    @cached_property
    def _by_direction(self) -> Mapping[Direction, tuple[GroupRule, ...]]:
        return {way: tuple(rule for rule in self.rules if rule.direction is way) for way in Direction}

    def rules_of(self, direction: Direction) -> tuple[GroupRule, ...]:
        """Return the rules that look one way."""
        return self._by_direction[direction]


PROTOCOLS = {"6": "tcp", "17": "udp", "1": "icmp", "58": "icmpv6"}
"""Names of protocols that rules may give by number."""


def protocol_name(protocol: str | int | Token) -> str | Token:
    """Return a protocol as rules are compared: ``tcp`` also where it is written ``6`` or ``TCP``."""
    if isinstance(protocol, Token):
        return protocol
    name = str(protocol).lower()
    return "-1" if name == "all" else PROTOCOLS.get(name, name)


def group_rule(
    *,
    rule_id: str,
    template: str,
    group: Id,
    direction: Direction,
    protocol: str | int | Token,
    ports: PortRange | Token | None,
    peer: Peer,
) -> GroupRule:
    """Return a rule and how it is reported; arguments as in ``GroupRule`` and ``FoundRule``."""
    name = protocol_name(protocol)
    known = ports if isinstance(ports, PortRange) else None
    who = {GroupPeer: "group", CidrPeer: "cidr", PrefixListPeer: "id"}[type(peer)]
    peer_text = str(getattr(peer, who))
    what = "all protocols" if name == "-1" else str(name).upper()
    which = "" if name == "-1" else f" {ports}" if ports is not None else " all ports"
    way = "in" if direction is Direction.INGRESS else "out"
    to = "from" if direction is Direction.INGRESS else "to"
    found = FoundRule(
        id=rule_id,
        template=template,
        group=str(group),
        direction=direction,
        protocol=str(name),
        ports=known,
        peer=peer_text,
        text=f"{group} lets {way} {what}{which} {to} {peer_text}",
    )
    return GroupRule(found=found, group=group, protocol=name, ports=ports, peer=peer)
