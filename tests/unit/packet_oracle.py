"""What AWS does with packets, one packet at a time: the oracle of the reachability proof.

Written from AWS's documentation of security groups and network ACLs and not from the code under test, of which it uses
nothing. Everything is known here: addresses, rules, members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

EPHEMERAL = (32768, 60999)
"""From which ports Linux opens connections, ip-sysctl.txt ip_local_port_range."""


@dataclass(frozen=True)
class Rule:
    """One rule of a group; peer is a group's name, a CIDR, or several CIDRs (a prefix list)."""

    egress: bool
    protocol: str
    first: int
    last: int
    peer: str | tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """A security group; without any outbound rule, EC2 gave it one for everything."""

    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Entry:
    """One entry of a network ACL."""

    number: int
    allow: bool
    egress: bool
    protocol: str
    first: int
    last: int
    cidr: str


@dataclass(frozen=True)
class Subnet:
    """A subnet; entries are None where it has the default network ACL."""

    name: str
    cidr: str
    entries: tuple[Entry, ...] | None


@dataclass(frozen=True)
class Host:
    """A machine."""

    name: str
    role: str
    address: str
    subnet: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Cloud:
    """All of it."""

    groups: tuple[Group, ...]
    subnets: tuple[Subnet, ...]
    hosts: tuple[Host, ...]

    def is_open(self, opener: str, listener: str, first: int, last: int) -> bool:
        """Return whether every host of one role gets through to every other host of another, on all the ports."""
        return all(
            self.connects(one, other, port)
            for one in self.hosts
            if one.role == opener
            for other in self.hosts
            if other.role == listener and other is not one
            for port in self._ports(first, last)
        )

    def connects(self, opener: Host, listener: Host, port: int) -> bool:
        """Return whether a SYN arrives and its answer comes back, whichever port the opener has picked."""
        return (
            self._group_allows(opener, listener, port, egress=True)
            and self._group_allows(listener, opener, port, egress=False)
            and self._acl_carries(opener, listener, port)
            # security groups remember the connection, network ACLs do not
            and all(self._acl_carries(listener, opener, back) for back in self._ports(*EPHEMERAL))
        )

    def _ports(self, first: int, last: int) -> Iterator[int]:
        """Yield a port of each stretch in which all rules treat every port alike: none changes its mind in between."""
        edges = {first, last}
        for group in self.groups:
            for rule in group.rules:
                edges |= {rule.first, rule.last + 1}
        for subnet in self.subnets:
            for entry in subnet.entries or ():
                edges |= {entry.first, entry.last + 1}
        yield from sorted(edge for edge in edges if first <= edge <= last)

    def _group_allows(self, guarded: Host, peer: Host, port: int, *, egress: bool) -> bool:
        for group in self.groups:
            if group.name not in guarded.groups:
                continue
            rules = [rule for rule in group.rules if rule.egress == egress]
            if egress and not rules:
                return True
            for rule in rules:
                if rule.protocol == "-1" or (rule.protocol == "tcp" and rule.first <= port <= rule.last):
                    named = rule.peer if isinstance(rule.peer, tuple) else (rule.peer,)
                    if any(name in peer.groups or _holds(name, peer.address) for name in named):
                        return True
        return False

    def _acl_carries(self, sender: Host, receiver: Host, port: int) -> bool:
        if sender.subnet == receiver.subnet:
            return True
        out = self._acl_allows(sender.subnet, receiver.address, port, egress=True)
        return out and self._acl_allows(receiver.subnet, sender.address, port, egress=False)

    def _acl_allows(self, subnet: str, address: str, port: int, *, egress: bool) -> bool:
        entries = next(item.entries for item in self.subnets if item.name == subnet)
        if entries is None:
            return True
        for entry in sorted(_of(entries, egress), key=lambda item: item.number):
            matches = entry.protocol == "-1" or (entry.protocol == "tcp" and entry.first <= port <= entry.last)
            if matches and _holds(entry.cidr, address):
                return entry.allow
        return False


def _of(entries: Iterable[Entry], egress: bool) -> Iterator[Entry]:
    return (entry for entry in entries if entry.egress == egress)


def _holds(cidr: str, address: str) -> bool:
    return "/" in cidr and ip_address(address) in ip_network(cidr)
