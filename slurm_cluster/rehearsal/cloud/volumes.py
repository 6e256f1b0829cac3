"""EBS volumes of the emulated EC2: created, attached to one instance of their zone at a time, detached, deleted."""

from __future__ import annotations

import secrets
import time
from typing import Any

from slurm_cluster.rehearsal.cloud.emulator import (
    ApiError,
    Emulator,
    Record,
    boolean,
    matches,
    refuse_unknown,
    tag_set,
    tags_of,
)

_GP3_IOPS, _GP3_THROUGHPUT = 3000, 125
"""What a gp3 volume has by default: https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html."""

CREATE_PARAMETERS = {
    "AvailabilityZone",
    "Encrypted",
    "Iops",
    "KmsKeyId",
    "MultiAttachEnabled",
    "Size",
    "TagSpecification",
    "Throughput",
    "VolumeType",
}


def now() -> str:
    """Return the time as EC2 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


def new_volume(emulator: Emulator, zone: str, spec: dict[str, Any], tags: list[dict[str, str]]) -> Record:
    """Make a volume record.

    Args:
        zone: its availability zone.
        spec: Size, VolumeType, Encrypted, KmsKeyId, Iops, Throughput as in the API.
        tags: its tags.

    Raises:
        ApiError: no size, or a type whose defaults are not known here.
    """
    kind = spec.get("VolumeType") or "gp2"
    if kind not in ("gp2", "gp3"):
        raise ApiError("UnsupportedOperation", f"A volume of type '{kind}' is not rehearsed; use gp3 or gp2")
    if not spec.get("Size"):
        raise ApiError("MissingParameter", "The request must contain the parameter size/snapshot")
    if boolean(spec.get("MultiAttachEnabled")):
        raise ApiError("UnsupportedOperation", "A volume attached to several instances is not rehearsed")
    volume_id = f"vol-{secrets.token_hex(9)[:17]}"
    record: Record = {
        "VolumeId": volume_id,
        "Size": int(spec["Size"]),
        "AvailabilityZone": zone,
        "State": "available",
        "VolumeType": kind,
        "SnapshotId": "",
        "Iops": int(spec.get("Iops") or (_GP3_IOPS if kind == "gp3" else max(100, 3 * int(spec["Size"])))),
        "Throughput": int(spec.get("Throughput") or _GP3_THROUGHPUT) if kind == "gp3" else 0,
        "Encrypted": boolean(spec.get("Encrypted")),
        "KmsKeyId": spec.get("KmsKeyId"),
        "CreateTime": now(),
        "Attachments": [],
        "MultiAttachEnabled": False,
    }
    emulator.volumes[volume_id] = record
    if tags:
        emulator.tags[volume_id] = tags
    return record


def attach(volume: Record, instance: Record, device: str, *, delete_on_termination: bool) -> None:
    """Attach a volume that is free, without further checks."""
    attached = now()
    volume["State"] = "in-use"
    volume["Attachments"] = [
        {
            "VolumeId": volume["VolumeId"],
            "InstanceId": instance["InstanceId"],
            "Device": device,
            "State": "attached",
            "AttachTime": attached,
            "DeleteOnTermination": delete_on_termination,
        }
    ]
    instance["BlockDeviceMappings"].append(
        {
            "DeviceName": device,
            "Ebs": {
                "VolumeId": volume["VolumeId"],
                "Status": "attached",
                "AttachTime": attached,
                "DeleteOnTermination": delete_on_termination,
            },
        }
    )


def release(emulator: Emulator, volume: Record) -> None:
    """Detach a volume from whatever it is attached to."""
    for attachment in volume["Attachments"]:
        instance = emulator.instances.get(attachment["InstanceId"])
        if instance:
            instance["BlockDeviceMappings"] = [
                mapping
                for mapping in instance["BlockDeviceMappings"]
                if mapping["Ebs"]["VolumeId"] != volume["VolumeId"]
            ]
    volume["Attachments"] = []
    volume["State"] = "available"


def create_volume(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``CreateVolume``."""
    refuse_unknown("CreateVolume", request, {*CREATE_PARAMETERS, "ClientToken"})
    zone = request.get("AvailabilityZone")
    if not zone:
        raise ApiError("MissingParameter", "The request must contain the parameter availabilityZone")
    volume = new_volume(emulator, zone, request, tags_of(request.get("TagSpecification"), "volume"))
    return _wire(emulator, volume)


