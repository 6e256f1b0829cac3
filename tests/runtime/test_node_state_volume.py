"""The claim on the state volume against moto's EC2, and the file system on it against real mkfs.xfs and blkid."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from slurm_cluster.model.node_files import CLUSTER_TAG, ROLE_TAG
from slurm_cluster.runtime.node import commands, filesystem
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.state_volume import Claim
from tests.runtime.node_doubles import Clock

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

ZONE = "eu-central-1a"
CLUSTER = "1234abcd-0f0f0f0f"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[EC2Client]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("ec2", region_name="eu-central-1")


def instance(ec2: EC2Client, cluster: str = CLUSTER, role: str = "head") -> str:
    answer = ec2.run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        Placement={"AvailabilityZone": ZONE},
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": CLUSTER_TAG, "Value": cluster}, {"Key": ROLE_TAG, "Value": role}],
            }
        ],
    )
    return answer["Instances"][0]["InstanceId"]


def volume(ec2: EC2Client) -> str:
    return ec2.create_volume(AvailabilityZone=ZONE, Size=1)["VolumeId"]


def claim(ec2: Any, instance_id: str, volume_id: str, by_id: Path, clock: Clock | None = None) -> Claim:
    clock = clock or Clock()
    return Claim(
        ec2=ec2,
        instance_id=instance_id,
        cluster_id=CLUSTER,
        volume_id=volume_id,
        by_id=by_id,
        sleep=clock.sleep,
        clock=clock,
    )


@pytest.fixture
def by_id(tmp_path: Path) -> Path:
    directory = tmp_path / "by-id"
    directory.mkdir()
    return directory


def appear(by_id: Path, volume_id: str) -> Path:
    device = by_id.parent / "nvme1n1"
    device.touch()
    link = by_id / f"nvme-Amazon_Elastic_Block_Store_{volume_id.replace('-', '')}"
    link.unlink(missing_ok=True)
    link.symlink_to(device)
    return device


def state(ec2: EC2Client, instance_id: str) -> str:
    return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]["State"]["Name"]


def holder(ec2: EC2Client, volume_id: str) -> str | None:
    attachments = ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]["Attachments"]
    return attachments[0]["InstanceId"] if attachments else None


def test_a_free_volume_is_attached_and_opened_by_its_id(ec2: EC2Client, by_id: Path) -> None:
    me, state_volume = instance(ec2), volume(ec2)
    device = appear(by_id, state_volume)
    assert claim(ec2, me, state_volume, by_id).device() == device
    assert holder(ec2, state_volume) == me


def test_claiming_again_changes_nothing(ec2: EC2Client, by_id: Path) -> None:
    me, state_volume = instance(ec2), volume(ec2)
    appear(by_id, state_volume)
    claim(ec2, me, state_volume, by_id).device()
    before = ec2.describe_volumes(VolumeIds=[state_volume])["Volumes"]
    claim(ec2, me, state_volume, by_id).device()
    assert ec2.describe_volumes(VolumeIds=[state_volume])["Volumes"] == before


def test_the_former_head_is_stopped_and_gives_the_volume_up_and_nobody_else_is(ec2: EC2Client, by_id: Path) -> None:
    old, me, state_volume = instance(ec2), instance(ec2), volume(ec2)
    worker, other = instance(ec2, role="worker"), instance(ec2, cluster="other-cluster")
    appear(by_id, state_volume)
    claim(ec2, old, state_volume, by_id).device()
    ec2.start_instances(InstanceIds=[me])
    claim(ec2, me, state_volume, by_id).device()
    assert holder(ec2, state_volume) == me
    assert [state(ec2, item) for item in (old, me, worker, other)] == ["stopped", "running", "running", "running"]


def test_a_device_name_in_use_is_passed_over(ec2: EC2Client, by_id: Path) -> None:
    me, state_volume, data = instance(ec2), volume(ec2), volume(ec2)
    ec2.attach_volume(VolumeId=data, InstanceId=me, Device="/dev/xvdf")
    appear(by_id, state_volume)
    claim(ec2, me, state_volume, by_id).device()
    attachment = ec2.describe_volumes(VolumeIds=[state_volume])["Volumes"][0]["Attachments"][0]
    assert attachment["Device"] == "/dev/sdg"


def test_a_device_that_does_not_appear_names_what_is_needed(ec2: EC2Client, by_id: Path) -> None:
    me, state_volume = instance(ec2), volume(ec2)
    with pytest.raises(NodeError, match="does not appear: the head needs an instance type of the Nitro system"):
        claim(ec2, me, state_volume, by_id).device()


class Slow:
    """EC2 in which what is asked for comes about only after some looks at it, or never."""

    def __init__(self, real: EC2Client, looks: float) -> None:
        self._real = real
        self._looks = looks
        self.stopping: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def stop_instances(self, *, InstanceIds: list[str]) -> dict[str, Any]:
        self.stopping = InstanceIds
        return {}

    def get_paginator(self, name: str) -> Any:
        if self.stopping:
            self._looks -= 1
            if self._looks <= 0:
                self._real.stop_instances(InstanceIds=self.stopping)
        return self._real.get_paginator(name)  # type: ignore[call-overload]


def test_the_volume_is_left_alone_until_the_former_head_is_stopped(ec2: EC2Client, by_id: Path) -> None:
    old, me, state_volume = instance(ec2), instance(ec2), volume(ec2)
    appear(by_id, state_volume)
    ec2.attach_volume(VolumeId=state_volume, InstanceId=old, Device="/dev/sdf")
    clock = Clock()
    claim(Slow(ec2, looks=10), me, state_volume, by_id, clock).device()
    assert clock.now >= 16
    assert holder(ec2, state_volume) == me


def test_a_former_head_that_does_not_stop_keeps_the_volume(ec2: EC2Client, by_id: Path) -> None:
    old, me, state_volume = instance(ec2), instance(ec2), volume(ec2)
    ec2.attach_volume(VolumeId=state_volume, InstanceId=old, Device="/dev/sdf")
    mine = claim(Slow(ec2, looks=float("inf")), me, state_volume, by_id)
    mine.seconds = 20
    with pytest.raises(NodeError, match=rf"the former head does not stop: {old} \(waited 20 seconds\)"):
        mine.device()
    assert holder(ec2, state_volume) == old


def test_a_volume_that_is_gone_is_named(ec2: EC2Client, by_id: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_cluster.runtime.node.aws.time.sleep", lambda _: None)
    monkeypatch.setattr("slurm_cluster.runtime.node.aws._PAUSE", 1000)
    with pytest.raises(NodeError, match=r"look at volume vol-0123456789abcdef0: .*does not exist"):
        claim(ec2, instance(ec2), "vol-0123456789abcdef0", by_id).device()


SIZE = 320 * 1024 * 1024
"""A little above the least that mkfs.xfs takes."""

needs_xfs = pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="needs xfsprogs")


class Mounts:
    """Runs real programs, but mounts by writing down what is mounted: that needs no root.

    What a mounted file system holds is a directory of the test's.
    """

    def __init__(self, content: Path) -> None:
        self.content = content
        self.mounted: list[str] = []
        self.calls: list[str] = []

    def __call__(self, argv: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
        self.calls.append(argv[0])
        if argv[0] == "mount":
            self.mounted = list(argv[-2:])
        elif argv[0] == "umount":
            self.mounted = []
        elif argv[0] not in ("sync", "xfs_growfs"):
            return commands.run(argv, **more)
        return subprocess.CompletedProcess(list(argv), 0, "", "")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "device"
    with path.open("wb") as stream:
        stream.truncate(SIZE)
    return path


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mounts:
    real = filesystem.files.replace  # type: ignore[attr-defined]
    monkeypatch.setattr(
        filesystem.files,  # type: ignore[attr-defined]
        "replace",
        lambda path, text, **more: real(path, text, uid=os.geteuid(), gid=os.getegid(), **more),
    )
    return Mounts(tmp_path / "state")


def ensure(mounts: Mounts, device: Path) -> bool:
    return filesystem.ensure_mounted(mounts, device, mounts.content, CLUSTER)


def written(device: Path) -> tuple[int, int]:
    """Return what changes whenever something is written."""
    status = device.stat()
    return status.st_mtime_ns, status.st_blocks


@needs_xfs
def test_a_blank_device_is_formatted_marked_and_mounted(mounts: Mounts, device: Path) -> None:
    assert ensure(mounts, device)
    assert mounts.mounted == [str(device), str(mounts.content)]
    assert filesystem.probe(commands.run, device) == filesystem.Signature("xfs", "slurm-state")
    assert json.loads((mounts.content / ".slurm-cluster").read_text()) == {"cluster_id": CLUSTER}


@needs_xfs
def test_the_clusters_own_is_found_again_and_not_touched(mounts: Mounts, device: Path) -> None:
    ensure(mounts, device)
    before = written(device)
    mounts.calls.clear()
    assert ensure(mounts, device)
    assert "mkfs.xfs" not in mounts.calls
    assert written(device) == before
    # a state volume that was made larger is used whole from the next boot
    assert mounts.calls[-1] == "xfs_growfs"


def refused(mounts: Mounts, device: Path, reason: str) -> None:
    """It is refused for this reason, not one byte of it is changed, and it is not left mounted."""
    before = written(device)
    with pytest.raises(NodeError, match=reason):
        ensure(mounts, device)
    assert written(device) == before
    assert mounts.mounted == []
    assert not {"mkfs.xfs", "xfs_growfs"} & set(mounts.calls)


@needs_xfs
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (["mkfs.ext4", "-q", "-F"], "holds ext4 labelled ''"),
        (["mkfs.xfs", "-q"], "holds xfs labelled ''"),
        (["mkfs.xfs", "-q", "-L", "home"], "holds xfs labelled 'home'"),
        (["mkswap"], "holds swap labelled ''"),
    ],
)
def test_a_foreign_file_system_is_refused(mounts: Mounts, device: Path, make: list[str], reason: str) -> None:
    subprocess.run([*make, device], check=True, capture_output=True)
    refused(mounts, device, f"{reason}, which is not this cluster's: it was left as it is")


def write(device: Path, offset: int, data: bytes) -> None:
    with device.open("r+b") as stream:
        stream.seek(offset)
        stream.write(data)


def test_a_partition_table_is_refused(mounts: Mounts, device: Path) -> None:
    write(
        device, 446, bytes([0x80, 0, 2, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (4096).to_bytes(4, "little")
    )
    write(device, 510, b"\x55\xaa")
    refused(mounts, device, "holds dos labelled ''")


@pytest.mark.parametrize("offset", [0, 5000, 16 * 1024 * 1024 - 1, SIZE - 1, SIZE - 16 * 1024 * 1024])
def test_one_byte_where_file_systems_keep_their_marks_is_not_blank(mounts: Mounts, device: Path, offset: int) -> None:
    write(device, offset, b"\x01")
    refused(mounts, device, r"is not empty near byte \d+.*may have been cut off.*blkdiscard --zeroout")


@needs_xfs
@pytest.mark.parametrize("make", [["mkfs.xfs", "-q"], ["mkfs.ext4", "-q", "-F"]])
def test_a_file_system_whose_head_was_wiped_is_not_blank(mounts: Mounts, device: Path, make: list[str]) -> None:
    subprocess.run([*make, device], check=True, capture_output=True)
    # What lies behind keeps its own headers, and copies of the first.
    write(device, 0, b"\0" * 64 * 1024 * 1024)
    refused(mounts, device, "is not empty near byte")


@needs_xfs
@pytest.mark.parametrize("milliseconds", [2, 4, 6, 8, 10, 15, 20, 30])
def test_mkfs_killed_at_any_moment_leaves_nothing_that_is_taken_for_ours(
    mounts: Mounts, device: Path, milliseconds: int
) -> None:
    subprocess.run(
        ["timeout", "--signal=KILL", str(milliseconds / 1000), "mkfs.xfs", "-q", "-K", "-L", "slurm-state", device],
        check=False,
        capture_output=True,
    )
    blank = subprocess.run(["cmp", "-s", "-n", str(SIZE), device, "/dev/zero"], check=False).returncode == 0
    if not blank:
        refused(mounts, device, "was left as it is")
    else:
        assert ensure(mounts, device)


@needs_xfs
def test_a_made_file_system_without_its_marker_is_refused(mounts: Mounts, device: Path) -> None:
    subprocess.run(["mkfs.xfs", "-q", "-L", "slurm-state", device], check=True)
    refused(mounts, device, r"has this package's label but no valid \.slurm-cluster file")


@needs_xfs
def test_the_volume_of_another_cluster_is_refused(mounts: Mounts, device: Path) -> None:
    ensure(mounts, device)
    mounts.mounted, mounts.calls = [], []
    (mounts.content / ".slurm-cluster").write_text('{"cluster_id": "another"}')
    refused(mounts, device, r"belongs to cluster another, this is 1234abcd.*to hand it over")


def answer(status: int, output: str = "") -> Callable[..., subprocess.CompletedProcess[str]]:
    return lambda argv, **_: subprocess.CompletedProcess(list(argv), status, output, "")


@pytest.mark.parametrize(("status", "output"), [(8, ""), (4, ""), (2, "TYPE=x"), (127, "")])
def test_any_doubt_of_blkid_is_an_error(device: Path, status: int, output: str) -> None:
    with pytest.raises(NodeError, match=rf"cannot be told \(blkid status {status}"):
        filesystem.probe(answer(status, output), device)


def test_mkfs_that_fails_leaves_the_reason(mounts: Mounts, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"\0" * 4096)
    with pytest.raises(CommandError, match=r"mkfs\.xfs"):
        ensure(mounts, small)
