"""The router and the nodes' namespaces: what a node can reach, claim and leave behind."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import pytest

from slurm_cluster.rehearsal.network import leftovers, namespace
from slurm_cluster.rehearsal.network.addresses import mac_address
from slurm_cluster.rehearsal.network.groups import Reason
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from tests.rehearsal.network_probes import DROP_SECONDS, OTHER_SUBNET, SUBNET, connect, is_dropped, network, open_to_all

pytestmark = pytest.mark.rehearsal

FIRST, SECOND = "10.0.0.11", "10.0.1.12"


def ip_json(netns: str, *argv: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(namespace.run(["ip", "-json", *argv], netns=netns))
    return found


def host_interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def test_node_has_its_address_a_gateway_and_no_way_to_this_machine() -> None:
    with network() as vpc:
        netns = vpc.attach("i-0a", FIRST, SUBNET)
        interfaces = {item["ifname"]: item for item in ip_json(netns, "address")}
        assert set(interfaces) == {"lo", "eth0"}
        assert interfaces["eth0"]["address"] == mac_address(FIRST)
        assert "UP" in interfaces["lo"]["flags"]  # type: ignore[operator]
        addresses = interfaces["eth0"]["addr_info"]
        assert [(item["local"], item["prefixlen"]) for item in addresses if item["family"] == "inet"] == [(FIRST, 24)]  # type: ignore[attr-defined]
        assert [(item["dst"], item.get("gateway")) for item in ip_json(netns, "route")] == [
            ("default", "10.0.0.1"),
            (SUBNET, None),
        ]
        # The router leads to nodes and nowhere else.
        assert len(ip_json(vpc.router, "link")) == 2
        routes = {(item["dst"], item.get("type", "unicast")) for item in ip_json(vpc.router, "route")}
        assert routes == {("default", "blackhole"), (FIRST, "unicast")}


def test_what_has_no_route_is_lost_in_silence_and_recorded() -> None:
    with network() as vpc:
        netns = vpc.attach("i-0a", FIRST, SUBNET)
        vpc.apply(open_to_all(FIRST))
        assert is_dropped(netns, "198.51.100.7", 80)
        [refused] = vpc.refused()
        assert (refused.source, refused.destination, refused.protocol, refused.port) == (
            FIRST,
            "198.51.100.7",
            "tcp",
            80,
        )
        assert refused.reason is Reason.NO_ROUTE


def test_gateway_serves_nothing() -> None:
    with network() as vpc:
        netns = vpc.attach("i-0a", FIRST, SUBNET)
        vpc.apply(open_to_all(FIRST))
        with namespace.listening_socket(vpc.router, "0.0.0.0", 8080, "tcp"):  # noqa: S104
            for address in ("10.0.0.1", "169.254.169.254", "192.0.2.1"):
                assert is_dropped(netns, address, 8080)


def test_foreign_source_address_is_dropped() -> None:
    with network() as vpc:
        first, second = vpc.attach("i-0a", FIRST, SUBNET), vpc.attach("i-0b", SECOND, OTHER_SUBNET)
        third = vpc.attach("i-0c", "10.0.0.13", SUBNET)
        vpc.apply(open_to_all(FIRST, SECOND, "10.0.0.13"))
        for stolen in ("10.0.0.13", "10.0.0.99", "169.254.169.253"):
            namespace.run(["ip", "address", "add", f"{stolen}/32", "dev", "lo"], netns=first)
        with namespace.listening_socket(second, SECOND, 5000, "udp") as receiver:
            sender = namespace.inside(first, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            with sender:
                sender.bind(("10.0.0.13", 0))
                sender.sendto(b"spoofed", (SECOND, 5000))
            for netns, ip in ((third, "10.0.0.13"), (first, FIRST)):
                genuine = namespace.inside(netns, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                with genuine:
                    genuine.bind((ip, 0))
                    genuine.sendto(b"genuine", (SECOND, 5000))
            receiver.settimeout(10)
            # Datagrams of one sender keep their order, so a spoofed one would have come before that sender's own.
            got = [receiver.recvfrom(64) for _ in range(2)]
            assert sorted((data, client[0]) for data, client in got) == [
                (b"genuine", FIRST),
                (b"genuine", "10.0.0.13"),
            ]
            receiver.settimeout(DROP_SECONDS)
            with pytest.raises(TimeoutError):
                receiver.recv(64)
        with namespace.listening_socket(second, SECOND, 5000, "tcp"):
            assert is_dropped(first, SECOND, 5000, source="10.0.0.99")
            assert is_dropped(first, SECOND, 5000, source="169.254.169.253")
            connect(first, SECOND, 5000, source=FIRST).close()


def test_address_is_free_again_after_detach() -> None:
    with network() as vpc:
        vpc.attach("i-0a", FIRST, SUBNET)
        with pytest.raises(ValueError, match=r"i-0b cannot have 10\.0\.0\.11: i-0a has 10\.0\.0\.11"):
            vpc.attach("i-0b", FIRST, SUBNET)
        with pytest.raises(ValueError, match="not in the subnet"):
            vpc.attach("i-0b", FIRST, OTHER_SUBNET)
        vpc.detach("i-0a")
        vpc.detach("i-0a")
        second = vpc.attach("i-0b", FIRST, SUBNET)
        other = vpc.attach("i-0c", SECOND, OTHER_SUBNET)
        vpc.apply(open_to_all(FIRST, SECOND))
        with namespace.listening_socket(second, FIRST, 6818, "tcp"):
            connect(other, FIRST, 6818).close()


def test_detached_node_is_out_of_reach_although_a_process_keeps_its_namespace() -> None:
    with network() as vpc:
        first, second = vpc.attach("i-0a", FIRST, SUBNET), vpc.attach("i-0b", SECOND, OTHER_SUBNET)
        vpc.apply(open_to_all(FIRST, SECOND))
        with namespace.listening_socket(second, SECOND, 6818, "tcp"):
            connect(first, SECOND, 6818).close()
            vpc.detach("i-0b")
            assert is_dropped(first, SECOND, 6818)


def test_twelve_nodes_are_quick() -> None:
    with network() as vpc:
        addresses = [f"10.0.0.{number}" for number in range(11, 23)]
        started = time.monotonic()
        namespaces = [vpc.attach(f"i-{ip}", ip, SUBNET) for ip in addresses]
        attached = time.monotonic()
        vpc.apply(open_to_all(*addresses))
        applied = time.monotonic()
        assert attached - started < 6.0
        assert applied - attached < 1.0
        with namespace.listening_socket(namespaces[-1], addresses[-1], 6818, "tcp"):
            for netns in namespaces[:-1]:
                connect(netns, addresses[-1], 6818).close()


def test_destroy_leaves_nothing_and_may_be_repeated() -> None:
    before = host_interfaces()
    session = secrets.token_hex(2)
    vpc = VpcNetwork(session)
    vpc.attach("i-0a", FIRST, SUBNET)
    assert session in leftovers.sessions()
    with pytest.raises(RuntimeError, match="File exists"):
        VpcNetwork(session)
    vpc.destroy()
    vpc.destroy()
    assert leftovers.find(session) == []
    assert session not in leftovers.sessions()
    assert host_interfaces() == before


_KILLED = """
import os, signal, sys
from slurm_cluster.rehearsal.network.addresses import API, API_PORT
from slurm_cluster.rehearsal.network.relay import Relay
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
vpc = VpcNetwork(sys.argv[1])
vpc.attach("i-0a", "10.0.0.11", "10.0.0.0/24")
Relay(vpc.router, (API, API_PORT), 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_session_left_is_found_and_removed() -> None:
    before = host_interfaces()
    session = secrets.token_hex(2)
    done = subprocess.run([sys.executable, "-c", _KILLED, session], check=False, env={**os.environ})
    assert done.returncode == -signal.SIGKILL
    try:
        assert leftovers.find(session) == [
            f"network namespace sc{session}-i-0a",
            f"network namespace sc{session}-vpc",
        ]
    finally:
        leftovers.remove(session)
    leftovers.remove(session)
    assert leftovers.find(session) == []
    assert host_interfaces() == before
    with_same_name = VpcNetwork(session)
    with_same_name.destroy()