def delete_volume(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DeleteVolume``."""
    volume = _find(emulator, request["VolumeId"])
    if volume["Attachments"]:
        holder = volume["Attachments"][0]["InstanceId"]
        raise ApiError("VolumeInUse", f"Volume {volume['VolumeId']} is currently attached to {holder}")
    del emulator.volumes[volume["VolumeId"]]
    emulator.tags.pop(volume["VolumeId"], None)
    return {"return": True}


def attach_volume(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``AttachVolume``."""
    volume = _find(emulator, request["VolumeId"])
    instance = emulator.instances.get(request["InstanceId"])
    if instance is None:
        raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{request['InstanceId']}' does not exist")
    device = request.get("Device")
    if not device:
        raise ApiError("MissingParameter", "The request must contain the parameter device")
    if volume["Attachments"]:
        raise ApiError("VolumeInUse", f"{volume['VolumeId']} is already attached to an instance")
    zone = instance["Placement"]["AvailabilityZone"]
    if volume["AvailabilityZone"] != zone:
        raise ApiError(
            "InvalidVolume.ZoneMismatch",
            f"The volume '{volume['VolumeId']}' is not in the same availability zone as instance "
            f"'{instance['InstanceId']}'",
        )
    if instance["State"]["Name"] not in ("running", "stopped"):
        raise ApiError("IncorrectState", f"Instance '{instance['InstanceId']}' is not 'running'.")
    if any(mapping["DeviceName"] == device for mapping in instance["BlockDeviceMappings"]):
        raise ApiError(
            "InvalidParameterValue",
            f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use",
        )
    attach(volume, instance, device, delete_on_termination=False)
    return {
        "volumeId": volume["VolumeId"],
        "instanceId": instance["InstanceId"],
        "device": device,
        "status": "attaching",
        "attachTime": volume["Attachments"][0]["AttachTime"],
        "deleteOnTermination": False,
    }


def detach_volume(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DetachVolume``; the root volume only from a stopped instance."""
    volume = _find(emulator, request["VolumeId"])
    if not volume["Attachments"]:
        raise ApiError("IncorrectState", f"Volume '{volume['VolumeId']}' is in the 'available' state.")
    attachment = dict(volume["Attachments"][0])
    if request.get("InstanceId") not in (None, attachment["InstanceId"]):
        raise ApiError(
            "InvalidAttachment.NotFound",
            f"The volume '{volume['VolumeId']}' is not attached to instance '{request['InstanceId']}'",
        )
    instance = emulator.instances.get(attachment["InstanceId"])
    if instance and instance["RootDeviceName"] == attachment["Device"] and instance["State"]["Name"] != "stopped":
        raise ApiError(
            "OperationNotPermitted",
            f"Unable to detach root volume '{volume['VolumeId']}' from instance '{instance['InstanceId']}'",
        )
    release(emulator, volume)
    return {
        "volumeId": volume["VolumeId"],
        "instanceId": attachment["InstanceId"],
        "device": attachment["Device"],
        "status": "detaching",
        "attachTime": attachment["AttachTime"],
    }


def describe_volumes(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DescribeVolumes``."""
    refuse_unknown("DescribeVolumes", request, {"Filter", "MaxResults", "VolumeId"})
    wanted = request.get("VolumeId")
    volumes = [_find(emulator, volume_id) for volume_id in wanted] if wanted else list(emulator.volumes.values())
    return {
        "volumeSet": [
            _wire(emulator, volume)
            for volume in volumes
            if matches(emulator, volume["VolumeId"], _facts(volume), request.get("Filter"))
        ]
    }


def _find(emulator: Emulator, volume_id: str) -> Record:
    if volume_id not in emulator.volumes:
        raise ApiError("InvalidVolume.NotFound", f"The volume '{volume_id}' does not exist.")
    return emulator.volumes[volume_id]


def _facts(volume: Record) -> dict[str, list[str]]:
    return {
        "volume-id": [volume["VolumeId"]],
        "status": [volume["State"]],
        "availability-zone": [volume["AvailabilityZone"]],
        "attachment.instance-id": [item["InstanceId"] for item in volume["Attachments"]],
        "attachment.device": [item["Device"] for item in volume["Attachments"]],
        "attachment.status": [item["State"] for item in volume["Attachments"]],
    }


def _wire(emulator: Emulator, volume: Record) -> dict[str, Any]:
    return {
        "volumeId": volume["VolumeId"],
        "size": volume["Size"],
        "snapshotId": volume["SnapshotId"],
        "availabilityZone": volume["AvailabilityZone"],
        "status": volume["State"],
        "createTime": volume["CreateTime"],
        "volumeType": volume["VolumeType"],
        "iops": volume["Iops"],
        "throughput": volume["Throughput"] or None,
        "encrypted": volume["Encrypted"],
        "kmsKeyId": volume.get("KmsKeyId"),
        "multiAttachEnabled": volume["MultiAttachEnabled"],
        "attachmentSet": [
            {
                "volumeId": item["VolumeId"],
                "instanceId": item["InstanceId"],
                "device": item["Device"],
                "status": item["State"],
                "attachTime": item["AttachTime"],
                "deleteOnTermination": item["DeleteOnTermination"],
            }
            for item in volume["Attachments"]
        ],
        "tagSet": tag_set(emulator, volume["VolumeId"]),
    }
