"""Instance metadata service, version 2: one server for all nodes, which knows a caller by its source address.

The router drops packets with another source than the sender's, so no node can ask for another's credentials. Source:
EC2 user guide, "Use the Instance Metadata Service to access instance metadata".
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TypeAlias
from urllib.parse import unquote

from slurm_cluster.rehearsal.network import namespace
from slurm_cluster.rehearsal.network.addresses import METADATA
from slurm_cluster.rehearsal.network.instance_metadata import (
    InstanceMetadata,
    InstanceProfile,
    RoleCredentials,
    Tree,
    dynamic,
    meta_data,
)
from slurm_cluster.rehearsal.network.tcp_service import TcpService

VERSIONS = (
    *("1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01"),
    *("2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19"),
    *("2016-06-30", "2016-09-02", "2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03"),
    *("2021-03-23", "2021-07-15", "2022-09-24", "2024-04-11", "latest"),
)
"""First members of the paths; EC2 serves them all alike but for what was added later."""

_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
_TOKEN_TTL = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105 - a header's name
_MAX_TTL = 21600
# boto3 asks for new credentials when 15 minutes are left, so older ones must be gone by then.
_RENEW_BEFORE = timedelta(minutes=20)
_IDLE_SECONDS = 30

_log = logging.getLogger(__name__)

Lookup: TypeAlias = Callable[[str], InstanceMetadata | None]
Credentials: TypeAlias = Callable[[InstanceProfile], RoleCredentials]


class MetadataService:
    """Serves http://169.254.169.254 in the router's namespace until ``stop``.

    Args:
        router: the router's namespace.
        lookup: returns the instance that has a private address, None if there is none; asked at every request.
        credentials: returns new credentials of a profile's role; asked again before they expire. Each instance gets
            its own.

    Raises:
        OSError: the address is not there or in use.
    """

    def __init__(self, router: str, *, lookup: Lookup, credentials: Credentials) -> None:
        self._lookup = lookup
        self._new_credentials = credentials
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[str, float]] = {}
        self._credentials: dict[tuple[str, str], RoleCredentials] = {}
        handler = type("Handler", (_Handler,), {"metadata": self})
        listening = namespace.listening_socket(router, METADATA, 80, "tcp")
        self._service = TcpService(listening, handler, "instance metadata")
        self._service.start()

    def stop(self) -> None:
        """End the service."""
        self._service.stop()

    def new_token(self, ip: str, seconds: int) -> str:
        """Return a session token that the instance at ``ip`` may use for ``seconds``."""
        token = secrets.token_urlsafe(40)
        now = time.monotonic()
        with self._lock:
            self._tokens = {key: value for key, value in self._tokens.items() if value[1] > now}
            self._tokens[token] = (ip, now + seconds)
        return token

    def token_is_good(self, ip: str, token: str) -> bool:
        """Return whether ``token`` was given to the instance at ``ip`` and has not expired."""
        with self._lock:
            owner, expires = self._tokens.get(token, ("", 0.0))
        return owner == ip and time.monotonic() < expires

    def instance(self, ip: str) -> InstanceMetadata | None:
        """Return the instance at ``ip``."""
        return self._lookup(ip)

    def get(self, instance: InstanceMetadata, path: str) -> bytes | None:
        """Return what EC2 serves at ``path``, such as ``/latest/meta-data/mac``; None for 404.

        A directory is listed, with or without a slash at its end: a member a line, directories with a slash.
        """
        members = [unquote(part) for part in path.split("/")[1:]]
        wants_directory = members[-1] == ""
        if wants_directory:
            members.pop()
        if not members:
            return "\n".join(VERSIONS).encode()
        if members[0] not in VERSIONS:
            return None
        if members[1:] == ["user-data"]:
            return instance.user_data
        if len(members) == 1:  # the one listing without slashes
            return "\n".join(("dynamic", "meta-data", *(["user-data"] if instance.user_data else []))).encode()
        tree: Tree = {
            "dynamic": dynamic(instance),
            "meta-data": meta_data(instance, lambda: self._role_credentials(instance)),
        }
        return _find(tree, members[1:], wants_directory)

    def _role_credentials(self, instance: InstanceMetadata) -> RoleCredentials:
        if instance.profile is None:
            raise LookupError(f"{instance.instance_id} has no instance profile")
        key = (instance.instance_id, instance.profile.arn)
        with self._lock:
            known = self._credentials.get(key)
        if known is not None and known.expiration - datetime.now(UTC) > _RENEW_BEFORE:
            return known
        found = self._new_credentials(instance.profile)
        with self._lock:
            self._credentials[key] = found
        return found


def _find(tree: Tree, members: list[str], wants_directory: bool) -> bytes | None:
    here: Tree | str | Callable[[], str] = tree
    for member in members:
        if not isinstance(here, dict) or member not in here:
            return None
        here = here[member]
    if isinstance(here, dict):
        listing = (f"{key}/" if isinstance(value, dict) else key for key, value in sorted(here.items()))
        return "\n".join(listing).encode()
    if wants_directory:
        return None
    return (here if isinstance(here, str) else here()).encode()


class _Handler(BaseHTTPRequestHandler):
    metadata: MetadataService
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "X-Forwarded-For" in self.headers:  # a request through a proxy never gets a token
            return self._answer(HTTPStatus.FORBIDDEN)
        if unquote(self.path) != "/latest/api/token":
            return self._answer(HTTPStatus.NOT_FOUND)
        ttl = self.headers.get(_TOKEN_TTL, "")
        if not (ttl.isascii() and ttl.isdigit() and 1 <= int(ttl) <= _MAX_TTL):
            return self._answer(HTTPStatus.BAD_REQUEST)
        token = self.metadata.new_token(self._ip, int(ttl))
        return self._answer(HTTPStatus.OK, token.encode(), {_TOKEN_TTL: ttl})

    def do_GET(self) -> None:
        instance = self.metadata.instance(self._ip)
        if instance is None:
            return self._answer(HTTPStatus.NOT_FOUND)
        token = self.headers.get(_TOKEN)
        if token is None and instance.token_required:
            return self._answer(HTTPStatus.UNAUTHORIZED)
        if token is not None and not self.metadata.token_is_good(self._ip, token):
            return self._answer(HTTPStatus.UNAUTHORIZED)
        try:
            body = self.metadata.get(instance, self.path.partition("?")[0])
        except Exception:  # the session's callback for credentials may fail in any way
            _log.exception("no answer for %s to %s", self.path, instance.instance_id)
            return self._answer(HTTPStatus.INTERNAL_SERVER_ERROR)
        return self._answer(HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK, body)

    do_HEAD = do_GET

    @property
    def _ip(self) -> str:
        return str(self.client_address[0])

    def _answer(self, status: HTTPStatus, body: bytes | None = None, headers: dict[str, str] | None = None) -> None:
        if body is None:
            body = f"<html><head><title>{status.value} - {status.phrase}</title></head></html>\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if status is HTTPStatus.OK else "text/html")
        self.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Return the Server header."""
        return "EC2ws"

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: the nodes' own logs say what they asked for."""
