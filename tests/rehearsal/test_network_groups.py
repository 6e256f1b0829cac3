"""Security groups in real namespaces: what the kernel lets through is what EC2's rules say."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slurm_cluster.model.flows import ALL_TCP, PortRange
from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.groups import Closure, GroupRule, GroupSnapshot, Reason, SecurityGroup
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from tests.rehearsal.network_probes import (
    ANYWHERE,
    OTHER_SUBNET,
    SUBNET,
    Attempt,
    Prober,
    connect,
    is_dropped,
    network,
    open_to_all,
)

pytestmark = pytest.mark.rehearsal

PORTS = (6817, 6818, 40000)
HEAD, FIRST, SECOND, LONE = "10.0.0.10", "10.0.0.11", "10.0.1.12", "10.0.1.13"
ADDRESSES = (HEAD, FIRST, SECOND, LONE)
ATTEMPTS = tuple(
    Attempt(source, destination, protocol, port)
    for source, destination in itertools.permutations(ADDRESSES, 2)
    for protocol in ("tcp", "udp")
    for port in PORTS
)
GROUP_IDS = ("sg-01", "sg-02", "sg-03")


@pytest.fixture(scope="module")
def vpc() -> Iterator[VpcNetwork]:
    with network() as made:
        for number, ip in enumerate(ADDRESSES):
            made.attach(f"i-{number}", ip, SUBNET if ip.startswith("10.0.0.") else OTHER_SUBNET)
        yield made


@pytest.fixture(scope="module")
def nodes(vpc: VpcNetwork) -> dict[str, str]:
    return {ip: f"{vpc.router.removesuffix('vpc')}i-{number}" for number, ip in enumerate(ADDRESSES)}


@pytest.fixture(scope="module")
def prober(nodes: dict[str, str]) -> Iterator[Prober]:
    made = Prober(nodes, PORTS)
    yield made
    made.close()


def matches(rule: GroupRule, attempt: Attempt, peer: str, snapshot: GroupSnapshot) -> bool:
    if rule.protocol not in ("-1", attempt.protocol):
        return False
    if rule.protocol != "-1" and rule.first != -1 and not rule.first <= attempt.port <= rule.last:
        return False
    if rule.peer_group is not None:
        return rule.peer_group in snapshot.members.get(peer, frozenset())
    assert rule.peer_cidr is not None
    network_bits, _, length = rule.peer_cidr.partition("/")
    return bits(peer)[: int(length)] == bits(network_bits)[: int(length)]


def bits(ip: str) -> str:
    return "".join(f"{int(octet):08b}" for octet in ip.split("."))


def verdict(attempt: Attempt, snapshot: GroupSnapshot, closures: Iterable[Closure]) -> Reason | None:
    """The oracle: why EC2, or a closure, refuses an attempt; None if it passes."""
    for item in closures:
        between = attempt.source in item.opener_ips and attempt.destination in item.listener_ips
        if between and attempt.protocol == "tcp" and item.ports.first <= attempt.port <= item.ports.last:
            return Reason.CLOSED

    def rules(ip: str, direction: str) -> list[GroupRule]:
        own = snapshot.members.get(ip, frozenset())
        return [rule for group in snapshot.groups if group.id in own for rule in getattr(group, direction)]

    if not any(matches(rule, attempt, attempt.destination, snapshot) for rule in rules(attempt.source, "egress")):
        return Reason.EGRESS
    if not any(matches(rule, attempt, attempt.source, snapshot) for rule in rules(attempt.destination, "ingress")):
        return Reason.INGRESS
    return None


def pick_ports() -> st.SearchStrategy[tuple[int, int]]:
    edges = st.sampled_from((0, 1024, *PORTS, 65535))
    return st.one_of(st.just((-1, -1)), st.tuples(edges, edges).map(lambda pair: (min(pair), max(pair))))


def pick_rule() -> st.SearchStrategy[GroupRule]:
    peers = st.one_of(
        st.sampled_from((*GROUP_IDS, "sg-0dead")).map(lambda group: {"peer_group": group}),
        st.sampled_from(("0.0.0.0/0", "10.0.0.0/16", OTHER_SUBNET, f"{HEAD}/32")).map(lambda cidr: {"peer_cidr": cidr}),
    )
    icmp = st.tuples(st.just("icmp"), st.sampled_from(((-1, -1), (8, -1), (8, 0))))
    others = st.tuples(st.sampled_from(("tcp", "udp", "-1", "50")), pick_ports())
    return st.builds(
        lambda what, peer: GroupRule(protocol=what[0], first=what[1][0], last=what[1][1], **peer),
        st.one_of(others, icmp),
        peers,
    )


def pick_snapshot() -> st.SearchStrategy[GroupSnapshot]:
    rules = st.lists(pick_rule(), max_size=4).map(tuple)
    egress = st.one_of(st.just((ANYWHERE,)), rules)
    groups = st.tuples(
        *(st.builds(SecurityGroup, id=st.just(name), ingress=rules, egress=egress) for name in GROUP_IDS)
    )
    members = st.fixed_dictionaries({ip: st.frozensets(st.sampled_from(GROUP_IDS), min_size=1) for ip in ADDRESSES})
    return st.builds(GroupSnapshot, groups=groups, members=members)


def pick_closure() -> st.SearchStrategy[Closure]:
    ips = st.frozensets(st.sampled_from(ADDRESSES))
    ranges = st.sampled_from((ALL_TCP, PortRange(6817, 6817), PortRange(6818, 40000)))
    return st.builds(Closure, ports=ranges, opener_ips=ips, listener_ips=ips)


# No shrinking: a failed example waits for packets that never come, and shrinking would fail hundreds of times.
@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(snapshot=pick_snapshot(), closures=st.lists(pick_closure(), max_size=2))
def test_kernel_agrees_with_ec2(
    vpc: VpcNetwork, prober: Prober, snapshot: GroupSnapshot, closures: list[Closure]
) -> None:
    vpc.apply(snapshot)
    vpc.reopen()
    for item in closures:
        vpc.close(item)
    verdicts = {attempt: verdict(attempt, snapshot, closures) for attempt in ATTEMPTS}
    expected = {attempt for attempt, reason in verdicts.items() if reason is None}
    before = {(item.source, item.destination, item.protocol, item.port, item.reason): item for item in vpc.refused()}

    assert prober.arriving(ATTEMPTS, expected) == expected

    recorded = {
        (item.source, item.destination, item.protocol, item.port, item.reason)
        for item in vpc.refused()
        if (known := before.get((item.source, item.destination, item.protocol, item.port, item.reason))) is None
        or item.packets > known.packets
    }
    assert recorded == {
        (attempt.source, attempt.destination, attempt.protocol, attempt.port, reason)
        for attempt, reason in verdicts.items()
        if reason is not None
    }


def cluster(*ingress: GroupRule) -> GroupSnapshot:
    """A head and two workers; the workers reach the head by ``ingress`` only."""
    return GroupSnapshot(
        groups=(
            SecurityGroup(id="sg-01", ingress=ingress, egress=()),
            SecurityGroup(id="sg-02", egress=(ANYWHERE,)),
        ),
        members={HEAD: frozenset({"sg-01"}), FIRST: frozenset({"sg-02"}), SECOND: frozenset({"sg-02"})},
    )


SERVICE = GroupRule(protocol="tcp", first=7000, last=7000, peer_group="sg-02")


def test_answers_need_no_rule_and_a_removed_rule_ends_no_connection(vpc: VpcNetwork, nodes: dict[str, str]) -> None:
    vpc.reopen()
    vpc.apply(cluster(SERVICE))
    with namespace.listening_socket(nodes[HEAD], HEAD, 7000, "tcp") as listener:
        with connect(nodes[FIRST], HEAD, 7000) as client, listener.accept()[0] as server:
            server.sendall(b"the head has no egress rule")
            assert client.recv(64) == b"the head has no egress rule"

            vpc.apply(cluster())

            assert is_dropped(nodes[SECOND], HEAD, 7000)
            client.sendall(b"still open")
            server.settimeout(10)
            assert server.recv(64) == b"still open"
        vpc.apply(cluster(SERVICE))
        connect(nodes[SECOND], HEAD, 7000).close()


def test_closure_drops_its_ports_between_its_addresses_in_its_direction(vpc: VpcNetwork, prober: Prober) -> None:
    vpc.apply(open_to_all(*ADDRESSES))
    vpc.reopen()
    vpc.close(
        Closure(ports=PortRange(6817, 6818), opener_ips=frozenset({FIRST, SECOND}), listener_ips=frozenset({HEAD}))
    )
    closed = {Attempt(source, HEAD, "tcp", port) for source in (FIRST, SECOND) for port in (6817, 6818)}
    assert prober.arriving(ATTEMPTS, set(ATTEMPTS) - closed) == set(ATTEMPTS) - closed
    vpc.reopen()
    assert prober.arriving(ATTEMPTS, ATTEMPTS) == set(ATTEMPTS)


def test_nothing_passes_before_the_first_snapshot() -> None:
    with network() as fresh:
        first, second = (fresh.attach(f"i-{ip}", ip, SUBNET) for ip in (HEAD, FIRST))
        with namespace.listening_socket(second, FIRST, 6818, "tcp"):
            assert is_dropped(first, FIRST, 6818)
            fresh.apply(open_to_all(HEAD, FIRST))
            connect(first, FIRST, 6818).close()
