"""A network as packets see it: groups and their rules, network ACLs, subnets, and the machines in them.

Made from templates or from a live account; what nobody knows is a ``Token`` or is marked as incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        value: it as a CloudFormation value in JSON, for the code of a missing rule; empty for the text of ``name``.
        words: what else it is called: group name, Name tag, description.
    """

    id: Id
    name: str
    complete: bool
    vpc: Id | None = None
    allows_all_egress: bool = False
    template: str = ""
    value: str = ""
    words: tuple[str, ...] = ()


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
    tags: Mapping[str, str] = field(default_factory=dict)
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
        value: it as a CloudFormation value in JSON.
    """

    id: Id
    name: str
    entries: tuple[AclEntry, ...]
    complete: bool = True
    template: str = ""
    value: str = ""


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """One subnet.

    Args:
        id: its identity.
        name: as written.
        cidr: its IPv4 addresses; None where unknown.
        vpc: its VPC; None where unknown.
        acl: its network ACL; None for the VPC's default one, which is known to admit everything only where the
            template makes the VPC (or subnet) itself.
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
class Network:
    """All of it. A group, subnet, prefix list or ACL that is not in the mappings is one of which nothing is known."""

    groups: Mapping[Id, Group]
    rules: tuple[GroupRule, ...]
    members: tuple[Member, ...]
    subnets: Mapping[Id, Subnet] = field(default_factory=dict)
    vpcs: Mapping[Id, Vpc] = field(default_factory=dict)
    acls: Mapping[Id, NetworkAcl] = field(default_factory=dict)
    prefix_lists: Mapping[Id, tuple[Cidr, ...]] = field(default_factory=dict)
