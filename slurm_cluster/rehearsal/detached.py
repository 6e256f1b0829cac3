"""Starts the owner of a session as a process of its own and shows what it says, until its outcome is known."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from slurm_cluster.rehearsal import owner
from slurm_cluster.rehearsal.owner import Plan

_POLL_SECONDS = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PACKAGE_ROOT = Path(__file__).parents[2]


def perform(plan: Plan, show: Callable[[str], None]) -> int:
    """Have a process do what the plan says; return the exit status as soon as that is known.

    The session may live on then. A signal that asks this process to end before that is passed on.

    Args:
        plan: what to do; its paths must be absolute.
        show: takes what the owner says, whole lines with their ends.
    """
    reading, writing = os.pipe()
    # Nobody has to remove it: it is gone with the last process that has it open.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", owner.__name__, plan.to_text(), str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=_PACKAGE_ROOT,  # so that it finds this package, however this process did
            pass_fds=[writing],
            start_new_session=True,  # it survives its terminal
        )
        os.close(writing)
        with _passing_signals_on(process):
            said = _Tail(output, show)
            while not select.select([reading], [], [], _POLL_SECONDS)[0]:
                said.show()
            told = os.read(reading, 16)
            os.close(reading)
            code = int(told) if told else process.wait()
            said.show()
    if code < 0:  # it could say nothing itself
        show(f"rehearsal killed by signal {-code}; the next one removes what it left\n")
        return 128 - code
    return code


class _Tail:
    """Shows what is appended to a file."""

    def __init__(self, file: BinaryIO, show: Callable[[str], None]) -> None:
        self._file = file
        self._show = show
        self._shown = 0

    def show(self) -> None:
        """Show the lines that are complete and new."""
        while chunk := os.pread(self._file.fileno(), 65536, self._shown):
            whole = chunk[: chunk.rfind(b"\n") + 1]
            if not whole:
                return
            self._shown += len(whole)
            self._show(whole.decode(errors="replace"))


@contextmanager
def _passing_signals_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    former = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
