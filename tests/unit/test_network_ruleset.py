"""The rule text; what the kernel makes of it is tested in real namespaces."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.model.flows import PortRange
from slurm_cluster.rehearsal.network.groups import (
    Closure,
    GroupRule,
    GroupSnapshot,
    Reason,
    Refused,
    SecurityGroup,
)
from slurm_cluster.rehearsal.network.ruleset import parse_refused, render

HEAD, WORKER = "10.0.0.10", "10.0.0.9"
ANYWHERE = GroupRule(protocol="-1", peer_cidr="0.0.0.0/0")
CLUSTER = GroupSnapshot(
    groups=(
        SecurityGroup(
            id="sg-0b",
            ingress=(GroupRule(protocol="tcp", first=6818, last=6818, peer_group="sg-0a"),),
            egress=(ANYWHERE,),
        ),
        SecurityGroup(
            id="sg-0a",
            ingress=(
                GroupRule(protocol="tcp", first=1024, last=65535, peer_group="sg-0b"),
                GroupRule(protocol="icmp", first=8, last=-1, peer_cidr="10.0.0.0/16"),
            ),
            egress=(GroupRule(protocol="tcp", first=0, last=65535, peer_group="sg-0b"),),
        ),
    ),
    members={HEAD: frozenset({"sg-0a"}), WORKER: frozenset({"sg-0b"}), "10.0.0.8": frozenset({"sg-0b"})},
)
CLOSURE = Closure(
    ports=PortRange(1024, 65535), opener_ips=frozenset({WORKER, "10.0.0.8"}), listener_ips=frozenset({HEAD})
)

EXPECTED = """\
table inet groups
delete table inet groups
table inet groups {
  set sg_0a { type ipv4_addr; elements = { 10.0.0.10 }; }
  set sg_0b { type ipv4_addr; elements = { 10.0.0.8, 10.0.0.9 }; }
  chain ingress {
    ip daddr @sg_0a ip saddr @sg_0b tcp dport 1024-65535 meta mark set 1 accept
    ip daddr @sg_0a ip saddr 10.0.0.0/16 icmp type 8 meta mark set 1 accept
    ip daddr @sg_0b ip saddr @sg_0a tcp dport 6818 meta mark set 1 accept
    meta mark set 3 accept
  }
  chain egress {
    ip saddr { 10.0.0.8, 10.0.0.9 } ip daddr { 10.0.0.10 } tcp dport 1024-65535 meta mark set 4 accept
    ip saddr @sg_0a ip daddr @sg_0b meta l4proto tcp goto ingress
    ip saddr @sg_0b goto ingress
    meta mark set 2 accept
  }
  chain outside {
    ip saddr @sg_0b ip daddr 192.0.2.1 tcp dport 4566 meta mark set 1 accept
    ip saddr @sg_0b ip daddr 192.0.2.2 tcp dport 3142 meta mark set 1 accept
    ip saddr @sg_0b ip daddr 192.0.2.3 tcp dport 443 meta mark set 1 accept
    ip saddr @sg_0b ip daddr 192.0.2.53 udp dport 53 meta mark set 1 accept
    ip saddr @sg_0b ip daddr 192.0.2.53 tcp dport 53 meta mark set 1 accept
    meta mark set 2 accept
  }
  chain forward {
    type filter hook forward priority 0; policy accept;
    ct state established,related accept
    goto egress
  }
  chain input {
    type filter hook input priority 0; policy accept;
    ct state established,related accept
    ip daddr 192.0.2.1 tcp dport 4566 goto outside
    ip daddr 192.0.2.2 tcp dport 3142 goto outside
    ip daddr 192.0.2.3 tcp dport 443 goto outside
    ip daddr 192.0.2.53 udp dport 53 goto outside
    ip daddr 192.0.2.53 tcp dport 53 goto outside
  }
}
"""


def test_rules_of_a_cluster_with_one_flow_closed() -> None:
    assert render(CLUSTER, [CLOSURE]) == EXPECTED


@given(st.permutations(CLUSTER.groups), st.permutations(list(CLUSTER.members.items())))
def test_order_of_the_answers_changes_nothing(
    groups: list[SecurityGroup], members: list[tuple[str, frozenset[str]]]
) -> None:
    shuffled = GroupSnapshot(groups=tuple(groups), members=dict(members))
    assert render(shuffled, [CLOSURE]) == EXPECTED


@given(st.sets(st.sampled_from(["sg-0a", "sg-0b"])), st.sets(st.sampled_from(sorted(CLUSTER.members))))
def test_only_sets_that_exist_are_named_whatever_vanished(groups: set[str], members: set[str]) -> None:
    left = GroupSnapshot(
        groups=tuple(group for group in CLUSTER.groups if group.id in groups),
        members={ip: CLUSTER.members[ip] for ip in members},
    )
    text = render(left)
    assert set(re.findall(r"@(\w+)", text)) <= set(re.findall(r"set (\w+) \{", text))


def test_rule_of_a_vanished_group_matches_nobody() -> None:
    without_workers = replace(CLUSTER, groups=(CLUSTER.groups[1],))
    assert "ip saddr 0.0.0.0 tcp dport 1024-65535" in render(without_workers)


def test_closure_without_addresses_closes_nothing() -> None:
    empty = Closure(ports=PortRange(1, 2), opener_ips=frozenset(), listener_ips=frozenset({HEAD}))
    assert render(CLUSTER, [empty]) == render(CLUSTER)


LISTING = """{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "inet", "name": "guard"}},
{"set": {"name": "resolvers", "elem": ["10.0.0.2"]}},
{"set": {"name": "refused_ports", "elem": [
  {"elem": {"val": {"concat": ["10.0.0.9", "10.0.0.10", "tcp", 40000, 3]}, "counter": {"packets": 7, "bytes": 420}}},
  {"elem": {"val": {"concat": ["10.0.0.8", "10.0.0.10", "udp", 53, 2]}, "counter": {"packets": 1, "bytes": 60}}}]}},
{"set": {"name": "refused_others", "elem": [
  {"elem": {"val": {"concat": ["10.0.0.8", "10.0.0.10", "icmp", 3]}, "counter": {"packets": 2, "bytes": 168}}}]}}]}"""


def test_records_are_read_back_in_order() -> None:
    def refused(source: str, protocol: str, port: int | None, reason: Reason, packets: int) -> Refused:
        return Refused(source=source, destination=HEAD, protocol=protocol, port=port, reason=reason, packets=packets)

    assert parse_refused(LISTING) == [
        refused("10.0.0.8", "icmp", None, Reason.INGRESS, 2),
        refused("10.0.0.8", "udp", 53, Reason.EGRESS, 1),
        refused("10.0.0.9", "tcp", 40000, Reason.INGRESS, 7),
    ]


@pytest.mark.parametrize("listing", ['{"nftables": []}', '{"nftables": [{"set": {"name": "refused_ports"}}]}'])
def test_no_record_is_no_refusal(listing: str) -> None:
    assert parse_refused(listing) == []
