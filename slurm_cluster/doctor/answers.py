"""How an answer travels in the comment of a job."""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

ACK = "slurm-doctor:taken"
_PREFIX = "slurm-doctor:"
_LENGTH = 960
"""Of a piece; Slurm refuses comments of more than 1,024 characters (job_mgr.c _test_job_desc_fields)."""

_PIECE = re.compile(rf"{_PREFIX}(\d+)/(\d+):(\S*)")
_COMMENT = re.compile(r"\bComment=(\S+)")


def pieces(text: str) -> list[str]:
    """Return the comments that carry a text without blanks, one after the other."""
    parts = [text[start : start + _LENGTH] for start in range(0, len(text), _LENGTH)]
    return [f"{_PREFIX}{number}/{len(parts)}:{part}" for number, part in enumerate(parts, 1)]


def piece(comment: str) -> tuple[int, int, str] | None:
    """Return number, how many there are, and text of a piece; None for any other comment."""
    found = _PIECE.fullmatch(comment)
    return (int(found[1]), int(found[2]), found[3]) if found else None


def comment(shown: str) -> str:
    """Return the comment of a job from ``scontrol --oneliner show job``, empty if it has none."""
    found = _COMMENT.search(shown)
    return found[1] if found else ""


def plain(text: str) -> dict[str, Any]:
    """Return an answer that was printed.

    Raises:
        ValueError: it is no JSON object.
    """
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("the answer is no JSON object")
    return value


def decode(text: str) -> dict[str, Any]:
    """Return the answer that was sent, compressed by zlib or by gzip.

    Raises:
        ValueError: it is no such thing.
    """
    try:
        return plain(zlib.decompress(base64.b64decode(text), wbits=zlib.MAX_WBITS | 32).decode())
    except zlib.error as problem:
        raise ValueError(str(problem)) from problem
