"""The cluster's block in /etc/hosts.

Each line of it is one machine: address, then its names. The rest of the file is left as it is, but for one thing:
Debian and cloud-init map a machine's own name to 127.0.1.1, and a program in a job that tells the others its
address would tell them that. The name moves to the machine's own line in the block.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slurm_cluster.runtime.node import files

HOSTS_FILE = Path("/etc/hosts")
LOCK_FILE = Path("/run/slurm-cluster-hosts.lock")
BEGIN = "# BEGIN slurm-cluster: kept by slurm-cluster names"
END = "# END slurm-cluster"

Entries = dict[str, tuple[str, ...]]
"""Names by address."""

CLOUD_INIT_FILE = Path("/etc/cloud/cloud.cfg.d/99-slurm-cluster.cfg")
CLOUD_INIT_TEXT = (
    "# /etc/hosts is kept by slurm-cluster; cloud-init would write it anew at each boot.\nmanage_etc_hosts: false\n"
)


def parse(text: str) -> Entries:
    """Return the entries of the block in ``text``; none where there is no block."""
    block, _ = _split(text.splitlines())
    entries: Entries = {}
    for line in block:
        address, *names = line.split() or [""]
        if names:
            entries[address] = tuple(names)
    return entries


def render(text: str, entries: Mapping[str, tuple[str, ...]]) -> str:
    """Return ``text`` with its block replaced by one of ``entries``, in front of everything else."""
    own = {name for names in entries.values() for name in names}
    _, others = _split(text.splitlines())
    rest = [kept for line in others if (kept := _without_loopback_alias(line, own)) is not None]
    block = [f"{address} {' '.join(names)}" for address, names in sorted(entries.items())]
    return "\n".join([BEGIN, *block, END, *rest]) + "\n"


def _split(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines inside the block and all others; a marker without its partner bounds nothing."""
    if BEGIN in lines and END in lines[lines.index(BEGIN) :]:
        begin = lines.index(BEGIN)
        end = lines.index(END, begin)
        return lines[begin + 1 : end], lines[:begin] + lines[end + 1 :]
    return [], [line for line in lines if line not in (BEGIN, END)]


def _without_loopback_alias(line: str, own: set[str]) -> str | None:
    """Return a line without the names of ``own`` if it gives them a loopback address; None if nothing is left.

    A longer form of one of them, with a domain behind it, goes as well: DNS has the right address for that.
    """
    words = line.split("#", 1)[0].split()
    if not words or not words[0].startswith("127."):
        return line
    kept = [word for word in words[1:] if word not in own and word.split(".")[0] not in own]
    if kept == words[1:]:
        return line
    return f"{words[0]} {' '.join(kept)}" if kept else None


def merge(entries: Mapping[str, tuple[str, ...]], more: Mapping[str, tuple[str, ...]]) -> Entries:
    """Return ``entries`` with ``more`` over them: a name has one address, the newer one."""
    owner = {name: address for address, names in more.items() for name in names}
    merged: Entries = {}
    for address in (*entries, *more):
        # What stands already keeps its place: the first name of a line is its canonical one.
        kept = (name for name in entries.get(address, ()) if owner.get(name, address) == address)
        names = tuple(dict.fromkeys((*kept, *more.get(address, ()))))
        if names:
            merged[address] = names
    return merged


def update(change: Callable[[Entries], Entries], *, hosts_file: Path = HOSTS_FILE, lock_file: Path = LOCK_FILE) -> bool:
    """Replace the block by ``change`` of its entries, one writer at a time; return whether the file changed."""
    with _lock(lock_file):
        text = (files.read(hosts_file) or b"").decode(errors="replace")
        return files.replace(hosts_file, render(text, change(parse(text))))


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
