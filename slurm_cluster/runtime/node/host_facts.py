"""What a machine can say of its disks, mounts, addresses and ports, whoever made it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_cluster.model.flows import PortRange
from slurm_cluster.runtime.node import probe_connections

MOUNTS_FILE = Path("/proc/self/mounts")
FSTAB_FILE = Path("/etc/fstab")
ROUTES_FILE = Path("/proc/net/fib_trie")
KERNEL_PORTS_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
ENOUGH_PORTS = 4
"""An srun listens on four (slurm.conf(5) SrunPortRange)."""

_STAT_SECONDS = 4.0
_MOST_MOUNTS = 50
_NEVER_WRITTEN = frozenset({"squashfs", "iso9660", "erofs", "cramfs", "udf"})
_REMOTE = re.compile(r"^(nfs4?|cifs|smb3|lustre|ceph|beegfs|gpfs|glusterfs|9p|fuse(\..*)?|efs|panfs|pvfs2|orangefs)$")
_LOCAL = re.compile(r"^(ext[234]|xfs|btrfs|zfs|f2fs|jfs|reiserfs|bcachefs|overlay|tmpfs)$")
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_LISTENING = "0A"
"""State in /proc/net/tcp, proc_pid_net(5)."""

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of /proc/self/mounts, see fstab(5)."""

    device: str
    point: str
    kind: str
    options: tuple[str, ...]


def mounts(text: str) -> list[Mount]:
    """Read mounts in the format of fstab(5); a later one of the same point hides the earlier."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        words = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), word) for word in line.split()]
        if len(words) >= 4 and not words[0].startswith("#"):
            found[words[1]] = Mount(device=words[0], point=words[1], kind=words[2], options=tuple(words[3].split(",")))
    return list(found.values())


def mount_of(path: str, among: Iterable[Mount]) -> Mount | None:
    """Return the mount that a path lies on, without touching it."""
    over = [item for item in among if path == item.point or path.startswith(f"{item.point.rstrip('/')}/")]
    return max(over, key=lambda item: len(item.point), default=None)


def written(own: str) -> list[str]:
    """Return paths that must take writes: where Slurm keeps its own files, and what any machine writes to."""
    return list(dict.fromkeys((own, "/tmp", "/var/log", "/")))  # noqa: S108 - it is looked at, nothing is put there


def of_file_systems(paths: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """Return the facts about room, mounts that hang and mounts that take no writes, to be gathered."""
    return {"disks": lambda: disks(paths), "hung": hung, "read_only": lambda: read_only(paths)}


def read_only(paths: Sequence[str]) -> list[dict[str, str]]:
    """Return mounts that take no writes although ``paths`` lie on them, or /etc/fstab says that they do."""
    here = mounts(MOUNTS_FILE.read_text())
    try:
        planned = {item.point: item for item in mounts(FSTAB_FILE.read_text())}
    except OSError:
        planned = {}
    found: dict[str, dict[str, str]] = {}
    for mount in here:
        plan = planned.get(mount.point)
        unplanned = plan is not None and "ro" not in plan.options and plan.kind == mount.kind
        needing = next((path for path in paths if mount_of(path, here) is mount), "")
        if "ro" in mount.options and mount.kind not in _NEVER_WRITTEN and (unplanned or needing):
            why = f"{needing} lies on it" if needing else f"{FSTAB_FILE} mounts it for writing"
            found[mount.point] = {"mount": mount.point, "device": mount.device, "kind": mount.kind, "why": why}
    return list(found.values())


def hung() -> list[dict[str, str]]:
    """Return mounts whose file system does not answer within four seconds; remote ones and disks are asked."""
    here = mounts(MOUNTS_FILE.read_text())
    asked = [item for item in here if _REMOTE.match(item.kind) or _LOCAL.match(item.kind)]
    asked.sort(key=lambda item: not _REMOTE.match(item.kind))
    with ThreadPoolExecutor(max_workers=_MOST_MOUNTS) as pool:
        # a file system that answers with an error does answer
        answers = list(pool.map(lambda item: _answer(["stat", "--file-system", item.point]), asked[:_MOST_MOUNTS]))
    return [
        {"mount": item.point, "device": item.device, "kind": item.kind}
        for item, answer in zip(asked, answers, strict=False)
        if answer is None
    ]


def disks(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return how much room there is where ``paths`` lie, one entry a file system that answers.

    ``available`` and ``size`` are bytes, ``inodes_free`` and ``inodes`` files; ``inodes`` is 0 where they are no limit.
    """
    here = mounts(MOUNTS_FILE.read_text())
    with ThreadPoolExecutor(max_workers=max(1, len(paths))) as pool:
        answers = list(pool.map(lambda path: _room(path, here), dict.fromkeys(_existing(path, here) for path in paths)))
    found: dict[str, dict[str, Any]] = {}
    for item in answers:
        if item is not None:
            found.setdefault(item.pop("id"), item)
    return list(found.values())


