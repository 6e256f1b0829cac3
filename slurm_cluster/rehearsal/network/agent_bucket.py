"""The S3 bucket from which nodes of a stock image install the SSM agent: two objects, over TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import urlsplit

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.addresses import AGENT_BUCKET
from slurm_cluster.rehearsal.network.tcp_service import TcpService
from slurm_cluster.runtime.node.ssm_agent import package_url

_IDLE_SECONDS = 30


def objects(region: str, architecture: str, *, package: Path, signature: Path) -> dict[str, Path]:
    """Return the files by the paths at which nodes of a Region and architecture ask for them."""
    path = urlsplit(package_url(region, "amazonaws.com", architecture)).path
    return {path: package, f"{path}.sig": signature}


class AgentBucket:
    """Serves ``files`` by their paths at the bucket's address in the router until ``stop``.

    Args:
        router: the router's namespace.
        certificate: certificate and private key of the server, PEM.
        files: by path, as ``objects`` returns them.

    Raises:
        OSError: the address is not there or in use.
    """

    def __init__(self, router: str, *, certificate: Path, files: Mapping[str, Path]) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        handler = type("Handler", (_Handler,), {"context": context, "files": dict(files)})
        self._service = TcpService(
            namespace.listening_socket(router, AGENT_BUCKET, 443, "tcp"), handler, "bucket of the SSM agent"
        )
        self._service.start()

    def stop(self) -> None:
        """End the service."""
        self._service.stop()


class _Handler(BaseHTTPRequestHandler):
    context: ssl.SSLContext
    files: Mapping[str, Path]
    request: socket.socket
    timeout = _IDLE_SECONDS

    def setup(self) -> None:
        # In the connection's own thread, so that a silent caller keeps nobody else waiting.
        self.request.settimeout(_IDLE_SECONDS)
        self._plain, self.request = self.request, self.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def do_GET(self) -> None:
        file = self.files.get(self.path)
        body = file.read_bytes() if file else b"<Error><Code>NoSuchKey</Code></Error>"
        self.send_response(HTTPStatus.OK if file else HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "application/octet-stream" if file else "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Return the Server header."""
        return "AmazonS3"

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the nodes' own logs say what they asked for."""
