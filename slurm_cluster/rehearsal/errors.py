"""The rehearsal's own error."""

from __future__ import annotations


class RehearsalError(RuntimeError):
    """The rehearsal failed; the message says what, and what to do where that is known."""
