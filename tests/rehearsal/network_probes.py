"""Clients and listeners in nodes' network namespaces, for the network's tests."""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from slurm_cluster.rehearsal.network import leftovers, namespace
from slurm_cluster.rehearsal.network.groups import GroupRule, GroupSnapshot, SecurityGroup
from slurm_cluster.rehearsal.network.vpc import VpcNetwork

SUBNET, OTHER_SUBNET = "10.0.0.0/24", "10.0.1.0/24"
ARRIVAL_SECONDS = 10.0  # for what must arrive; a test that passes never waits for it
DROP_SECONDS = 0.3  # for what must not

ANYWHERE = GroupRule(protocol="-1", peer_cidr="0.0.0.0/0")


@contextlib.contextmanager
def network() -> Iterator[VpcNetwork]:
    """A network of its own, gone at the end."""
    session = secrets.token_hex(2)
    made = VpcNetwork(session)
    try:
        yield made
    finally:
        made.destroy()
        assert leftovers.find(session) == []


def open_to_all(*addresses: str) -> GroupSnapshot:
    """One group that allows everything, with these members."""
    group = SecurityGroup(id="sg-0a11", ingress=(ANYWHERE,), egress=(ANYWHERE,))
    return GroupSnapshot(groups=(group,), members={ip: frozenset({group.id}) for ip in addresses})


def connect(netns: str, ip: str, port: int, *, source: str = "", seconds: float = ARRIVAL_SECONDS) -> socket.socket:
    """Return a connection from ``netns``.

    Raises:
        TimeoutError: there was no answer within ``seconds``.
    """
    return namespace.inside(netns, lambda: socket.create_connection((ip, port), seconds, (source, 0)))


def is_dropped(netns: str, ip: str, port: int, *, source: str = "") -> bool:
    """Return whether a connection attempt gets no answer at all."""
    try:
        connect(netns, ip, port, source=source, seconds=DROP_SECONDS).close()
    except TimeoutError:
        return True
    return False


@dataclass(frozen=True)
class Attempt:
    """One way to open something."""

    source: str
    destination: str
    protocol: Literal["tcp", "udp"]
    port: int


class Prober:
    """Listens on all ports of all nodes and tells which attempts arrive.

    Args:
        nodes: namespaces by address.
        ports: where each node listens, TCP and UDP.
    """

    def __init__(self, nodes: dict[str, str], ports: Collection[int]) -> None:
        self._nodes = nodes
        self._listening = [
            namespace.listening_socket(netns, ip, port, "tcp") for ip, netns in nodes.items() for port in ports
        ]
        self._receiving = {
            namespace.listening_socket(netns, ip, port, "udp"): (ip, port)
            for ip, netns in nodes.items()
            for port in ports
        }

    def arriving(self, attempts: Collection[Attempt], expected: Collection[Attempt]) -> set[Attempt]:
        """Make all ``attempts`` at once and return those that arrive.

        It waits for ``expected``, so that a busy machine makes no failure, and then looks at what else has come.
        """
        arrived: set[Attempt] = set()
        connecting: dict[int, tuple[socket.socket, Attempt]] = {}
        sending: dict[tuple[str, int], Attempt] = {}
        poll = select.poll()
        for receiver in self._receiving:
            poll.register(receiver, select.POLLIN)
        sockets: list[socket.socket] = []
        for attempt in attempts:
            made = self._start(attempt)
            sockets.append(made)
            if attempt.protocol == "tcp":
                connecting[made.fileno()] = (made, attempt)
                poll.register(made, select.POLLOUT)
            else:
                sending[made.getsockname()] = attempt
        receivers = {item.fileno(): item for item in self._receiving}
        deadline = time.monotonic() + ARRIVAL_SECONDS
        settled = False
        while time.monotonic() < deadline and not settled:
            # Once all that is expected is here, one more look at what came with it.
            settled = set(expected) <= arrived
            for descriptor, _ in poll.poll(50):
                if descriptor in receivers:
                    _, client = receivers[descriptor].recvfrom(64)
                    arrived.add(sending[client])
                else:
                    made, attempt = connecting[descriptor]
                    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0, attempt
                    arrived.add(attempt)
                    poll.unregister(descriptor)
        for item in sockets:
            item.close()
        self._drain()
        return arrived

    def close(self) -> None:
        """Close all listeners."""
        for item in (*self._listening, *self._receiving):
            item.close()

    def _start(self, attempt: Attempt) -> socket.socket:
        kind = socket.SOCK_STREAM if attempt.protocol == "tcp" else socket.SOCK_DGRAM
        made = namespace.inside(self._nodes[attempt.source], lambda: socket.socket(socket.AF_INET, kind))
        made.setblocking(False)
        made.bind((attempt.source, 0))
        if attempt.protocol == "tcp":
            made.connect_ex((attempt.destination, attempt.port))
        else:
            made.sendto(b"probe", (attempt.destination, attempt.port))
        return made

    def _drain(self) -> None:
        for listener in self._listening:
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
