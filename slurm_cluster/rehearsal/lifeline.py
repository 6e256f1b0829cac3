"""Ends a machine when the process that made it ends, however that happens."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WATCH = 'cat; echo 1 >"$1"'


class Lifeline:
    """A process that waits for the end of this one, then kills a control group.

    It holds the reading end of a pipe of which only this process has the writing end; the kernel closes that one even
    after SIGKILL.

    Args:
        kill_file: ``cgroup.kill`` of the group; it need not be there now.
    """

    def __init__(self, kill_file: Path) -> None:
        reading, self._writing = os.pipe()
        try:
            self._watcher = subprocess.Popen(
                ["sh", "-c", _WATCH, "sh", str(kill_file)],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is not for it
            )
        finally:
            os.close(reading)

    def cut(self) -> None:
        """End the watch; nothing is killed."""
        self._watcher.kill()
        self._watcher.wait()
        os.close(self._writing)
