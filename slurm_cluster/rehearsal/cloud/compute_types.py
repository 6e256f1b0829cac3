"""CloudFormation's AWS::EC2::Instance and AWS::EC2::Volume.

What replaces, what interrupts and what does not:
https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-ec2-instance.html
https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-ec2-volume.html
"""

from __future__ import annotations

import time
from typing import Any

from slurm_cluster.rehearsal.cloud import instances
from slurm_cluster.rehearsal.cloud.emulator import ApiError, Emulator, Record, boolean
from slurm_cluster.rehearsal.cloud.launches import METADATA_DEFAULTS, profile_of, security_groups
from slurm_cluster.rehearsal.cloud.resource_types import Properties, Provisioned, ResourceType

_WAIT_SECONDS = 120
"""A machine that takes longer to stop is a failure of the stack."""

_LAUNCH = (
    "DisableApiTermination",
    "EbsOptimized",
    "ImageId",
    "InstanceInitiatedShutdownBehavior",
    "InstanceType",
    "LaunchTemplate",
    "MetadataOptions",
    "PrivateIpAddress",
    "SubnetId",
    "UserData",
)
_INTERRUPTING = ("EbsOptimized", "InstanceType", "UserData")


def _create_instance(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    tags = properties.get("Tags") or []
    resource_types = ["instance"]
    if boolean(properties.get("PropagateTagsToVolumeOnCreation")):
        resource_types.append("volume")
    request: dict[str, Any] = {name: properties[name] for name in _LAUNCH if name in properties}
    if "SecurityGroupIds" in properties:
        request["SecurityGroupId"] = properties["SecurityGroupIds"]
    if "BlockDeviceMappings" in properties:
        request["BlockDeviceMapping"] = properties["BlockDeviceMappings"]
    if "IamInstanceProfile" in properties:
        request["IamInstanceProfile"] = {"Name": properties["IamInstanceProfile"]}
    if "Monitoring" in properties:
        request["Monitoring"] = {"Enabled": properties["Monitoring"]}
    if tags:
        request["TagSpecification"] = [{"ResourceType": kind, "Tag": tags} for kind in resource_types]
    answer = emulator.call("RunInstances", {**request, "MinCount": 1, "MaxCount": 1})
    instance_id = answer["instancesSet"][0]["instanceId"]
    instance = emulator.instances[instance_id]
    zone = properties.get("AvailabilityZone")
    if zone and zone != instance["Placement"]["AvailabilityZone"]:
        emulator.call("TerminateInstances", {"InstanceId": [instance_id]})
        raise ValueError(f"AvailabilityZone {zone} is not the zone of {instance['SubnetId']}: leave it out")
    _wait(emulator, instance, instances.RUNNING)
    return instance_id, _attributes(instance)


def _attributes(instance: Record) -> dict[str, Any]:
    return {
        "AvailabilityZone": instance["Placement"]["AvailabilityZone"],
        "InstanceId": instance["InstanceId"],
        "PrivateDnsName": instance["PrivateDnsName"],
        "PrivateIp": instance["PrivateIpAddress"],
        "PublicDnsName": instance["PublicDnsName"],
        "PublicIp": instance["PublicIpAddress"],
        "VpcId": instance["VpcId"],
    }


def _update_instance(emulator: Emulator, instance_id: str, old: Properties, new: Properties) -> Provisioned:
    instance = emulator.instances[instance_id]
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if changed & set(_INTERRUPTING):
        emulator.call("StopInstances", {"InstanceId": [instance_id]})
        _wait(emulator, instance, instances.STOPPED)
        instance["UserData"] = new.get("UserData") or ""
        instance["InstanceType"] = new.get("InstanceType") or instance["InstanceType"]
        instance["EbsOptimized"] = boolean(new.get("EbsOptimized"))
        emulator.call("StartInstances", {"InstanceId": [instance_id]})
        _wait(emulator, instance, instances.RUNNING)
    if "SecurityGroupIds" in changed:
        instance["SecurityGroups"] = security_groups(emulator, instance["VpcId"], new["SecurityGroupIds"])
    if "IamInstanceProfile" in changed:
        name = new.get("IamInstanceProfile")
        instance["IamInstanceProfile"] = profile_of(emulator, {"Name": name} if name else None)
    if "MetadataOptions" in changed:
        instance["MetadataOptions"] = {**METADATA_DEFAULTS, **(new.get("MetadataOptions") or {})}
    if "Monitoring" in changed:
        instance["Monitoring"] = {"State": "enabled" if boolean(new.get("Monitoring")) else "disabled"}
    instance["DisableApiTermination"] = boolean(new.get("DisableApiTermination"))
    instance["InstanceInitiatedShutdownBehavior"] = new.get("InstanceInitiatedShutdownBehavior") or "stop"
    replace_tags(emulator, instance_id, old, new)
    return instance_id, _attributes(instance)


def replace_tags(emulator: Emulator, resource_id: str, old: Properties, new: Properties) -> None:
    """Make the change of a template's tags; tags from elsewhere stay."""
    dropped = {tag["Key"] for tag in (*(old.get("Tags") or []), *(new.get("Tags") or []))}
    kept = [tag for tag in emulator.tags.get(resource_id, []) if tag["Key"] not in dropped]
    emulator.tags[resource_id] = [*kept, *({"Key": t["Key"], "Value": t["Value"]} for t in new.get("Tags") or [])]


def _delete_instance(emulator: Emulator, instance_id: str, properties: Properties) -> None:
    del properties
    instance = emulator.instances.get(instance_id)
    if instance is None or instance["State"]["Code"] == instances.TERMINATED:
        return
    emulator.call("TerminateInstances", {"InstanceId": [instance_id]})
    _wait(emulator, instance, instances.TERMINATED)


def _wait(emulator: Emulator, instance: Record, code: int) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        instances.settle(emulator, instance)
        if instance["State"]["Code"] == code:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"instance {instance['InstanceId']} is still {instance['State']['Name']} after {_WAIT_SECONDS} s"
            )
        time.sleep(0.05)


