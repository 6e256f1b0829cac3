"""DNS of the rehearsed VPC: private hosted zones, private names of instances, and the AWS API's name.

It answers at once, also that a name does not exist: programs in nodes wait five seconds on a silent server.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.reversename
import dns.rrset

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.addresses import (
    AGENT_BUCKET,
    API,
    API_HOST,
    OWN_DNS,
    agent_bucket_host,
    internal_domain,
    private_dns_name,
)
from slurm_cluster.rehearsal.network.tcp_service import TcpService

Records: TypeAlias = Callable[[str], Sequence[str]]

_TTL = 60  # Amazon's for private names
_IP_PKTINFO = 8  # linux/in.h
_PKTINFO = struct.Struct("=i4s4s")  # interface, address to send from, address it came to
_POLL_SECONDS = 0.1
_IDLE_SECONDS = 10
_log = logging.getLogger(__name__)


class Resolver:
    """Answers questions: addresses of names, names of addresses.

    Args:
        region: the VPC's Region.
        records: returns the IPv4 addresses of a name in private hosted zones, given in lower case without the last
            dot; empty if there is no such record.
    """

    def __init__(self, region: str, records: Records) -> None:
        domain = re.escape(internal_domain(region))
        self._instance = re.compile(rf"ip-(\d{{1,3}}-\d{{1,3}}-\d{{1,3}}-\d{{1,3}})\.{domain}")
        self._region = region
        self._records = records

    def answer(self, query: bytes, *, private: bool) -> bytes | None:
        """Return the answer to a DNS message; None if it is not one that can be answered.

        Args:
            query: message in wire format.
            private: whether private names are known: true for the VPC's resolver, false for a DNS server of the
                VPC's owner.
        """
        try:
            question = dns.message.from_wire(query)
        except dns.exception.DNSException:
            return None
        if question.flags & dns.flags.QR:
            return None
        answer = dns.message.make_response(question, recursion_available=True)
        if question.opcode() != dns.opcode.QUERY or len(question.question) != 1:
            answer.set_rcode(dns.rcode.NOTIMP)
            return answer.to_wire()
        try:
            self._fill(answer, question.question[0], private)
        except Exception:  # the session's callback may fail in any way
            _log.exception("no answer to %s", question.question[0])
            answer.set_rcode(dns.rcode.SERVFAIL)
        return answer.to_wire()

    def _fill(self, answer: dns.message.Message, question: dns.rrset.RRset, private: bool) -> None:
        name = question.name.to_text(omit_final_dot=True).lower()
        addresses, pointer = self._addresses(name, private), self._pointer(question.name, private)
        if not addresses and pointer is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif addresses and question.rdtype == dns.rdatatype.A:
            answer.answer.append(dns.rrset.from_text_list(question.name, _TTL, "IN", "A", addresses))
        elif pointer is not None and question.rdtype == dns.rdatatype.PTR:
            answer.answer.append(dns.rrset.from_text(question.name, _TTL, "IN", "PTR", pointer))

    def _addresses(self, name: str, private: bool) -> list[str]:
        if name == API_HOST or name.endswith(f".{API_HOST}"):
            return [API]
        if name == agent_bucket_host(self._region):
            return [AGENT_BUCKET]
        if not private:
            return []
        if match := self._instance.fullmatch(name):
            try:
                return [str(ipaddress.IPv4Address(match[1].replace("-", ".")))]
            except ValueError:
                return []
        return list(self._records(name))

    def _pointer(self, name: dns.name.Name, private: bool) -> str | None:
        if not private or not name.is_subdomain(dns.reversename.ipv4_reverse_domain):
            return None
        try:
            address = ipaddress.ip_address(dns.reversename.to_address(name))
        except (ValueError, dns.exception.DNSException):
            return None
        return f"{private_dns_name(str(address), self._region)}." if address.is_private else None


class DnsService:
    """Serves DNS at all addresses of the router until ``stop``; which of them answer is the guard's to say.

    Args:
        router: the router's namespace.
        region: see Resolver.
        records: see Resolver.

    Raises:
        OSError: the port is in use.
    """

    def __init__(self, router: str, *, region: str, records: Records) -> None:
        resolver = Resolver(region, records)
        self._udp = _UdpServer(namespace.listening_socket(router, "0.0.0.0", 53, "udp"), resolver)  # noqa: S104
        self._thread = threading.Thread(
            target=self._udp.serve_forever, args=(_POLL_SECONDS,), name="DNS over UDP", daemon=True
        )
        try:
            handler = type("Handler", (_TcpHandler,), {"resolver": resolver})
            listening = namespace.listening_socket(router, "0.0.0.0", 53, "tcp")  # noqa: S104
        except BaseException:
            self._udp.server_close()
            raise
        self._tcp = TcpService(listening, handler, "DNS over TCP")
        self._thread.start()
        self._tcp.start()

    def stop(self) -> None:
        """End the service."""
        self._udp.shutdown()
        self._thread.join()
        self._udp.server_close()
        self._tcp.stop()


class _UdpServer(socketserver.UDPServer):
    """Answers from the address that it was asked at, as one socket serves all of the router's."""

    def __init__(self, bound: socket.socket, resolver: Resolver) -> None:
        super().__init__(bound.getsockname(), socketserver.BaseRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.socket.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        self._resolver = resolver

    def get_request(self) -> tuple[Any, Any]:
        data, ancillary, _, client = self.socket.recvmsg(self.max_packet_size, socket.CMSG_SPACE(_PKTINFO.size))
        local = next(_PKTINFO.unpack(value)[2] for _, kind, value in ancillary if kind == _IP_PKTINFO)
        return (data, local), client

    def finish_request(self, request: Any, client_address: Any) -> None:
        data, local = request
        answer = self._resolver.answer(data, private=socket.inet_ntoa(local) != OWN_DNS)
        if answer is not None:
            source = (socket.IPPROTO_IP, _IP_PKTINFO, _PKTINFO.pack(0, local, bytes(4)))
            self.socket.sendmsg([answer], [source], 0, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Do nothing: there is no connection."""


class _TcpHandler(socketserver.StreamRequestHandler):
    resolver: Resolver
    timeout = _IDLE_SECONDS

    def handle(self) -> None:
        private = self.connection.getsockname()[0] != OWN_DNS
        try:
            while len(length := self.rfile.read(2)) == 2:
                answer = self.resolver.answer(self.rfile.read(int.from_bytes(length, "big")), private=private)
                if answer is None:
                    return
                self.wfile.write(len(answer).to_bytes(2, "big") + answer)
        except OSError:  # idle for too long, or ended by the peer
            return
