"""Machines as packets see them: their groups, and where their addresses are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses

from slurm_cluster.reachability.network import Cidr, CidrPeer, GroupPeer, Member, Network, Peer, Subnet
from slurm_cluster.reachability.values import Id, Token, among, same

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
        subnet: their subnet; None where unknown.
        within: sets of address ranges; each set holds their addresses.
    """

    members: tuple[Member, ...]
    groups: tuple[Id, ...]
    subnet: Subnet | None
    within: tuple[tuple[Cidr, ...], ...]

    @property
    def name(self) -> str:
        """What to call them in a sentence."""
        return self.members[0].name

    @property
    def several(self) -> bool:
        """Whether there may be more than one of them."""
        return len(self.members) > 1 or self.members[0].many


def endpoints(network: Network, members: Sequence[Member]) -> tuple[Endpoint, ...]:
    """Return the kinds of machines among the members, one for each subnet they may be in."""
    alike: dict[tuple[tuple[Id, ...], Id | None, object], list[Member]] = {}
    for member in members:
        for subnet in member.subnets or (None,):
            alike.setdefault((member.groups, subnet, member.address), []).append(member)
    return tuple(_endpoint(network, tuple(found), subnet) for (_, subnet, _), found in alike.items())


def _endpoint(network: Network, members: tuple[Member, ...], subnet_id: Id | None) -> Endpoint:
    first = members[0]
    subnet = None
    if subnet_id is not None:
        subnet = network.subnets.get(subnet_id) or Subnet(id=subnet_id, name=str(subnet_id))
    within: list[tuple[Cidr, ...]] = []
    if first.address is not None:
        within.append((IPv4Network(first.address),))
    if subnet is not None and subnet.cidr is not None:
        within.append((subnet.cidr,))
    vpc_id = subnet.vpc if subnet else None
    for group in first.groups:
        vpc_id = vpc_id or (network.groups[group].vpc if group in network.groups else None)
    vpc = network.vpcs.get(vpc_id) if vpc_id is not None else None
    if vpc is not None and vpc.cidrs:
        within.append(vpc.cidrs)
    return Endpoint(members=members, groups=first.groups, subnet=subnet, within=tuple(within))


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
