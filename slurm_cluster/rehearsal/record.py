"""What a session tells other processes about itself: a file, written by its owner alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.paths import SessionPaths


class State(StrEnum):
    """What a session does."""

    STARTING = "starting"
    """It makes what is around the app; until its end there is no file."""
    DEPLOYING = "deploying"
    UP = "up"
    """Every node is ready."""
    FAILED = "failed"
    """Kept after a failure, to be looked into."""


@dataclass(frozen=True, kw_only=True)
class SessionRecord:
    """One session.

    Args:
        app: directory of the app.
        image: kind of the nodes' image.
        state: what it does.
        endpoint: URL of its AWS APIs on this machine.
        began: when, in epoch seconds.
    """

    app: str
    image: ImageKind
    state: State
    endpoint: str
    began: float

    def write(self, paths: SessionPaths) -> None:
        """Put it in place of an earlier one."""
        file = _file(paths)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(vars(self), indent=2) + "\n")
        draft.rename(file)

    @classmethod
    def read(cls, paths: SessionPaths) -> SessionRecord | None:
        """Return the session's record, None while there is none."""
        try:
            value = json.loads(_file(paths).read_text())
        except FileNotFoundError:
            return None
        return cls(**{**value, "image": ImageKind(value["image"]), "state": State(value["state"])})


def _file(paths: SessionPaths) -> Path:
    return paths.root / "session.json"
