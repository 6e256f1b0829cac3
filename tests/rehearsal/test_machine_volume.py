"""Volumes come to machines and leave them; their contents stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm_cluster.rehearsal import leftovers
from slurm_cluster.rehearsal.machine import REBOOT_EXIT, Machine
from slurm_cluster.rehearsal.volume import Volume, VolumeInUse
from tests.rehearsal.machine_bench import Bench, bench, boot, shell

pytestmark = pytest.mark.rehearsal

LINK = "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0c1"


@pytest.fixture(scope="module")
def stand() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture(scope="module")
def first(stand: Bench) -> Machine:
    machine = stand.machine("i-0c001")
    boot(machine)
    return machine


@pytest.fixture
def volume(stand: Bench) -> Iterator[Volume]:
    made = Volume(stand.paths, "vol-0c1", size_gib=2)
    yield made
    if made.machine is not None:
        made.machine.exec(["umount", "/mnt"], timeout=20)
    made.delete()


def test_hot_attach_shows_a_blank_disk_of_its_size(first: Machine, volume: Volume) -> None:
    assert first.exec(["test", "-e", LINK], timeout=20).returncode == 1
    volume.attach(first)
    assert volume.link == LINK
    assert shell(first, f"readlink -f {LINK}").startswith("/dev/nvme1n1")
    assert shell(first, f"blockdev --getsize64 {LINK}") == f"{2 * 2**30}\n"
    assert first.exec(["blkid", "--probe", LINK], timeout=20).returncode == 2  # nothing found
    volume.detach()
    assert first.exec(["test", "-e", LINK], timeout=20).returncode == 1
    assert shell(first, "ls /dev").count("nvme") == 0


def test_contents_move_with_the_volume(stand: Bench, first: Machine, volume: Volume) -> None:
    volume.attach(first)
    shell(first, f"mkfs.xfs -q {LINK} && mount {LINK} /mnt && echo moved >/mnt/file")
    with pytest.raises(VolumeInUse, match="mounted on /mnt"):
        volume.detach()
    shell(first, "umount /mnt")
    second = stand.machine("i-0c002")
    with pytest.raises(VolumeInUse, match="i-0c001"):
        volume.attach(second)
    volume.detach()
    volume.attach(second)
    boot(second)
    assert shell(second, f"mount {LINK} /mnt && cat /mnt/file && umount /mnt") == "moved\n"


def test_volume_is_there_again_after_a_reboot_and_a_power_cut(first: Machine, volume: Volume) -> None:
    volume.attach(first)
    shell(first, f"mkfs.ext4 -q {LINK} && mount {LINK} /mnt && echo kept >/mnt/file")
    first.reboot()
    assert first.wait(60) == REBOOT_EXIT
    boot(first)
    assert shell(first, f"mount {LINK} /mnt && cat /mnt/file") == "kept\n"
    first.kill()
    boot(first)
    assert shell(first, f"mount {LINK} /mnt && cat /mnt/file && umount /mnt") == "kept\n"


def test_two_volumes_have_two_disks(stand: Bench, first: Machine, volume: Volume) -> None:
    other = Volume(stand.paths, "vol-0c2", size_gib=1)
    volume.attach(first)
    other.attach(first)
    disks = {shell(first, f"readlink -f {one.link}") for one in (volume, other)}
    assert len(disks) == 2
    other.delete()
    assert shell(first, f"blockdev --getsize64 {LINK}") == f"{2 * 2**30}\n"


def test_volume_of_a_removed_machine_is_free(stand: Bench, volume: Volume) -> None:
    machine = stand.machine("i-0c003")
    volume.attach(machine)
    machine.remove()
    assert volume.machine is None
    assert not leftovers.loop_devices_below(stand.paths.volumes)


@pytest.mark.parametrize(("volume_id", "size"), [("vol-XYZ", 1), ("../etc", 1), ("vol-0c9", 0)])
def test_bad_volume_is_refused(stand: Bench, volume_id: str, size: int) -> None:
    with pytest.raises(ValueError, match="give"):
        Volume(stand.paths, volume_id, size_gib=size)
