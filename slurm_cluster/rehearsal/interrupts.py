"""Turns the signals that ask a process to end into an exception, and holds them back where one would leave a mess."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Interrupts:
    """While entered, the signals raise Interrupted in the main thread, except inside ``held``.

    Outside the main thread, where Python takes no signals, it changes nothing.
    """

    def __init__(self) -> None:
        self._holds = 0
        self._pending: int | None = None
        self._on_held: Callable[[str], None] = lambda text: None
        self._former: dict[signal.Signals, signal.Handlers | Callable[[int, FrameType | None], object] | int | None]
        self._former = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        self._former.clear()

    @contextmanager
    def held(self, say: Callable[[str], None] = lambda text: None) -> Iterator[None]:
        """Hold signals back; one that came raises Interrupted at the end, unless the block itself raised.

        Args:
            say: told of a signal that is held back, so that an impatient user learns why nothing stops.
        """
        self._holds += 1
        former, self._on_held = self._on_held, say
        try:
            yield
        finally:
            self._on_held = former
            self._holds -= 1
        if self._pending is not None and self._holds == 0:
            number, self._pending = self._pending, None
            raise Interrupted(number)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._holds == 0:
            raise Interrupted(number)
        self._pending = number
        self._on_held(f"{signal.Signals(number).name}: still removing what was made; this ends by itself")
