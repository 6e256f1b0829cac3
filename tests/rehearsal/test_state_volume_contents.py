"""The head's state volume on a real disk in a node: blank is formatted, its own found again, all else left as it is."""

from __future__ import annotations

import base64
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_cluster
from slurm_cluster.rehearsal.machine import Machine
from slurm_cluster.rehearsal.volume import Volume
from tests.rehearsal.machine_bench import Bench, bench, boot, shell

pytestmark = pytest.mark.rehearsal

MOUNT_POINT = "/var/lib/slurm-cluster/state"
MARKER = f"{MOUNT_POINT}/.slurm-cluster"
CLUSTER = "cluster-1"
VOLUME = "vol-05a7e"
BLOCK = 4096
PROGRAM = f"""
import sys
from pathlib import Path
from slurm_cluster.runtime.node import filesystem
from slurm_cluster.runtime.node.commands import run
from slurm_cluster.runtime.node.errors import NodeError

try:
    print(filesystem.ensure_mounted(run, Path(sys.argv[1]).resolve(), Path("{MOUNT_POINT}"), "{CLUSTER}"))
except NodeError as problem:
    sys.exit(f"refused: {{problem}}")
"""


def node_programs() -> str:
    """Return the programs that run on nodes as a zip archive in base64."""
    package = Path(slurm_cluster.__path__[0])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for part in ("__init__.py", "model", "runtime/__init__.py", "runtime/node"):
            for path in [package / part, *(package / part).rglob("*.py")]:
                if path.is_file():
                    archive.write(path, path.relative_to(package.parent))
    return base64.b64encode(stream.getvalue()).decode()


@pytest.fixture(scope="module")
def stand() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture(scope="module")
def machine(stand: Bench) -> Machine:
    made = stand.machine("i-05ead")
    boot(made)
    copied = made.exec(["sh", "-c", "base64 --decode >/root/programs.zip"], input=node_programs(), timeout=60)
    assert copied.returncode == 0, copied.stderr
    return made


@pytest.fixture
def disk(stand: Bench, machine: Machine) -> Iterator[str]:
    """A blank volume, attached; the path by which the head knows it."""
    volume = Volume(stand.paths, VOLUME, size_gib=1)
    volume.attach(machine)
    yield volume.link
    machine.exec(["umount", "--quiet", "--all-targets", volume.link], timeout=30)
    volume.delete()


def claim(machine: Machine, disk: str) -> str:
    """Run the product's step on the disk and return what it printed, or how it refused."""
    done = machine.exec(["env", "PYTHONPATH=/root/programs.zip", "python3", "-c", PROGRAM, disk], timeout=120)
    return (done.stdout if done.returncode == 0 else done.stderr).strip()


def contents(stand: Bench) -> dict[int, bytes]:
    """Return every block of the volume that is not all zeros, by its offset. Holes of its sparse file are zeros."""
    found: dict[int, bytes] = {}
    with (stand.paths.volumes / VOLUME).open("rb") as file:
        end = 0
        while True:
            try:
                start = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # no data after this
                return found
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            for offset in range(start, end, BLOCK):
                block = os.pread(file.fileno(), BLOCK, offset)
                if block.strip(b"\0"):
                    found[offset] = block


def is_mounted(machine: Machine) -> bool:
    return machine.exec(["mountpoint", "--quiet", MOUNT_POINT], timeout=30).returncode == 0


def test_a_blank_volume_is_formatted_once_and_found_again(machine: Machine, disk: str) -> None:
    assert claim(machine, disk) == "True"
    assert shell(machine, f"blkid --output value --match-tag TYPE {disk}") == "xfs\n"
    assert CLUSTER in shell(machine, f"cat {MARKER}")
    shell(machine, f"echo kept >{MOUNT_POINT}/file && sync")
    assert claim(machine, disk) == "False", "a second run has nothing to do"
    shell(machine, f"umount {MOUNT_POINT}")
    assert claim(machine, disk) == "True"
    assert shell(machine, f"cat {MOUNT_POINT}/file") == "kept\n"


NOT_OURS = {
    "foreign file system": ("mkfs.ext4 -q -L home $DISK", "holds ext4 labelled 'home'"),
    "foreign file system of the same kind": ("mkfs.xfs -q -L other $DISK", "holds xfs labelled 'other'"),
    "partition table": ("echo 'label: gpt' | sfdisk --quiet $DISK", "holds gpt"),
    "data in no known form": (
        "printf x | dd of=$DISK bs=1 seek=9000000 conv=notrunc status=none",
        "is not empty near byte 0",
    ),
    "cut off within mkfs": (
        "mkfs.xfs -q -L slurm-state $DISK && dd if=/dev/zero of=$DISK bs=4096 count=1 conv=notrunc status=none",
        "is not empty near byte 0",
    ),
}
"""How the volume came to be what it is, and the words by which it is refused."""


@pytest.mark.parametrize("case", NOT_OURS)
def test_a_foreign_or_half_made_volume_is_refused_and_not_a_byte_changes(
    stand: Bench, machine: Machine, disk: str, case: str
) -> None:
    preparation, words = NOT_OURS[case]
    shell(machine, f"DISK={disk}; {preparation}; blockdev --flushbufs $DISK")
    before = contents(stand)
    said = claim(machine, disk)
    assert said.startswith("refused: the state volume"), said
    assert words in said
    assert not is_mounted(machine)
    shell(machine, f"blockdev --flushbufs {disk}")
    assert contents(stand) == before


LIKE_OURS = {
    "another cluster's": ('{"cluster_id": "cluster-2"}', "belongs to cluster cluster-2"),
    "cut off before the marker": (None, "has this package's label but no valid"),
    "cut off within the marker": ('{"cluster', "has this package's label but no valid"),
}
"""What its marker file holds, and the words by which it is refused."""


@pytest.mark.parametrize("case", LIKE_OURS)
def test_a_volume_with_our_label_but_not_our_marker_is_refused_and_keeps_its_files(
    machine: Machine, disk: str, case: str
) -> None:
    marker, words = LIKE_OURS[case]
    write = "true" if marker is None else f"echo '{marker}' >/mnt/.slurm-cluster"
    shell(machine, f"mkfs.xfs -q -L slurm-state {disk} && mount {disk} /mnt && {write} && echo kept >/mnt/file")
    # tar holds names, owners, modes, times and contents
    before = shell(machine, "tar -C /mnt -cf - . | sha256sum && umount /mnt")
    said = claim(machine, disk)
    assert said.startswith("refused: the state volume"), said
    assert words in said
    assert not is_mounted(machine)
    assert shell(machine, f"mount -o ro {disk} /mnt && tar -C /mnt -cf - . | sha256sum && umount /mnt") == before
