"""The file system on the state volume: made only on what is provably blank, mounted only when it is this cluster's.

XFS, because mkfs.xfs itself refuses to write over anything it recognizes and writes its first block before all others,
so that one which was interrupted is never taken for blank. Nothing here deletes or overwrites: any doubt is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.runtime.node import files
from slurm_cluster.runtime.node.commands import Runner, last_words
from slurm_cluster.runtime.node.errors import NodeError

LABEL = "slurm-state"
MARKER = ".slurm-cluster"
_TYPE = "xfs"
_EDGE_BYTES = 16 * 1024 * 1024
_SAMPLE_BYTES = 64 * 1024
_STEP_BYTES = 64 * 1024 * 1024
_MOST_SAMPLES = 4096
_PARTS = 64
_BLOCK_BYTES = 4096
_MOUNT_OPTIONS = "noatime,nodev,nosuid"


@dataclass(frozen=True)
class Signature:
    """What libblkid found on a device; empty strings where it found nothing of the kind."""

    type: str
    label: str


def ensure_mounted(run: Runner, device: Path, mount_point: Path, cluster_id: str) -> bool:
    """Have the cluster's file system on ``device`` mounted at ``mount_point``, making it on a blank device.

    Returns:
        Whether anything was done.

    Raises:
        NodeError: the device holds something else, or something unfinished.
    """
    mount_point.mkdir(parents=True, exist_ok=True)
    if is_mounted(device, mount_point):
        _require_marker(device, mount_point, cluster_id)
        return False
    if mount_point.is_mount():
        raise NodeError(f"something else than {device} is mounted on {mount_point}: unmount it and reboot")
    signature = probe(run, device)
    if signature is None:
        require_zeros(device)
        run(["mkfs.xfs", "-q", "-K", "-L", LABEL, str(device)], timeout=600)
        _mount(run, device, mount_point)
        files.replace(mount_point / MARKER, json.dumps({"cluster_id": cluster_id}) + "\n", mode=0o600)
        run(["sync", "--file-system", str(mount_point)], timeout=300)
        return True
    if (signature.type, signature.label) != (_TYPE, LABEL):
        raise NodeError(
            f"the state volume ({device}) holds {signature.type or 'unknown data'}"
            f" labelled {signature.label!r}, which is not this cluster's: it was left as it is; "
            "give the cluster an empty volume, or one that it made"
        )
    _mount(run, device, mount_point)
    try:
        _require_marker(device, mount_point, cluster_id)
    except NodeError:
        run(["umount", str(mount_point)])
        raise
    # takes up what a larger volume has more, and does nothing on one of the same size
    run(["xfs_growfs", "-d", str(mount_point)], timeout=300)
    return True


def is_mounted(device: Path, mount_point: Path) -> bool:
    """Return whether ``mount_point`` is a mount of ``device``."""
    return mount_point.is_mount() and mount_point.stat().st_dev == device.stat().st_rdev


def probe(run: Runner, device: Path) -> Signature | None:
    """Return what libblkid finds on ``device``, or None if it finds nothing at all.

    Raises:
        NodeError: it finds several things, or cannot read the device.
    """
    done = run(["blkid", "--probe", "--output", "export", str(device)], check=False, timeout=120)
    if done.returncode == 2 and not done.stdout.strip():
        return None
    if done.returncode != 0:
        raise NodeError(
            f"what the state volume ({device}) holds cannot be told (blkid status {done.returncode}: "
            f"{last_words(done)}): it was left as it is; look at it with wipefs, and give the cluster an empty volume"
        )
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return Signature(type=values.get("TYPE", values.get("PTTYPE", "")), label=values.get("LABEL", ""))


def require_zeros(device: Path) -> None:
    """Check that a device on which nothing was recognized has nothing on it.

    Its first and last 16 MiB are read, where every file system, partition table and RAID keeps its marks, every 64 MiB,
    where ext4 and Btrfs keep copies of theirs, and every 64th of the whole, where the parts of XFS begin.

    Raises:
        NodeError: a byte there is not zero.
    """
    descriptor = os.open(device, os.O_RDONLY)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        for offset, length in _areas(size):
            if os.pread(descriptor, length, offset).strip(b"\0"):
                raise NodeError(
                    f"the state volume ({device}) is not empty near byte {offset}, yet no file system is recognized on "
                    "it: one that was being made may have been cut off; it was left as it is; if it holds nothing of "
                    f"value, clear it (blkdiscard --zeroout {device}) and reboot, else give the cluster an empty volume"
                )
    finally:
        os.close(descriptor)


def _areas(size: int) -> Iterator[tuple[int, int]]:
    edge = min(_EDGE_BYTES, size)
    yield 0, edge
    yield size - edge, edge
    step = max(_STEP_BYTES, size // _MOST_SAMPLES // _STEP_BYTES * _STEP_BYTES)
    yield from ((offset, _SAMPLE_BYTES) for offset in range(0, size, step))
    for part in range(_PARTS):
        yield size * part // _PARTS // _BLOCK_BYTES * _BLOCK_BYTES, _SAMPLE_BYTES


def _mount(run: Runner, device: Path, mount_point: Path) -> None:
    run(["mount", "--types", _TYPE, "--options", _MOUNT_OPTIONS, str(device), str(mount_point)], timeout=300)


def _require_marker(device: Path, mount_point: Path, cluster_id: str) -> None:
    marker = mount_point / MARKER
    try:
        owner = json.loads(marker.read_text())["cluster_id"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise NodeError(
            f"the state volume ({device}) has this package's label but no valid {MARKER} file ({problem}): making it "
            f"was cut off, or the file was removed; it was left as it is; if it holds nothing of value, clear it "
            f'(blkdiscard --zeroout {device}) and reboot, else put {{"cluster_id": "{cluster_id}"}} into that file'
        ) from problem
    if owner != cluster_id:
        raise NodeError(
            f"the state volume ({device}) belongs to cluster {owner}, this is {cluster_id}: it was left as it is; "
            f"to hand it over, write this cluster's id into its {MARKER} file"
        )
