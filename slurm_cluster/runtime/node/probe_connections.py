"""TCP connections tried while others are listened for, and a look at what arrives on the wire.

A connection that times out does not tell where its SYN was dropped: on the way, by a packet filter of either machine,
or nowhere, as nobody is there. So both look at their interfaces: at what leaves behind the filter of the one, and at
what arrives before the filter of the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import selectors
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ATTEMPT_SECONDS = 3.5
"""Three SYNs: Linux sends them at once, after 1 and after 3 seconds."""

_PAUSE = 0.5
_LOOK_SECONDS = 0.2
_ETH_P_ALL, _ETH_P_IP = 0x0003, 0x0800
_OUTGOING = 4
"""Packet type of what this machine itself sends, packet(7)."""

_TCP = 6
_SYN, _ACK = 0x02, 0x10
_SO_ATTACH_FILTER = 26
_ONLY_SYNS = (
    (0x28, 0, 0, 0xFFFFF000),  # the protocol of the packet
    (0x15, 0, 7, _ETH_P_IP),
    (0x30, 0, 0, 9),  # the protocol in its IPv4 header
    (0x15, 0, 5, _TCP),
    (0xB1, 0, 0, 0),  # length of that header
    (0x50, 0, 0, 13),  # the flags of TCP behind it
    (0x54, 0, 0, _SYN | _ACK),
    (0x15, 0, 1, _SYN),
    (0x06, 0, 0, 128),
    (0x06, 0, 0, 0),
)
"""A classic BPF program as (code, jump if true, jump if false, operand), see linux/filter.h."""


class Outcome(StrEnum):
    """What came of trying to connect, the most telling first."""

    OPEN = "open"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNRESOLVABLE = "unresolvable"
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Target:
    """Where to connect to."""

    host: str
    port: int


@dataclass
class _Seen:
    """What was seen, as (address of the other machine, port)."""

    accepted: set[tuple[str, int]] = field(default_factory=set)
    arrived: set[tuple[str, int]] = field(default_factory=set)
    left: set[tuple[str, int]] = field(default_factory=set)


def target(text: str) -> Target:
    """Read ``host:port``.

    Raises:
        ValueError: it is something else.
    """
    host, _, port = text.rpartition(":")
    return Target(host, int(port))


def connect(to: Target, *, seconds: float = ATTEMPT_SECONDS) -> Outcome:
    """Try one connection."""
    try:
        with socket.create_connection((to.host, to.port), timeout=seconds):
            return Outcome.OPEN
    except TimeoutError:
        return Outcome.TIMEOUT
    except ConnectionRefusedError:
        return Outcome.REFUSED
    except socket.gaierror:
        return Outcome.UNRESOLVABLE
    except OSError as problem:
        # a reset in answer to the SYN, or one right after it, comes from the other machine
        return Outcome.REFUSED if problem.errno == errno.ECONNRESET else Outcome.UNREACHABLE


def meet(
    listen: Sequence[int],
    targets: Iterable[Target],
    *,
    seconds: float,
    watch: Sequence[int] = (),
    enough: threading.Event | None = None,
) -> dict[str, Any]:
    """Listen and connect at the same time, so that machines can meet that start seconds apart.

    Args:
        listen: ports to accept connections on, all addresses.
        targets: where to connect to, again and again until it succeeds.
        seconds: how long.
        watch: further ports whose SYNs are looked for.
        enough: ends it before its time when set.

    Returns:
        ``listening`` (ports), ``taken`` (ports that others hold here), ``watching`` (whether SYNs could be seen),
        ``accepted`` and ``arrived`` (pairs of peer address and port here), ``connections`` (host, port, outcome,
        attempts, and whether a SYN ``left``: None if that could not be seen).
    """
    deadline = time.monotonic() + seconds
    end = enough or threading.Event()
    connections: list[dict[str, Any]] = []
    tried = tuple(targets)
    threads = [threading.Thread(target=_insist, args=(to, deadline, end, connections)) for to in tried]
    seen = _Seen()
    with contextlib.ExitStack() as stack:
        listeners = {port: one for port in listen if (one := listener(port)) is not None}
        for one in listeners.values():
            stack.callback(one.close)
        wire = _wire()
        if wire is not None:
            stack.callback(wire.close)
        for thread in threads:
            thread.start()
        _look(listeners, wire, deadline, end, seen)
        for thread in threads:
            thread.join()
    for item in connections:
        item["left"] = (item["host"], item["port"]) in seen.left if wire is not None else None
    return {
        "listening": sorted(listeners),
        "taken": sorted(set(listen) - set(listeners)),
        "watching": wire is not None,
        "accepted": sorted(map(list, seen.accepted)),
        "arrived": sorted([peer, port] for peer, port in seen.arrived if port in {*listen, *watch}),
        "connections": sorted(connections, key=lambda item: (item["host"], item["port"])),
    }


def _insist(to: Target, deadline: float, end: threading.Event, connections: list[dict[str, Any]]) -> None:
    outcomes: list[Outcome] = []
    while not outcomes or (Outcome.OPEN not in outcomes and time.monotonic() + _PAUSE < deadline):
        if outcomes and end.wait(_PAUSE):
            break
        outcomes.append(connect(to, seconds=max(0.5, min(ATTEMPT_SECONDS, deadline - time.monotonic()))))
    best = min(outcomes, key=list(Outcome).index)
    connections.append({"host": to.host, "port": to.port, "outcome": best.value, "attempts": len(outcomes)})


def listener(port: int) -> socket.socket | None:
    """Return a socket that listens on a port of all addresses, None if the port cannot be had."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # as Slurm's own listeners: what lingers of closed connections is no obstacle
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("", port))
        found.listen()
    except OSError:
        found.close()
        return None
    found.setblocking(False)
    return found


