"""One EBS volume on this machine: a sparse file behind a loop device, shown to a node as an NVMe disk."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_cluster.rehearsal import leftovers, node_exec
from slurm_cluster.rehearsal.paths import SessionPaths

if TYPE_CHECKING:
    from slurm_cluster.rehearsal.machine import Machine

_ID = re.compile(r"vol-([0-9a-f]+)")
_GIB = 2**30
_PLUG = """
n=1; while [ -e /dev/nvme${n}n1 ]; do n=$((n + 1)); done
mknod -m 660 /dev/nvme${n}n1 b "$1" "$2"
chgrp disk /dev/nvme${n}n1
mkdir -p /dev/disk/by-id
ln -sfn ../../nvme${n}n1 "$3"
"""
_UNPLUG = """
if [ -L "$1" ]; then rm -f "$(readlink -f "$1")" "$1"; fi
"""


class VolumeInUse(RuntimeError):
    """The volume cannot be attached or detached now; EC2 says VolumeInUse, or stays in ``detaching``."""


class Volume:
    """A volume whose contents stay until ``delete``, whatever it is attached to.

    Its file is ``paths.volumes/<volume id>``; only what is written takes room.

    Args:
        paths: of the session.
        volume_id: EBS volume id, ``vol-`` and hexadecimal digits.
        size_gib: its size; that of an existing file is not changed.

    Raises:
        ValueError: the id is not a volume id, or the size not positive.
    """

    def __init__(self, paths: SessionPaths, volume_id: str, *, size_gib: int) -> None:
        match = _ID.fullmatch(volume_id)
        if match is None:
            raise ValueError(f"volume id {volume_id!r} is not valid: give vol- and hexadecimal digits")
        if size_gib < 1:
            raise ValueError(f"volume {volume_id} cannot have {size_gib} GiB: give 1 or more")
        self.volume_id = volume_id
        self.link = f"/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol{match[1]}"
        self._file = paths.volumes / volume_id
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if not self._file.exists():
            with self._file.open("wb") as file:
                file.truncate(size_gib * _GIB)
        self._device: str | None = None
        self._machine: Machine | None = None

    @property
    def machine(self) -> Machine | None:
        """What it is attached to."""
        return self._machine

    def attach(self, machine: Machine) -> None:
        """Give it to a machine; a running one sees it at once, one that is off as soon as it boots.

        Raises:
            VolumeInUse: another machine has it.
        """
        if self._machine is machine:
            return
        if self._machine is not None:
            raise VolumeInUse(f"volume {self.volume_id} is attached to {self._machine.instance_id}: detach it first")
        self._device = self._loop_device()
        machine.hold(self)
        self._machine = machine
        if machine.running:
            self.plug(machine.pid1)

    def plug(self, pid1: int) -> None:
        """Make its device and its by-id link in a running node; a node forgets them when it ends."""
        assert self._device is not None  # noqa: S101  (attach comes first)
        number = Path(self._device).stat().st_rdev
        self._in_node(pid1, _PLUG, str(os.major(number)), str(os.minor(number)), self.link)

    def detach(self) -> None:
        """Take it from its machine.

        Raises:
            VolumeInUse: the node has it mounted; unmount it there or stop the machine.
        """
        machine = self._machine
        if machine is None or self._device is None:
            return
        if machine.running:
            self._refuse_if_mounted(machine.pid1)
            self._in_node(machine.pid1, _UNPLUG, self.link)
        leftovers.detach_loop(self._device)
        self._device = None
        machine.release(self)
        self._machine = None

    def delete(self) -> None:
        """Detach it and remove its file."""
        self.detach()
        self._file.unlink(missing_ok=True)

    def _refuse_if_mounted(self, pid1: int) -> None:
        assert self._device is not None  # noqa: S101
        number = Path(self._device).stat().st_rdev
        wanted = f"{os.major(number)}:{os.minor(number)}"
        for line in Path("/proc", str(pid1), "mountinfo").read_text().splitlines():
            fields = line.split()
            if fields[2] == wanted:
                raise VolumeInUse(f"volume {self.volume_id} is mounted on {fields[4]} in the node: unmount it first")

    def _loop_device(self) -> str:
        done = subprocess.run(
            ["losetup", "--find", "--show", str(self._file)], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def _in_node(self, pid1: int, script: str, *arguments: str) -> None:
        """Run a script with the host's capabilities: for the node, disks come and go from outside."""
        argv = [*node_exec.inside(pid1), "env", "-i", f"PATH={node_exec.PATH}", "sh", "-ec", script, "sh", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"volume {self.volume_id}: {done.stderr.strip()}")
