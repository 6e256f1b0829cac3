"""Network namespaces by name, as iproute2 keeps them in /run/netns."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

NETNS_DIR = Path("/run/netns")

_CLONE_NEWNET = 0x40000000  # sched.h
_BACKLOG = 128
_libc = ctypes.CDLL(None, use_errno=True)
_T = TypeVar("_T")


def create(netns: str) -> None:
    """Make the namespace ``netns``, its loopback up.

    Raises:
        RuntimeError: it exists already, or this process is not root.
    """
    run(["ip", "netns", "add", netns])
    run(["ip", "-netns", netns, "link", "set", "lo", "up"])


def delete(netns: str) -> None:
    """Remove ``netns`` if it exists. Its interfaces vanish once no process and no socket is in it any more."""
    if netns in names():
        run(["ip", "netns", "delete", netns])


def names(prefix: str = "") -> list[str]:
    """Return the names of the namespaces that start with ``prefix``, sorted."""
    if not NETNS_DIR.exists():
        return []
    return sorted(entry.name for entry in NETNS_DIR.iterdir() if entry.name.startswith(prefix))


def run(argv: Sequence[str], *, netns: str | None = None, text: str | None = None) -> str:
    """Run ``argv``, in ``netns`` if given, with ``text`` as its input, and return what it printed.

    Raises:
        RuntimeError: it failed; the message holds what it printed on stderr.
    """
    command = [*(("ip", "netns", "exec", netns) if netns else ()), *argv]
    # A process group of its own, so that Ctrl-C at the terminal ends no change half-way.
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, process_group=0)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def inside(netns: str, function: Callable[[], _T]) -> _T:
    """Call ``function`` in ``netns`` and return its result; the calling thread stays where it is.

    What the function makes there, such as a socket, stays in ``netns`` and can be used from any thread.

    Raises:
        OSError: there is no such namespace; also whatever ``function`` raises.
    """
    result: list[_T] = []
    problem: list[BaseException] = []

    def enter() -> None:
        try:
            _set_thread_namespace(netns)
            result.append(function())
        except BaseException as error:  # raised again in the caller's thread
            problem.append(error)

    thread = threading.Thread(target=enter, name=f"inside {netns}")
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return result[0]


def listening_socket(netns: str, ip: str, port: int, kind: Literal["tcp", "udp"]) -> socket.socket:
    """Return a socket in ``netns`` bound to ``ip`` and ``port``; a TCP one listens.

    Raises:
        OSError: there is no such namespace, or the address is in use or not local there.
    """

    def bind() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        try:
            if kind == "tcp":
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((ip, port))
            if kind == "tcp":
                made.listen(_BACKLOG)
        except BaseException:
            made.close()
            raise
        return made

    return inside(netns, bind)


def set_sysctl(netns: str, values: dict[str, int]) -> None:
    """Write ``values``, by path below /proc/sys/net, in ``netns``."""

    def write() -> None:
        for name, value in values.items():
            Path("/proc/sys/net", name).write_text(str(value))

    inside(netns, write)


def _set_thread_namespace(netns: str) -> None:
    # os.setns came with Python 3.12.
    descriptor = os.open(NETNS_DIR / netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns to {netns}: {os.strerror(number)}")
    finally:
        os.close(descriptor)
