"""Values of a template: known ones, and symbols for what only a deployment knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Token:
    """A value that only the deployment knows; equal to itself and to nothing else.

    Args:
        text: how it is written, such as ``${HeadGroup.GroupId}``.
        key: what it is: kind and operands, the tuple that makes two tokens the same.
    """

    text: str
    key: tuple[Any, ...]

    def __str__(self) -> str:
        return self.text


Id = str | Token
"""Identity of a resource: a literal id such as sg-0123, or the token of a resource that a template makes."""
