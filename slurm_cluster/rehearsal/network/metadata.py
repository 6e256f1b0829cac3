"""Instance metadata service, version 2: one HTTP server for all nodes, which knows a caller by its source address.

The router drops packets with another source than the sender's, so no node can ask for another's credentials.
"""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.addresses import METADATA
from slurm_cluster.rehearsal.network.metadata_requests import (
    TOKEN,
    TOKEN_TTL,
    Answer,
    Credentials,
    Lookup,
    MetadataRequests,
)
from slurm_cluster.rehearsal.network.tcp_service import TcpService

_IDLE_SECONDS = 30
_MAX_BODY = 65536


class MetadataService:
    """Serves http://169.254.169.254 in the router's namespace until ``stop``.

    Args:
        router: the router's namespace.
        lookup: see MetadataRequests.
        credentials: see MetadataRequests.

    Raises:
        OSError: the address is not there or in use.
    """

    def __init__(self, router: str, *, lookup: Lookup, credentials: Credentials) -> None:
        requests = MetadataRequests(lookup=lookup, credentials=credentials)
        handler = type("Handler", (_Handler,), {"requests": requests})
        listening = namespace.listening_socket(router, METADATA, 80, "tcp")
        self._service = TcpService(listening, handler, "instance metadata")
        self._service.start()

    def stop(self) -> None:
        """End the service."""
        self._service.stop()


class _Handler(BaseHTTPRequestHandler):
    requests: MetadataRequests
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_PUT(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > _MAX_BODY:
            self.close_connection = True
            self._send(Answer(status=HTTPStatus.BAD_REQUEST))
            return
        self.rfile.read(int(length))  # a token is asked for without a body; one that is sent says nothing
        ttl, forwarded = self.headers.get(TOKEN_TTL, ""), "X-Forwarded-For" in self.headers
        self._send(self.requests.put(self._ip, self._resource, ttl=ttl, forwarded=forwarded))

    def do_GET(self) -> None:
        self._send(self.requests.get(self._ip, self._resource, token=self.headers.get(TOKEN)))

    do_HEAD = do_GET

    def version_string(self) -> str:
        """Return the Server header."""
        return "EC2ws"

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the nodes' own logs say what they asked for."""

    @property
    def _ip(self) -> str:
        return str(self.client_address[0])

    @property
    def _resource(self) -> str:
        return self.path.partition("?")[0]

    def _send(self, answer: Answer) -> None:
        status, body = answer.status, answer.body
        if body is None:
            body = f"<html><head><title>{status.value} - {status.phrase}</title></head></html>\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if answer.body is not None else "text/html")
        self.send_header("Content-Length", str(len(body)))
        for key, value in answer.headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
