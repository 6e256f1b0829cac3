"""What keeps a step that goes on trying, for whoever asks while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Have ``listener`` told of every trouble inside the block."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(trouble: object) -> None:
    """Tell why the last attempt did not succeed, before the next one; nobody need be listening."""
    listener = _listener.get()
    if listener is not None:
        listener(str(trouble))
