"""A TCP server on a socket made elsewhere, such as in a network namespace; a thread a connection, in bounded number."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from typing import Any

MAX_CONNECTIONS = 512
"""Open connections of one service; further ones are closed at once."""

_POLL_SECONDS = 0.1  # how long stop() may wait for the accepting thread


class TcpService(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves connections of ``listening``, each by one ``handler``, from ``start`` until ``stop``.

    Args:
        listening: a listening socket; the service closes it.
        handler: handles one connection in a thread of its own.
        name: name of the accepting thread.
    """

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[socketserver.BaseRequestHandler], name: str) -> None:
        super().__init__(listening.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self._open: set[socket.socket] = set()
        self._open_changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_SECONDS,), name=name, daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End all connections and return when every socket is closed."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        with self._open_changed:
            self._stopping = True
            for connection in self._open:
                _end(connection)
            self._open_changed.wait_for(lambda: not self._open)

    @contextlib.contextmanager
    def ending_with_service(self, connection: socket.socket) -> Iterator[None]:
        """Let ``stop`` end a connection that a handler made itself."""
        with self._open_changed:
            self._open.add(connection)
            if self._stopping:
                _end(connection)
        try:
            yield
        finally:
            self._forget(connection)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Count the connection; False, which closes it, when there are too many."""
        with self._open_changed:
            if len(self._open) >= MAX_CONNECTIONS:
                return False
            self._open.add(request)
            return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that ended."""
        super().shutdown_request(request)
        self._forget(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what a handler raised, but not that its caller hung up, which callers may do at any time."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def _forget(self, connection: socket.socket) -> None:
        with self._open_changed:
            self._open.discard(connection)
            self._open_changed.notify_all()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the peer may have ended it
        connection.shutdown(socket.SHUT_RDWR)
