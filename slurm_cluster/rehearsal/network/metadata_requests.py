"""What the instance metadata service answers to a request, apart from HTTP itself.

Source: EC2 user guide, "Use the Instance Metadata Service to access instance metadata".
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import unquote

from slurm_cluster.rehearsal.network.instance_metadata import (
    InstanceMetadata,
    InstanceProfile,
    RoleCredentials,
    Tree,
    dynamic,
    meta_data,
)

VERSIONS = (
    *("1.0", "2007-01-19", "2007-03-01", "2007-08-29", "2007-10-10", "2007-12-15", "2008-02-01", "2008-09-01"),
    *("2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19"),
    *("2016-06-30", "2016-09-02", "2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03"),
    *("2021-03-23", "2021-07-15", "2022-09-24", "2024-04-11", "latest"),
)
"""First members of the paths; EC2 serves them all alike but for what was added later."""

TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 - a header's name
TOKEN_TTL = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105 - a header's name

_MAX_TTL_SECONDS = 21600
# boto3 asks for new credentials when 15 minutes are left, so older ones must be gone by then.
_RENEW_BEFORE = timedelta(minutes=20)
_log = logging.getLogger(__name__)

Lookup: TypeAlias = Callable[[str], InstanceMetadata | None]
Credentials: TypeAlias = Callable[[InstanceProfile], RoleCredentials]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Status, body and further headers; without a body the status speaks for itself."""

    status: HTTPStatus
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class MetadataRequests:
    """Answers requests of all instances; may be called from any thread.

    Args:
        lookup: returns the instance that has a private address, None if there is none; asked at every request.
        credentials: returns new credentials of a profile's role; asked again before they expire. Each instance gets
            its own.
    """

    def __init__(self, *, lookup: Lookup, credentials: Credentials) -> None:
        self._lookup = lookup
        self._new_credentials = credentials
        self._lock = threading.Lock()
        self._tokens: dict[str, tuple[str, float]] = {}
        self._credentials: dict[tuple[str, str], RoleCredentials] = {}

    def put(self, ip: str, path: str, *, ttl: str, forwarded: bool) -> Answer:
        """Answer a PUT of the instance at ``ip``: a session token, good for this instance alone.

        Args:
            ip: where it comes from.
            path: what it asks for.
            ttl: its TOKEN_TTL header: seconds, 1 to 21600.
            forwarded: whether it has an X-Forwarded-For header.
        """
        if forwarded:  # a request through a proxy never gets a token
            return Answer(status=HTTPStatus.FORBIDDEN)
        if path != "/latest/api/token":
            return Answer(status=HTTPStatus.NOT_FOUND)
        if not (ttl.isascii() and ttl.isdigit() and 1 <= int(ttl) <= _MAX_TTL_SECONDS):
            return Answer(status=HTTPStatus.BAD_REQUEST)
        token = secrets.token_urlsafe(40)
        now = time.monotonic()
        with self._lock:
            self._tokens = {key: value for key, value in self._tokens.items() if value[1] > now}
            self._tokens[token] = (ip, now + int(ttl))
        return Answer(status=HTTPStatus.OK, body=token.encode(), headers={TOKEN_TTL: ttl})

    def get(self, ip: str, path: str, *, token: str | None) -> Answer:
        """Answer a GET of the instance at ``ip``, which sent ``token`` in its TOKEN header.

        A directory is listed, with or without a slash at its end: a member a line, directories with a slash.
        """
        instance = self._lookup(ip)
        if instance is None:
            return Answer(status=HTTPStatus.NOT_FOUND)
        if (token is None and instance.token_required) or (token is not None and not self._is_good(token, ip)):
            return Answer(status=HTTPStatus.UNAUTHORIZED)
        try:
            body = self._read(instance, path)
        except Exception:  # the session's callback for credentials may fail in any way
            _log.exception("no answer for %s to %s", path, instance.instance_id)
            return Answer(status=HTTPStatus.INTERNAL_SERVER_ERROR)
        return Answer(status=HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK, body=body)

    def _is_good(self, token: str, ip: str) -> bool:
        with self._lock:
            owner, expires = self._tokens.get(token, ("", 0.0))
        return owner == ip and time.monotonic() < expires

    def _read(self, instance: InstanceMetadata, path: str) -> bytes | None:
        members = [unquote(part) for part in path.split("/")[1:]]
        wants_directory = members[-1:] == [""]
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