def _wire() -> socket.socket | None:
    """Return a socket that sees every SYN that arrives or leaves; needs CAP_NET_RAW."""
    try:
        # only a socket for all protocols sees what leaves, packet(7)
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL))
    except OSError:
        return None
    wire.setblocking(False)
    # of a machine whose jobs talk, all packets would fill the socket's buffer and push the SYNs out
    program = b"".join(struct.pack("HBBI", *step) for step in _ONLY_SYNS)
    held = ctypes.create_string_buffer(program, len(program))
    wire.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(_ONLY_SYNS), ctypes.addressof(held)))
    return wire


def _look(
    listeners: dict[int, socket.socket],
    wire: socket.socket | None,
    deadline: float,
    end: threading.Event,
    seen: _Seen,
) -> None:
    with selectors.DefaultSelector() as selector:
        for port, listener in listeners.items():
            selector.register(listener, selectors.EVENT_READ, port)
        if wire is not None:
            selector.register(wire, selectors.EVENT_READ, None)
        while (left := deadline - time.monotonic()) > 0 and not end.is_set():
            for key, _ in selector.select(min(_LOOK_SECONDS, left)):
                if key.data is None and wire is not None:
                    _read(wire, seen)
                else:
                    seen.accepted |= {(peer, key.data) for peer in _accepted(listeners[key.data])}


def _accepted(listener: socket.socket) -> Iterator[str]:
    with contextlib.suppress(BlockingIOError, ConnectionError):
        connection, peer = listener.accept()
        connection.close()
        yield str(peer[0])


def _read(wire: socket.socket, seen: _Seen) -> None:
    """Note who has sent a SYN and to whom this machine has, as far as packets are waiting."""
    for _ in range(1000):
        try:
            packet, origin = wire.recvfrom(128)
        except OSError:
            return
        syn = parse_syn(packet) if origin[1] == _ETH_P_IP else None
        if syn is None:
            continue
        source, destination, port = syn
        if origin[2] == _OUTGOING:
            seen.left.add((destination, port))
        else:
            seen.arrived.add((source, port))


def parse_syn(packet: bytes) -> tuple[str, str, int] | None:
    """Return source, destination and port of an IPv4 packet that opens a TCP connection, None for others."""
    if len(packet) < 20 or packet[9] != _TCP:
        return None
    start = (packet[0] & 0x0F) * 4
    if len(packet) < start + 14 or packet[start + 13] & (_SYN | _ACK) != _SYN:
        return None
    (port,) = struct.unpack_from("!H", packet, start + 2)
    return socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20]), port
