"""What bootstrap has done in this boot, for people and for the programs that wait.

``STATUS_FILE`` holds ``{"boot_id", "state": "running"|"ready"|"failed", "step", "reason", "steps": [...]}``; each step
is ``{"name", "started", "ended"}`` in seconds since the epoch. While a step tries again, ``trouble`` says why.

A node is ready when the state is ``ready`` *and* the boot id is that of the running kernel: a file of an earlier boot
proves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slurm_cluster.model.node_files import FAILURE_PREFIX, READY_LINE, STATUS_FILE
from slurm_cluster.runtime.node import files, troubles

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
CONSOLE = Path("/dev/console")
_REASON_LENGTH = 1500


def failure_line(step: str, reason: str) -> str:
    """Return the one line that a failed boot leaves on the console."""
    flat = " ".join(reason.split())
    return f"{FAILURE_PREFIX} step={step} reason={flat[:_REASON_LENGTH]}"


class Status:
    """Records steps as they run.

    Args:
        path: the status file.
        console: where the line that says how the boot ended goes, besides standard error.
        boot_id: id of this boot; read from the kernel when not given.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        path: Path = STATUS_FILE,
        *,
        console: Path = CONSOLE,
        boot_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._console = console
        self._clock = clock
        self._steps: list[dict[str, Any]] = []
        self._value: dict[str, Any] = {
            "boot_id": boot_id or BOOT_ID_FILE.read_text().strip(),
            "state": "running",
            "step": "",
            "reason": None,
            "steps": self._steps,
        }

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Record the step that runs inside; an exception fails the boot, prints its line and goes on upward."""
        record: dict[str, Any] = {"name": name, "started": self._clock(), "ended": None}
        self._steps.append(record)
        self._value["step"] = name
        self._write()
        try:
            with troubles.heard_by(self._trouble):
                yield
        except BaseException as problem:
            reason = str(problem) or type(problem).__name__
            record["ended"] = self._clock()
            self._value.update(state="failed", reason=reason)
            self._write()
            self._announce(failure_line(name, reason))
            raise
        record["ended"] = self._clock()
        self._value.pop("trouble", None)
        self._write()

    def ready(self) -> None:
        """Record that every step of this boot is done, and print so: on the console a failure may stand before it."""
        self._value["state"] = "ready"
        self._write()
        self._announce(READY_LINE)

    def _trouble(self, text: str) -> None:
        self._value["trouble"] = " ".join(text.split())[:_REASON_LENGTH]
        self._write()

    def _write(self) -> None:
        files.replace(self._path, json.dumps(self._value) + "\n", uid=os.geteuid(), gid=os.getegid())

    def _announce(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        # A console that cannot be written to must not hide how it ended, which is in the status file as well.
        with contextlib.suppress(OSError), self._console.open("w") as stream:
            stream.write(line + "\n")
