"""Machines as packets see them: their groups, and where their addresses are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses

from slurm_cluster.reachability.network import Cidr, CidrPeer, GroupPeer, Member, Network, Peer, Subnet
from slurm_cluster.reachability.values import Id, Token, among, same, unique

Answer = bool | str
"""Yes, no, or what one would have to know to tell."""

_ANYWHERE = IPv4Network("0.0.0.0/0")


def every(*answers: Answer) -> Answer:
    """Return whether all of them hold."""
    if False in answers:
        return False
    return " and ".join(dict.fromkeys(item for item in answers if isinstance(item, str))) or True


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Machines that no rule can tell apart.

    Args:
        members: which they are.
        groups: their security groups.
        subnets: their subnets, where known; more than one only if nothing is known of their network ACLs.
        within: sets of address ranges; each set holds their addresses.
    """

    members: tuple[Member, ...]
    groups: tuple[Id, ...]
    subnets: tuple[Subnet, ...]
    within: tuple[tuple[Cidr, ...], ...]

    @property
    def acl(self) -> Id | None:
        """The network ACL in front of them; None where unknown."""
        return self.subnets[0].acl if self.subnets else None

    @property
    def place(self) -> str:
        """Where they are, in words."""
        names = [subnet.name for subnet in self.subnets] or [f"that of {self.name}"]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    @property
    def name(self) -> str:
        """What to call them in a sentence."""
        return self.members[0].name

    @property
    def several(self) -> bool:
        """Whether there may be more than one of them."""
        return len(self.members) > 1 or self.members[0].many


def endpoints(network: Network, members: Sequence[Member]) -> tuple[Endpoint, ...]:
    """Return the kinds of machines among the members."""
    alike: dict[tuple[object, ...], list[tuple[Member, Subnet | None]]] = {}
    ranges: dict[tuple[object, ...], tuple[tuple[Cidr, ...], ...]] = {}
    for member in members:
        for subnet_id in member.subnets or (None,):
            subnet = None
            if subnet_id is not None:
                subnet = network.subnets.get(subnet_id) or Subnet(id=subnet_id, name=str(subnet_id))
            within = tuple(_within(network, member, subnet))
            guarded = subnet if subnet is not None and subnet.acl is not None else None
            kind = (member.groups, within, guarded)
            alike.setdefault(kind, []).append((member, subnet))
            ranges[kind] = within
    return tuple(
        Endpoint(
            members=unique(member for member, _ in found),
            groups=found[0][0].groups,
            subnets=unique(subnet for _, subnet in found if subnet is not None),
            within=ranges[kind],
        )
        for kind, found in alike.items()
    )


def _within(network: Network, member: Member, subnet: Subnet | None) -> Iterator[tuple[Cidr, ...]]:
    """Yield what is known of an address, the closest first."""
    if member.address is not None:
        yield (IPv4Network(member.address),)
    if subnet is not None and subnet.cidr is not None:
        yield (subnet.cidr,)
    vpc_id = subnet.vpc if subnet else None
    for group in member.groups:
        vpc_id = vpc_id or (network.groups[group].vpc if group in network.groups else None)
    vpc = network.vpcs.get(vpc_id) if vpc_id is not None else None
    if vpc is not None and vpc.cidrs:
        yield vpc.cidrs


def is_peer(network: Network, peer: Peer, endpoint: Endpoint) -> Answer:
    """Return whether a rule with this peer is about every one of an endpoint's machines."""
    if isinstance(peer, GroupPeer):
        return _in_group(peer.group, endpoint)
    if isinstance(peer, CidrPeer):
        return in_ranges((peer.cidr,), endpoint)
    entries = network.prefix_lists.get(peer.id)
    return in_ranges(entries, endpoint) if entries is not None else f"the entries of prefix list {peer.id}"


def _in_group(group: Id, endpoint: Endpoint) -> Answer:
    known = among(group, endpoint.groups)
    if known is not None:
        return known
    return f"whether {group} is {' or '.join(str(own) for own in endpoint.groups if same(group, own) is None)}"


def in_ranges(ranges: Sequence[Cidr], endpoint: Endpoint) -> Answer:
    """Return whether every address that the endpoint may have is in one of the ranges."""
    networks = list(collapse_addresses(item for item in ranges if isinstance(item, IPv4Network)))
    if _ANYWHERE in networks:
        return True
    tokens = [item for item in ranges if isinstance(item, Token)]
    for possible in endpoint.within:
        if all(_covered(item, networks, tokens) for item in possible):
            return True
    if not tokens:
        for possible in endpoint.within:
            known = [item for item in possible if isinstance(item, IPv4Network)]
            if len(known) == len(possible) and not any(one.overlaps(other) for one in known for other in networks):
                return False
        if not networks:
            return False  # IPv6 only: Slurm's connections are IPv4 unless it is told otherwise
    return f"whether the private address of {endpoint.name} is in {', '.join(map(str, ranges))}"


def _covered(item: Cidr, networks: Sequence[IPv4Network], tokens: Sequence[Token]) -> bool:
    if isinstance(item, Token):
        return item in tokens
    return any(isinstance(item, IPv4Network) and item.subnet_of(other) for other in networks)
