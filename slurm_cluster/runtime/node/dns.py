"""Asking one DNS server for one name's IPv4 addresses (RFC 1035), past /etc/hosts and the host's own resolver.

The names of the cluster are written into /etc/hosts, which the host's resolver reads first: it would only repeat what
was written. And a VPC whose DHCP options name other servers may not know the cluster's private zone, while the VPC's
own resolver at 169.254.169.253 always does
(https://docs.aws.amazon.com/vpc/latest/userguide/AmazonDNS-concepts.html).
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

VPC_RESOLVER = "169.254.169.253"
RESOLVER_FILES = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))

_TYPE_A = 1
_CLASS_IN = 1
_RECURSION_DESIRED = 0x0100
_RESPONSE = 0x8000
_TIMEOUT = 2.0
_PORT = 53

Query = Callable[[str, str], Sequence[str]]
"""``query(server, name)``: the addresses that a server gives for a name; OSError when it does not answer."""


def encode_question(name: str, identifier: int) -> bytes:
    """Return a query for the A records of ``name``."""
    labels = name.rstrip(".").split(".")
    encoded = b"".join(bytes([len(label)]) + label.encode("ascii") for label in labels) + b"\0"
    return struct.pack("!6H", identifier, _RECURSION_DESIRED, 1, 0, 0, 0) + encoded + struct.pack("!2H", 1, 1)


def decode_addresses(message: bytes, identifier: int) -> list[str]:
    """Return the IPv4 addresses in an answer; those of aliases stand in the same answer.

    Raises:
        ValueError: this is not an answer to that question.
    """
    try:
        got, flags, questions, answers, _, _ = struct.unpack_from("!6H", message)
        if got != identifier or not flags & _RESPONSE:
            raise ValueError("not the answer to this question")
        position = 12
        for _ in range(questions):
            position = _skip_name(message, position) + 4
        addresses = []
        for _ in range(answers):
            position = _skip_name(message, position)
            kind, group, _, length = struct.unpack_from("!2HIH", message, position)
            position += 10
            if (kind, group, length) == (_TYPE_A, _CLASS_IN, 4):
                addresses.append(str(ipaddress.IPv4Address(message[position : position + 4])))
            position += length
    except (struct.error, IndexError, ipaddress.AddressValueError) as problem:
        raise ValueError(f"cut off or malformed: {problem}") from problem
    return addresses


def _skip_name(message: bytes, position: int) -> int:
    while True:
        length = message[position]
        if length >= 0xC0:
            return position + 2
        position += 1 + length
        if length == 0:
            return position


def ask(server: str, name: str) -> list[str]:
    """Return the IPv4 addresses that ``server`` gives for ``name``; none if it knows no such name.

    Raises:
        OSError: no answer in two seconds.
    """
    identifier = secrets.randbelow(65536)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect((server, _PORT))
        connection.send(encode_question(name, identifier))
        while True:
            answer = connection.recv(4096)
            try:
                return decode_addresses(answer, identifier)
            except ValueError:
                # Somebody else's datagram: the right one may still come within the time limit.
                continue


def servers(resolver_files: Iterable[Path] = RESOLVER_FILES) -> list[str]:
    """Return the host's DNS servers and, last, the VPC's own.

    A server on loopback is this host's own resolver, which reads /etc/hosts.
    """
    found: dict[str, None] = {}
    for path in resolver_files:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) >= 2 and words[0] == "nameserver" and _usable(words[1]):
                found[words[1]] = None
        if found:
            break
    found[VPC_RESOLVER] = None
    return list(found)


def _usable(server: str) -> bool:
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False
    return address.version == 4 and not address.is_loopback


def resolve(name: str, *, from_servers: Sequence[str] | None = None, query: Query = ask) -> str | None:
    """Return the first IPv4 address that any server gives for ``name``, or None if none does now."""
    for server in servers() if from_servers is None else from_servers:
        try:
            addresses = query(server, name)
        except OSError:
            continue
        if addresses:
            return addresses[0]
    return None
