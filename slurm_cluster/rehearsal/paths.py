"""Where the rehearsal keeps things on this machine, and how it names what it makes.

Every kernel object (network namespace, cgroup, machine) is named ``sc<session>-<part>``, so that whatever a killed
session left is found by its prefix.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "SLURM_CLUSTER_REHEARSAL_CACHE"
STATE_ROOT = Path("/var/lib/slurm-cluster-rehearsal")
_SESSION = re.compile(r"[0-9a-f]{4}")


def cache_dir() -> Path:
    """Return the directory of what sessions share and keep: images, the ministack environment.

    Without root, who can use only the latter, it is in the user's own cache.
    """
    own = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    return Path(os.environ.get(CACHE_VARIABLE) or own / "slurm-cluster-rehearsal")


def new_session() -> str:
    """Return a random session id: 4 lower-case hexadecimal digits."""
    return secrets.token_hex(2)


def name(session: str, part: str = "") -> str:
    """Return the name of a session's kernel object ``part``; without a part, the prefix of them all."""
    return f"sc{session}-{part}"


@dataclass(frozen=True)
class SessionPaths:
    """Files of one session, all below ``root``.

    Raises:
        ValueError: ``session`` is not a session id.
    """

    session: str

    def __post_init__(self) -> None:
        if not _SESSION.fullmatch(self.session):
            raise ValueError(f"session id {self.session!r} is not valid: give 4 lower-case hexadecimal digits")

    @property
    def root(self) -> Path:
        """Everything of the session."""
        return STATE_ROOT / self.session

    @property
    def nodes(self) -> Path:
        """One directory per instance id: overlay, console log, ``pid1``, ``agent-online``."""
        return self.root / "nodes"

    @property
    def volumes(self) -> Path:
        """One sparse file per volume id."""
        return self.root / "volumes"

    @property
    def log_dir(self) -> Path:
        """Logs of the rehearsal's own processes."""
        return self.root / "log"

    @property
    def lock(self) -> Path:
        """Held with flock by the living owner of the session; beside ``root``, so removal cannot race with it."""
        return STATE_ROOT / f"{self.session}.lock"
