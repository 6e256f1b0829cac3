"""The error that a person reads."""

from __future__ import annotations


class NodeError(RuntimeError):
    """Something that keeps a node from serving; the text says what was found and what to change."""
