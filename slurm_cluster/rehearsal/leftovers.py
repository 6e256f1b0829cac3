"""Finds and removes what machines and volumes of a session leave in the kernel and in /run, by name and by path.

Used at the end of every session and, after a session was killed, by the next one. Network namespaces are not here.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.paths import SessionPaths, name

_NSPAWN = Path("/run/systemd/nspawn")
_OF_MACHINES = ("propagate", "unix-export")
"""Directories of nspawn with one directory a machine; the latter since systemd 256."""


def find(paths: SessionPaths) -> list[str]:
    """Return what there is of the session's machines and volumes; one line each, nothing when all is gone."""
    prefix = name(paths.session)
    return [
        *(f"cgroup {group}" for group in cgroups.names(prefix)),
        *(f"mount {point}" for point in mounts_below(paths.root)),
        *(f"loop device {device}" for device in loop_devices_below(paths.root)),
        *(f"directory {path}" for path in _directories(f"{prefix}*")),
    ]


def remove(paths: SessionPaths) -> list[str]:
    """End and remove everything of the session's machines and volumes but their files; return what was found.

    It may be called at any time and again: what is gone already is no error.
    """
    found = find(paths)
    prefix = name(paths.session)
    # A machine's groups may have ended with its processes, and its files may be gone before its groups.
    of_files = [f"{prefix}{directory.name}" for directory in paths.nodes.glob("*")]
    for machine in {*cgroups.names(prefix), *of_files}:
        remove_machine(machine, paths.nodes / machine.removeprefix(prefix))
    for point in mounts_below(paths.root):
        _unmount(point)
    for device in loop_devices_below(paths.root):
        detach_loop(device)
    remove_directories(f"{prefix}*")
    return found


def remove_machine(machine: str, directory: Path) -> None:
    """Kill the machine of that name and remove its control groups, mount and nspawn's records of it."""
    groups = cgroups.of_node(machine)
    groups.kill()
    groups.remove()
    root = directory / "root"
    if root.is_mount():
        _remove_lock(root)
        _unmount(root)
    remove_directories(machine)
    (directory / "pid1").unlink(missing_ok=True)


def remove_directories(machines: str) -> None:
    """Remove nspawn's directories of dead machines, by a pattern of their names; over some it would not start again."""
    for path in _directories(machines):
        if path.is_mount():
            _unmount(path)
        path.rmdir()


def mounts_below(directory: Path) -> list[Path]:
    """Return the mount points below ``directory``, innermost first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split()[4])
        if point.is_relative_to(directory):
            points.append(point)
    return points[::-1]


def loop_devices_below(directory: Path) -> list[str]:
    """Return the loop devices whose file is below ``directory``; a deleted file counts."""
    found = []
    for backing in sorted(Path("/sys/block").glob("loop*/loop/backing_file")):
        with contextlib.suppress(OSError):  # detached while this reads
            if Path(backing.read_text().strip().removesuffix(" (deleted)")).is_relative_to(directory):
                found.append(f"/dev/{backing.parts[3]}")
    return found


def detach_loop(device: str) -> None:
    """Detach a loop device from its file.

    Raises:
        subprocess.CalledProcessError: it could not be; its standard error says why.
    """
    subprocess.run(["losetup", "--detach", device], check=True, capture_output=True, text=True)


def _unmount(point: Path) -> None:
    if subprocess.run(["umount", str(point)], capture_output=True).returncode != 0:
        # Somebody looks at it, a shell perhaps: it goes when they leave.
        subprocess.run(["umount", "--lazy", str(point)], check=True)


def _remove_lock(root: Path) -> None:
    """Remove nspawn's lock file for a root directory; named by device and inode, it could meet another later."""
    status = root.stat()
    (_NSPAWN / "locks" / f"inode-{status.st_dev}:{status.st_ino}").unlink(missing_ok=True)


def _directories(machines: str) -> list[Path]:
    return [path for kind in _OF_MACHINES for path in (_NSPAWN / kind).glob(machines)]
