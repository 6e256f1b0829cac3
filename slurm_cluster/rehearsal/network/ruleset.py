"""nftables rules of the VPC's router: pure functions from security groups to rule text, and back from its records.

Two tables share the work. ``guard`` is loaded once: it drops spoofed sources, passes what belongs to a connection,
serves the addresses that security groups do not filter, drops whatever nobody allowed, and records it. ``groups`` is
replaced as a whole, in one transaction, whenever a group or a member changes: it judges only packets that open
something, and leaves its verdict in the packet's mark. Without it nothing passes.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator

from slurm_cluster.rehearsal.network.addresses import METADATA, OUTSIDE, RESOLVER, Outside
from slurm_cluster.rehearsal.network.groups import Closure, GroupRule, GroupSnapshot, Reason, Refused, SecurityGroup

_ALLOWED = 1
_MARKS = {reason: number for number, reason in enumerate(Reason, start=2)}
_REASONS = {number: reason for reason, number in _MARKS.items()}
_RECORDS = 65536  # refused kinds that are told apart; later ones are still dropped
_ALL_PORTS = ((-1, -1), (0, 65535))

GUARD = f"""
table inet guard {{
  set resolvers {{ type ipv4_addr; elements = {{ {RESOLVER} }}; }}
  set refused_ports {{
    type ipv4_addr . ipv4_addr . inet_proto . inet_service . mark; flags dynamic; size {_RECORDS};
  }}
  set refused_others {{ type ipv4_addr . ipv4_addr . inet_proto . mark; flags dynamic; size {_RECORDS}; }}

  chain refuse_port {{
    update @refused_ports {{ ip saddr . ip daddr . meta l4proto . th dport . meta mark counter }} drop
  }}
  chain refuse {{
    meta l4proto {{ tcp, udp }} goto refuse_port
    update @refused_others {{ ip saddr . ip daddr . meta l4proto . meta mark counter }} drop
  }}
  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iifname "lo" accept
    fib saddr . iif oif missing drop
    meta mark set 0
    ct state new fib daddr type unicast fib daddr oif missing meta mark set {_MARKS[Reason.NO_ROUTE]} goto refuse
  }}
  chain input {{
    type filter hook input priority 10; policy drop;
    iifname "lo" accept
    ct state established,related accept
    ip daddr {METADATA} tcp dport 80 accept
    ip daddr @resolvers meta l4proto {{ tcp, udp }} th dport 53 accept
    meta mark {_ALLOWED} accept
    ct state new meta mark != 0 goto refuse
  }}
  chain forward {{
    type filter hook forward priority 10; policy drop;
    ct state established,related accept
    meta mark {_ALLOWED} accept
    ct state new goto refuse
  }}
}}
"""  # noqa: S608 - nftables, not SQL


def add_resolver(address: str) -> str:
    """Return the text that makes the guard pass DNS to ``address``."""
    return f"add element inet guard resolvers {{ {ipaddress.IPv4Address(address)} }}\n"


def render(snapshot: GroupSnapshot, closures: Iterable[Closure] = (), outside: Iterable[Outside] = OUTSIDE) -> str:
    """Return the ``groups`` table as text for ``nft -f``, which replaces the earlier one in one transaction.

    A packet that opens something passes if any egress rule of the sender's groups and any ingress rule of the
    receiver's groups allow it (VPC user guide, "Security group rules"). Answers need no rule.

    Args:
        snapshot: groups and members.
        closures: dropped first.
        outside: services beyond the VPC, which only egress rules decide about.
    """
    groups = sorted(snapshot.groups, key=lambda group: group.id)
    services = tuple(outside)
    lines = [
        "table inet groups",
        "delete table inet groups",
        "table inet groups {",
        *(f"  set {_set_name(group.id)} {{ type ipv4_addr; {_elements(snapshot, group.id)}}}" for group in groups),
        "  chain ingress {",
        *(f"    {line}" for line in _ingress(groups)),
        f"    {_verdict(_MARKS[Reason.INGRESS])}",
        "  }",
        "  chain egress {",
        *(f"    {line}" for line in _closed(closures)),
        *(f"    {line}" for line in _egress(groups)),
        f"    {_verdict(_MARKS[Reason.EGRESS])}",
        "  }",
        "  chain outside {",
        *(f"    {line}" for line in _outside(groups, services)),
        f"    {_verdict(_MARKS[Reason.EGRESS])}",
        "  }",
        "  chain forward {",
        "    type filter hook forward priority 0; policy accept;",
        "    ct state established,related accept",
        "    goto egress",
        "  }",
        "  chain input {",
        "    type filter hook input priority 0; policy accept;",
        "    ct state established,related accept",
        *(f"    ip daddr {item.address} {item.protocol} dport {item.port} goto outside" for item in services),
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)


def parse_refused(listing: str) -> list[Refused]:
    """Return what the guard recorded, in order of addresses, from ``nft --json list table inet guard``."""
    found = [
        _refused(element["elem"]["val"]["concat"], element["elem"]["counter"]["packets"])
        for item in json.loads(listing)["nftables"]
        if item.get("set", {}).get("name") in ("refused_ports", "refused_others")
        for element in item["set"].get("elem", ())
    ]
    return sorted(found, key=lambda item: (item.source, item.destination, item.protocol, item.port or 0, item.reason))


def _refused(value: list[str | int], packets: int) -> Refused:
    source, destination, protocol, *port, mark = value
    return Refused(
        source=str(source),
        destination=str(destination),
        protocol=str(protocol),
        port=int(port[0]) if port else None,
        reason=_REASONS[int(mark)],
        packets=packets,
    )


def _ingress(groups: Iterable[SecurityGroup]) -> Iterator[str]:
    for group in groups:
        for rule in group.ingress:
            yield f"ip daddr @{_set_name(group.id)} {_peer(rule, 'saddr', groups)}{_match(rule)}{_verdict(_ALLOWED)}"


def _egress(groups: Iterable[SecurityGroup]) -> Iterator[str]:
    for group in groups:
        for rule in group.egress:
            yield f"ip saddr @{_set_name(group.id)} {_peer(rule, 'daddr', groups)}{_match(rule)}goto ingress"


def _outside(groups: Iterable[SecurityGroup], services: Iterable[Outside]) -> Iterator[str]:
    for group in groups:
        for item in services:
            if any(_reaches(rule, item) for rule in group.egress):
                yield (
                    f"ip saddr @{_set_name(group.id)} ip daddr {item.address} "
                    f"{item.protocol} dport {item.port} {_verdict(_ALLOWED)}"
                )


def _reaches(rule: GroupRule, service: Outside) -> bool:
    if rule.peer_cidr is None or ipaddress.IPv4Address(service.address) not in ipaddress.IPv4Network(rule.peer_cidr):
        return False
    if rule.protocol == "-1":
        return True
    all_ports = (rule.first, rule.last) in _ALL_PORTS
    return rule.protocol == service.protocol and (all_ports or rule.first <= service.aws_port <= rule.last)


def _closed(closures: Iterable[Closure]) -> Iterator[str]:
    for item in closures:
        if item.opener_ips and item.listener_ips:
            openers, listeners = (", ".join(_sorted(ips)) for ips in (item.opener_ips, item.listener_ips))
            yield (
                f"ip saddr {{ {openers} }} ip daddr {{ {listeners} }} "
                f"tcp dport {item.ports} {_verdict(_MARKS[Reason.CLOSED])}"
            )


def _peer(rule: GroupRule, side: str, groups: Iterable[SecurityGroup]) -> str:
    if rule.peer_group is not None:
        # A group that vanished has no members, and no set to name.
        known = any(group.id == rule.peer_group for group in groups)
        return f"ip {side} @{_set_name(rule.peer_group)} " if known else f"ip {side} 0.0.0.0 "
    return "" if rule.peer_cidr == "0.0.0.0/0" else f"ip {side} {rule.peer_cidr} "


def _match(rule: GroupRule) -> str:
    ports = (rule.first, rule.last)
    if rule.protocol == "-1":
        return ""
    if rule.protocol in ("tcp", "udp"):
        return f"meta l4proto {rule.protocol} " if ports in _ALL_PORTS else f"{rule.protocol} dport {_span(*ports)} "
    if rule.protocol == "icmp" and rule.first != -1:
        code = "" if rule.last == -1 else f"icmp code {rule.last} "
        return f"icmp type {rule.first} {code}"
    return f"meta l4proto {rule.protocol} "


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _verdict(mark: int) -> str:
    # accept ends this table's base chain only; the guard's chains come later and read the mark.
    return f"meta mark set {mark} accept"


def _set_name(group_id: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "_", group_id)


def _elements(snapshot: GroupSnapshot, group_id: str) -> str:
    addresses = snapshot.addresses(group_id)
    return f"elements = {{ {', '.join(addresses)} }}; " if addresses else ""


def _sorted(addresses: Iterable[str]) -> list[str]:
    return sorted(addresses, key=ipaddress.IPv4Address)
