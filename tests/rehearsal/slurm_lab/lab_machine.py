"""A machine without an init system: a root file system, its own network, process, mount and host-name namespaces.

The namespaces have no names and the file system is an overlay inside the mount namespace, so everything of a machine
is gone with its first process, and that process dies with the program that started it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

# Process 1: lays out the root, then waits and reaps what its children orphan (slurmstepd detaches itself).
_BOOT = """
set -e
hostname "$1"
mount -t tmpfs lab /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir="$2",upperdir=/mnt/upper,workdir=/mnt/work lab /mnt/root
mount --rbind /dev /mnt/root/dev
mount --rbind /sys /mnt/root/sys
mount -t proc proc /mnt/root/proc
mount -t tmpfs run /mnt/root/run
ip link set lo up
exec chroot /mnt/root sh -c 'touch /run/booted; while :; do sleep 5; done'
"""
_BOOT_SECONDS = 20.0


class LabMachine:
    """One machine, running from ``__enter__`` to ``__exit__``.

    Args:
        name: its host name.
        root: root file system, never written to.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None
        self.pid1 = 0

    def __enter__(self) -> Self:
        unshare = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child"]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", _BOOT, "boot", self.name, str(self._root)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            self._await_boot(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def _await_boot(self, process: subprocess.Popen[bytes]) -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + _BOOT_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                assert process.stderr is not None
                raise RuntimeError(f"lab machine {self.name} did not start: {process.stderr.read().decode()}")
            self.pid1 = int(children.read_text().split()[0]) if children.read_text() else 0
            if self.pid1 and Path(f"/proc/{self.pid1}/root/run/booted").exists():
                return
            time.sleep(0.05)
        raise RuntimeError(f"lab machine {self.name} did not start within {_BOOT_SECONDS:.0f} s")

    def kill(self) -> None:
        """End every process of the machine; its mounts and its network go with them."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` as root inside the machine."""
        enter = ["nsenter", "--target", str(self.pid1), "--mount", "--uts", "--net", "--pid", "--root", "--wd"]
        return [*enter, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", *argv]

    def run(self, argv: Sequence[str], *, timeout: float, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` inside the machine and return what it printed and its exit status.

        Raises:
            subprocess.TimeoutExpired: it did not end within ``timeout`` seconds; it is killed.
        """
        return subprocess.run(
            self.command(argv), timeout=timeout, input=input, capture_output=True, text=True, check=False
        )

    def check(self, argv: Sequence[str], *, timeout: float = 30, input: str | None = None) -> str:
        """Run ``argv`` and return its standard output.

        Raises:
            RuntimeError: its exit status was not 0.
        """
        return self._output(self.run(argv, timeout=timeout, input=input))

    def _output(self, done: subprocess.CompletedProcess[str]) -> str:
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {done.args} exited {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def network(self, argv: Sequence[str], *, input: str | None = None) -> str:
        """Run a program of this host, such as ``ip`` or ``nft``, on the machine's network and return its output.

        Raises:
            RuntimeError: its exit status was not 0.
        """
        enter = ["nsenter", "--target", str(self.pid1), "--net", *argv]
        return self._output(subprocess.run(enter, timeout=30, input=input, capture_output=True, text=True, check=False))

    def write(self, path: str, text: str) -> None:
        """Replace the file ``path`` inside the machine."""
        self.check(["sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1"', "write", path], input=text)

    def read(self, path: str) -> str:
        """Return the text of the file ``path`` inside the machine; empty when there is none."""
        return self.run(["cat", path], timeout=30).stdout
