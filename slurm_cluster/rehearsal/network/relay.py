"""Relay of TCP connections from the router's namespace to a port of this machine, for what serves nodes from there."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.tcp_service import TcpService

_CONNECT_SECONDS = 10
_CHUNK = 65536


class Relay:
    """Passes connections to an address in the router on to 127.0.0.1:``port`` until ``stop``.

    Args:
        router: the router's namespace.
        at: address and port where it listens there.
        port: where the service listens on this machine's loopback.

    Raises:
        OSError: the address is not there or in use.
    """

    def __init__(self, router: str, at: tuple[str, int], port: int) -> None:
        handler = type("Handler", (_Handler,), {"target": ("127.0.0.1", port)})
        self._service = TcpService(namespace.listening_socket(router, *at, "tcp"), handler, "relay")
        self._service.start()

    def stop(self) -> None:
        """End the relay and all its connections."""
        self._service.stop()


class _Handler(socketserver.BaseRequestHandler):
    target: tuple[str, int]
    request: socket.socket
    server: TcpService

    def handle(self) -> None:
        try:
            upstream = socket.create_connection(self.target, timeout=_CONNECT_SECONDS)
        except OSError:  # nothing listens: the node sees its connection end
            return
        with upstream, self.server.ending_with_service(upstream):
            upstream.settimeout(None)
            back = threading.Thread(target=_pass, args=(upstream, self.request), name="relay, answers", daemon=True)
            back.start()
            _pass(self.request, upstream)
            back.join()


def _pass(source: socket.socket, target: socket.socket) -> None:
    # One thread a direction: an end that only sends cannot block the other direction.
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
    except OSError:  # one end is gone: tell the other
        with contextlib.suppress(OSError):
            source.shutdown(socket.SHUT_RD)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
