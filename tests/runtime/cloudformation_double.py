"""The other end of a pre-signed URL: where CloudFormation takes the answers of custom resources."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class CloudFormation(HTTPServer):
    """Takes answers as the pre-signed URL does, refusing the first ones if it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Put)
        self.answers: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.content_types: list[str | None] = []
        self.refusals = 0
        self.breaks_off = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/answer?Signature=secret"


class _Put(BaseHTTPRequestHandler):
    server: CloudFormation

    def do_PUT(self) -> None:  # the name is http.server's
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.breaks_off:
            # not HTTP: http.client raises what is no OSError
            self.server.breaks_off -= 1
            self.wfile.write(b"nonsense\r\n\r\n")
            return
        if self.server.refusals:
            self.server.refusals -= 1
            self.send_error(503)
            return
        self.server.sizes.append(len(body))
        self.server.content_types.append(self.headers["Content-Type"])
        self.server.answers.append(json.loads(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output to itself."""


@contextmanager
def listening() -> Iterator[CloudFormation]:
    """Listen on loopback while the block runs."""
    server = CloudFormation()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
