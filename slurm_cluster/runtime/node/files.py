"""Files that are replaced whole, and only when they differ, so that a second run changes nothing."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def read(path: Path) -> bytes | None:
    """Return the content of ``path``, or None where there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def replace(path: Path, content: str | bytes, *, mode: int = 0o644, uid: int = 0, gid: int = 0) -> bool:
    """Make ``path`` hold ``content`` with this mode and owner; return whether anything changed.

    The new file takes the old one's place in one step: readers see either, never a part, and a secret is never
    readable by others for a moment.
    """
    data = content.encode() if isinstance(content, str) else content
    if read(path) == data:
        status = path.stat()
        if (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, uid, gid):
            return False
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), mode)
            os.fchown(stream.fileno(), uid, gid)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    return True
