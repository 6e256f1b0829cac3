"""What is wrong with what the caller gave."""

from __future__ import annotations


class InputError(ValueError):
    """A template, parameter or role cannot be used: what was given, what is allowed, what to change."""
