"""Says what happens as it happens, and remembers when.

Lines look like ``+  12.3s cpu-static-1     bootstrap: munge``. Times are seconds since the rehearsal began.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_cluster.model.node_files import FAILURE_PREFIX, STATUS_FILE

Clock = Callable[[], float]


@dataclass(frozen=True)
class Span:
    """Something that took time: what, and from when to when in seconds since the rehearsal began."""

    what: str
    began: float
    ended: float
    failed: bool = False
    parts: tuple[tuple[str, float, float], ...] = ()
    """Its steps, where they are known: name, began, ended."""


class Progress:
    """Prints lines and keeps spans for the report; usable from several threads.

    Args:
        emit: takes each finished line.
        clock: seconds since the epoch; the nodes' status files use the same clock.
    """

    def __init__(self, emit: Callable[[str], None], *, clock: Clock = time.time) -> None:
        self._emit = emit
        self._clock = clock
        self.began = clock()
        """Epoch seconds."""
        self._lock = threading.Lock()
        self._spans: list[Span] = []

    def now(self) -> float:
        """Return the seconds since the rehearsal began."""
        return self._clock() - self.began

    def since_began(self, epoch: float) -> float:
        """Return an epoch time of this machine's clock as seconds since the rehearsal began."""
        return epoch - self.began

    def say(self, text: str, *, who: str = "") -> None:
        """Print one event; ``who`` is the node or part it happens to."""
        with self._lock:
            for line in text.splitlines():
                self._emit(f"+{self.now():6.1f}s {who:<16} {line}")

    def record(self, span: Span) -> None:
        """Keep a span."""
        with self._lock:
            self._spans.append(span)

    @contextmanager
    def recorded(self, what: str) -> Iterator[None]:
        """Keep the block as a span, a failed one if it raises."""
        began, failed = self.now(), True
        try:
            yield
            failed = False
        finally:
            self.record(Span(what, began, self.now(), failed))

    def spans(self) -> list[Span]:
        """Return the spans in the order of their beginning."""
        with self._lock:
            return sorted(self._spans, key=lambda span: (span.began, span.ended))


@dataclass(frozen=True)
class Status:
    """A node's status file, see runtime.node.status."""

    boot_id: str
    state: str
    step: str
    reason: str | None
    steps: tuple[tuple[str, float, float | None], ...]
    """Name, begin and end in epoch seconds."""

    @classmethod
    def parse(cls, text: str) -> Status:
        """Read the file's JSON text."""
        value: dict[str, Any] = json.loads(text)
        steps = tuple((step["name"], step["started"], step["ended"]) for step in value["steps"])
        return cls(value["boot_id"], value["state"], value["step"], value["reason"], steps)


def read_status(root: Path) -> Status | None:
    """Return the status that the node below ``root`` has written, or None before it has."""
    try:
        return Status.parse((root / STATUS_FILE.relative_to("/")).read_text())
    except FileNotFoundError:
        return None


class NodeProgress:
    """Follows one boot of one node: prints each step once and keeps its spans."""

    def __init__(self, progress: Progress, node: str) -> None:
        self._progress = progress
        self._node = node
        self._boot = progress.now()
        self._shown: set[tuple[str, float]] = set()
        self._finished = False
        self.status: Status | None = None
        self.failure: str | None = None
        """Why this boot made no node, once that is known."""
        progress.say("boot", who=node)

    def observe(self, status: Status | None, boot_id: str) -> None:
        """Take the status file as it is now; one that an earlier boot wrote says nothing of this one."""
        if status is None or status.boot_id != boot_id:
            return
        self.status = status
        for name, began, _ in status.steps:
            if (name, began) not in self._shown:
                self._shown.add((name, began))
                self._progress.say(f"bootstrap: {name}", who=self._node)
        if status.state != "running" and not self._finished:
            self._finished = True
            self._finish(status)

    def observe_console(self, text: str) -> None:
        """Take what this boot has written to the console; user data that fails before bootstrap says so there."""
        if self.failure is None and self.status is None:
            line = next((line for line in text.splitlines() if FAILURE_PREFIX in line), None)
            if line is not None:
                self.failure = line[line.index(FAILURE_PREFIX) :].strip()
                self._progress.record(Span(f"{self._node}: boot", self._boot, self._progress.now(), failed=True))
                self._progress.say(self.failure, who=self._node)

    def _finish(self, status: Status) -> None:
        began, ended = self._progress.now(), self._progress.now()
        if status.steps:
            began = self._progress.since_began(status.steps[0][1])
        since = self._progress.since_began
        parts = tuple((name, since(start), ended if end is None else since(end)) for name, start, end in status.steps)
        failed = status.state == "failed"
        self._progress.record(Span(f"{self._node}: boot", self._boot, began))
        self._progress.record(Span(f"{self._node}: bootstrap", began, ended, failed, parts))
        if failed:
            self.failure = f"bootstrap failed in step {status.step}: {status.reason}"
        self._progress.say(self.failure or "ready", who=self._node)