def _existing(path: str, here: Sequence[Mount]) -> str:
    """Return the path of the nearest folder that could exist, by its name alone for what a hung mount holds."""
    mount = mount_of(path, here)
    if mount is not None and _REMOTE.match(mount.kind):
        return mount.point
    while path != "/" and not Path(path).exists():
        path = str(Path(path).parent)
    return path


def _room(path: str, here: Sequence[Mount]) -> dict[str, Any] | None:
    text = _answer(["stat", "--file-system", "--format=%i %S %b %a %c %d", path])
    words = (text or "").split()
    if len(words) != 6:
        return None
    block, blocks, free, inodes, inodes_free = (int(word) for word in words[1:])
    mount = mount_of(path, here)
    return {
        "id": words[0] if words[0] != "0" else path,
        "path": path,
        "mount": mount.point if mount else path,
        "available": free * block,
        "size": blocks * block,
        "inodes_free": inodes_free,
        "inodes": inodes,
    }


def _answer(argv: Sequence[str], *, seconds: float = _STAT_SECONDS) -> str | None:
    """Return what a program printed, None if it did not end in time.

    A program that waits for a dead file server cannot even be killed, so nobody waits for its end.
    """
    with tempfile.TemporaryFile(dir=_scratch()) as output:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            return None
        output.seek(0)
        return output.read().decode(errors="replace")


def _scratch() -> str | None:
    """Return a folder in memory: no disk that is full or hung keeps a probe from its answer."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - an unnamed file


def addresses() -> list[str]:
    """Return this machine's IPv4 addresses, loopback aside."""
    found: dict[str, None] = {}
    last = ""
    for line in ROUTES_FILE.read_text().splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words == ["/32", "host", "LOCAL"] and not last.startswith("127."):
            found[last] = None
    return list(found)


def address_towards(host: str) -> str:
    """Return the address from which this machine's connections to ``host`` come; nothing is sent.

    Raises:
        OSError: there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])


def kernel_ports() -> PortRange:
    """Return the range from which the kernel of this machine chooses ports that a program leaves to it."""
    first, last = KERNEL_PORTS_FILE.read_text().split()
    return PortRange(int(first), int(last))


def free_ports(inside: PortRange, *, enough: int = ENOUGH_PORTS) -> dict[str, Any]:
    """Try to listen on ports of a range, as srun does, until ``enough`` at once could be had.

    Args:
        inside: the range.
        enough: how many an srun needs.

    Returns:
        ``range``, ``size``, ``enough``, and ``free``, which is ``enough`` at most.
    """
    free = 0
    with contextlib.ExitStack() as taken:
        ports = range(inside.first, inside.last + 1)
        for port in random.sample(ports, len(ports)):
            if free == enough:
                break
            listener = probe_connections.listener(port)
            if listener is not None:
                taken.callback(listener.close)
                free += 1
    return {"range": str(inside), "size": len(ports), "enough": enough, "free": free}


def listening(name: str, proc: Path = Path("/proc")) -> list[int]:
    """Return the TCP ports on which processes of that name listen; those in containers are another machine's."""
    here, inodes = (proc / "self/ns/pid").readlink(), set[str]()
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            # Debian's programs have a name of their own behind the usual one
            known = (process / "comm").read_text().strip() in (name, f"{name}-wlm")
            if known and (process / "ns/pid").readlink() == here:
                inodes |= _sockets(process)
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in (proc / "self/net" / table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING and words[9] in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return sorted(ports)


def _sockets(process: Path) -> set[str]:
    """Return the inodes of a process's sockets; it may close files meanwhile."""
    found: set[str] = set()
    for link in (process / "fd").iterdir():
        with contextlib.suppress(OSError):
            found |= set(_SOCKET.findall(str(link.readlink())))
    return found


def answers_ping(host: str, *, seconds: float = 2) -> bool:
    """Return whether a machine answers an ICMP echo request; False too where none may be sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as probe:
            probe.settimeout(seconds)
            probe.connect((host, 0))
            # type 8, code 0, checksum, identifier, sequence number
            probe.send(struct.pack("!BBHHH", 8, 0, 0xF7FE, 0x0000, 0x0001))
            while True:
                packet = probe.recv(1024)
                if packet[(packet[0] & 0x0F) * 4] == 0:
                    return True
    except OSError:
        return False