def _create_volume(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    request = {name: value for name, value in properties.items() if name != "Tags"}
    if properties.get("Tags"):
        request["TagSpecification"] = [{"ResourceType": "volume", "Tag": properties["Tags"]}]
    volume_id = emulator.call("CreateVolume", request)["volumeId"]
    return volume_id, {"VolumeId": volume_id}


def _update_volume(emulator: Emulator, volume_id: str, old: Properties, new: Properties) -> Provisioned:
    fixed = ("AvailabilityZone", "Encrypted", "KmsKeyId", "MultiAttachEnabled")
    changed = [name for name in fixed if old.get(name) != new.get(name)]
    if changed:
        raise ValueError(f"Update to {', '.join(changed)} of an AWS::EC2::Volume is not supported")
    volume = emulator.volumes[volume_id]
    for name in ("Size", "Iops", "Throughput"):
        if old.get(name) != new.get(name) and name in new:
            if name == "Size" and int(new[name]) < volume["Size"]:
                raise ValueError(f"New size {new[name]} cannot be smaller than existing size {volume['Size']}")
            volume[name] = int(new[name])
    volume["VolumeType"] = new.get("VolumeType") or volume["VolumeType"]
    replace_tags(emulator, volume_id, old, new)
    return volume_id, {"VolumeId": volume_id}


def _delete_volume(emulator: Emulator, volume_id: str, properties: Properties) -> None:
    del properties
    try:
        emulator.call("DeleteVolume", {"VolumeId": volume_id})
    except ApiError as error:
        if error.code != "InvalidVolume.NotFound":
            raise


COMPUTE_TYPES = {
    "AWS::EC2::Instance": ResourceType(
        properties=frozenset(
            {
                "AvailabilityZone",
                "BlockDeviceMappings.DeviceName",
                *(
                    f"BlockDeviceMappings.Ebs.{name}"
                    for name in (
                        *("DeleteOnTermination", "Encrypted", "Iops", "KmsKeyId"),
                        *("Throughput", "VolumeSize", "VolumeType"),
                    )
                ),
                "DisableApiTermination",
                "EbsOptimized",
                "IamInstanceProfile",
                "ImageId",
                "InstanceInitiatedShutdownBehavior",
                "InstanceType",
                *(f"LaunchTemplate.{name}" for name in ("LaunchTemplateId", "LaunchTemplateName", "Version")),
                *(f"MetadataOptions.{name}" for name in METADATA_DEFAULTS),
                "Monitoring",
                "PrivateIpAddress",
                "PropagateTagsToVolumeOnCreation",
                "SecurityGroupIds",
                "SubnetId",
                "Tags.*",
                "UserData",
            }
        ),
        create=_create_instance,
        update=_update_instance,
        delete=_delete_instance,
        replace_on=(
            *("AvailabilityZone", "BlockDeviceMappings", "ImageId", "LaunchTemplate"),
            *("PrivateIpAddress", "PropagateTagsToVolumeOnCreation", "SubnetId"),
        ),
        waits=True,
    ),
    "AWS::EC2::Volume": ResourceType(
        properties=frozenset(
            {
                *("AvailabilityZone", "Encrypted", "Iops", "KmsKeyId", "MultiAttachEnabled", "Size", "Tags.*"),
                *("Throughput", "VolumeType"),
            }
        ),
        create=_create_volume,
        update=_update_volume,
        delete=_delete_volume,
    ),
}
