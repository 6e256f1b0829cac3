"""The head's claim on the state volume, made at each boot before slurmctld starts.

One head at a time: whoever boots last stops every other instance that carries this cluster's head tag, waits until it
is stopped, and takes the volume. CloudFormation could not hand it over: it creates a new head before it deletes
the old one, so an AWS::EC2::VolumeAttachment would fail at every replacement.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import CLUSTER_TAG, ROLE_TAG, STATE_VOLUME_DIR
from slurm_cluster.runtime.node.aws import patiently
from slurm_cluster.runtime.node.errors import NodeError

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import InstanceTypeDef, VolumeTypeDef

MOUNT_POINT = STATE_VOLUME_DIR
SLURMCTLD_DIRECTORY = MOUNT_POINT / "slurmctld"

BY_ID_DIRECTORY = Path("/dev/disk/by-id")
_NVME_PREFIX = "nvme-Amazon_Elastic_Block_Store_"
_DEVICE_NAMES = tuple(f"/dev/sd{letter}" for letter in "fghijklmnop")
_GONE = frozenset({"stopped", "terminated"})


@dataclass
class Claim:
    """Takes one volume for one instance.

    Args:
        ec2: EC2 client.
        instance_id: this instance.
        cluster_id: value of the cluster tag.
        volume_id: the state volume.
        seconds: longest wait for each of: other heads to stop, the volume to become free, attached, visible.
        by_id: where udev puts links to disks by their serial numbers.
        sleep: waits between looks.
        clock: seconds of a steady clock.
    """

    ec2: EC2Client
    instance_id: str
    cluster_id: str
    volume_id: str
    seconds: float = 900
    by_id: Path = BY_ID_DIRECTORY
    sleep: Callable[[float], None] = field(default=time.sleep)
    clock: Callable[[], float] = field(default=time.monotonic)

    def device(self) -> Path:
        """Claim the volume and return its device.

        Raises:
            NodeError: it cannot be had; the text says why.
        """
        self._stop_other_heads()
        self._attach()
        return self._open()

    def _stop_other_heads(self) -> None:
        others = self._other_heads()
        if not others:
            return
        running = [item["InstanceId"] for item in others if item["State"]["Name"] in ("pending", "running")]
        if running:
            patiently(
                f"stop the former head {', '.join(running)}", lambda: self.ec2.stop_instances(InstanceIds=running)
            )
        self._wait(
            lambda: not self._other_heads(),
            lambda: "the former head does not stop: " + ", ".join(item["InstanceId"] for item in self._other_heads()),
        )

    def _other_heads(self) -> list[InstanceTypeDef]:
        def read() -> list[InstanceTypeDef]:
            pages = self.ec2.get_paginator("describe_instances").paginate(
                Filters=[
                    {"Name": f"tag:{CLUSTER_TAG}", "Values": [self.cluster_id]},
                    {"Name": f"tag:{ROLE_TAG}", "Values": [Role.HEAD.value]},
                ]
            )
            return [item for page in pages for group in page["Reservations"] for item in group["Instances"]]

        found = patiently("look for other heads of this cluster", read)
        return [item for item in found if item["InstanceId"] != self.instance_id and item["State"]["Name"] not in _GONE]

    def _volume(self) -> VolumeTypeDef:
        answer = patiently(
            f"look at volume {self.volume_id}", lambda: self.ec2.describe_volumes(VolumeIds=[self.volume_id])
        )
        return answer["Volumes"][0]

    def _attachment(self) -> tuple[str, str]:
        """Return instance and state of the volume's attachment; empty strings if there is none."""
        for attachment in self._volume().get("Attachments", []):
            if attachment["State"] != "detached":
                return attachment["InstanceId"], attachment["State"]
        return "", ""

    def _attach(self) -> None:
        holder, state = self._attachment()
        if holder and holder != self.instance_id:
            # Its machine is stopped, so nothing is written any more.
            if state != "detaching":
                patiently(
                    f"detach volume {self.volume_id} from {holder}",
                    lambda: self.ec2.detach_volume(VolumeId=self.volume_id, InstanceId=holder),
                )
            self._wait(
                lambda: self._volume()["State"] == "available",
                lambda: f"volume {self.volume_id} stays attached to {holder}",
            )
        if holder != self.instance_id or state == "detaching":
            self._wait(
                lambda: self._volume()["State"] == "available",
                lambda: f"volume {self.volume_id} is {self._volume()['State']}, not available",
            )
            name = self._free_device_name()
            patiently(
                f"attach volume {self.volume_id}",
                lambda: self.ec2.attach_volume(VolumeId=self.volume_id, InstanceId=self.instance_id, Device=name),
            )
        self._wait(
            lambda: self._attachment() == (self.instance_id, "attached"),
            lambda: f"volume {self.volume_id} does not become attached: {self._attachment()}",
        )

    def _free_device_name(self) -> str:
        answer = patiently("look at this instance", lambda: self.ec2.describe_instances(InstanceIds=[self.instance_id]))
        mappings = answer["Reservations"][0]["Instances"][0].get("BlockDeviceMappings", [])
        taken = {mapping["DeviceName"].replace("/dev/xvd", "/dev/sd") for mapping in mappings}
        free = [name for name in _DEVICE_NAMES if name not in taken]
        if not free:
            raise NodeError(
                f"no device name from {_DEVICE_NAMES[0]} to {_DEVICE_NAMES[-1]} is free for the state volume"
            )
        return free[0]

    def _open(self) -> Path:
        path = self.by_id / f"{_NVME_PREFIX}{self.volume_id.replace('-', '')}"
        self._wait(
            path.exists,
            lambda: (
                f"volume {self.volume_id} is attached but {path} does not appear: "
                "the head needs an instance type of the Nitro system and an image with udev's rules for EBS"
            ),
        )
        return path.resolve()

    def _wait(self, reached: Callable[[], bool], problem: Callable[[], str]) -> None:
        start = self.clock()
        while not reached():
            if self.clock() - start > self.seconds:
                raise NodeError(f"{problem()} (waited {self.seconds:g} seconds)")
            self.sleep(2)
