"""Instances of the emulated EC2 after their launch: states, descriptions, console.

An instance leaves ``stopping`` and ``shutting-down`` when its machine is off, so "stopped" means what it means on AWS:
nothing of it runs any more. A guest that powers itself off is reported with ``StopInstances``.
"""

from __future__ import annotations

import base64
import subprocess
import time
from typing import Any

from slurm_cluster.rehearsal.cloud import volumes
from slurm_cluster.rehearsal.cloud.emulator import ApiError, Emulator, Record, matches, refuse_unknown, tag_set
from slurm_cluster.rehearsal.node_exec import command

PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, STOPPING, STOPPED = (0, 16, 32, 48, 64, 80)
_NAMES = {
    PENDING: "pending",
    RUNNING: "running",
    SHUTTING_DOWN: "shutting-down",
    TERMINATED: "terminated",
    STOPPING: "stopping",
    STOPPED: "stopped",
}
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html"""

_PENDING_SECONDS = 0.2
_CONSOLE_BYTES = 64 * 1024
"""GetConsoleOutput answers the last 64 KB."""


def set_state(instance: Record, code: int) -> None:
    """Put an instance into a state, as of now."""
    instance["State"] = {"Code": code, "Name": _NAMES[code]}
    instance["StateSince"] = time.monotonic()


def settle(emulator: Emulator, instance: Record) -> None:
    """Finish a transition that is due."""
    code = instance["State"]["Code"]
    if code == PENDING and time.monotonic() - instance["StateSince"] >= _PENDING_SECONDS:
        set_state(instance, RUNNING)
    elif code == STOPPING and not emulator.machine_is_on(instance["InstanceId"]):
        set_state(instance, STOPPED)
    elif code == SHUTTING_DOWN and not emulator.machine_is_on(instance["InstanceId"]):
        set_state(instance, TERMINATED)
        for mapping in list(instance["BlockDeviceMappings"]):
            volume = emulator.volumes.get(mapping["Ebs"]["VolumeId"])
            if volume is None:
                continue
            volumes.release(emulator, volume)
            if mapping["Ebs"]["DeleteOnTermination"]:
                volumes.delete_volume(emulator, {"VolumeId": volume["VolumeId"]})


def describe_instances(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DescribeInstances``."""
    refuse_unknown("DescribeInstances", request, {"Filter", "InstanceId", "MaxResults"})
    wanted = request.get("InstanceId")
    found = _find(emulator, wanted) if wanted else list(emulator.instances.values())
    for instance in found:
        settle(emulator, instance)
    return {
        "reservationSet": [
            {
                "reservationId": f"r-{instance['InstanceId'][2:]}",
                "ownerId": emulator.account(),
                "instancesSet": [wire(emulator, instance)],
            }
            for instance in found
            if matches(emulator, instance["InstanceId"], _facts(instance), request.get("Filter"))
        ]
    }


def stop_instances(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``StopInstances``."""
    return _change(emulator, request, STOPPING, {PENDING, RUNNING}, {STOPPING, STOPPED})


def start_instances(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``StartInstances``."""
    return _change(emulator, request, PENDING, {STOPPED}, {PENDING, RUNNING})


def terminate_instances(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``TerminateInstances``."""
    for instance in _find(emulator, request["InstanceId"]):
        if instance["DisableApiTermination"]:
            raise ApiError(
                "OperationNotPermitted",
                f"The instance '{instance['InstanceId']}' may not be terminated. "
                "Modify its 'disableApiTermination' instance attribute and try again.",
            )
    return _change(emulator, request, SHUTTING_DOWN, {PENDING, RUNNING, STOPPING, STOPPED}, {SHUTTING_DOWN, TERMINATED})


def reboot_instances(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``RebootInstances``: asks the operating system, as EC2 does."""
    for instance in _find(emulator, request["InstanceId"]):
        settle(emulator, instance)
        if instance["State"]["Code"] != RUNNING:
            raise ApiError("IncorrectInstanceState", _not_allowed(instance, "rebooted"))
        if emulator.machine_is_on(instance["InstanceId"]):
            pid1 = int(emulator.node(instance["InstanceId"], "pid1").read_text())
            subprocess.run(
                command(pid1, ["systemctl", "--no-block", "reboot"]), check=True, timeout=20, capture_output=True
            )
    return {"return": True}


def describe_instance_attribute(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DescribeInstanceAttribute`` for what a launch can set."""
    (instance,) = _find(emulator, [request["InstanceId"]])
    attributes = {
        "userData": {"value": instance["UserData"]} if instance["UserData"] else {},
        "instanceType": {"value": instance["InstanceType"]},
        "disableApiTermination": {"value": instance["DisableApiTermination"]},
        "instanceInitiatedShutdownBehavior": {"value": instance["InstanceInitiatedShutdownBehavior"]},
        "ebsOptimized": {"value": instance["EbsOptimized"]},
        "sourceDestCheck": {"value": instance["SourceDestCheck"]},
    }
    name = request["Attribute"]
    refuse_unknown("DescribeInstanceAttribute", [name], attributes)
    return {"instanceId": instance["InstanceId"], name: attributes[name]}


def get_console_output(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``GetConsoleOutput``, always the latest as with ``Latest`` on Nitro instances."""
    (instance,) = _find(emulator, [request["InstanceId"]])
    console = emulator.node(instance["InstanceId"], "console.log")
    output = console.read_bytes()[-_CONSOLE_BYTES:] if console.exists() else b""
    return {
        "instanceId": instance["InstanceId"],
        "timestamp": volumes.now(),
        "output": base64.b64encode(output).decode() if output else None,
    }


def _find(emulator: Emulator, instance_ids: list[str]) -> list[Record]:
    for instance_id in instance_ids:
        if instance_id not in emulator.instances:
            raise ApiError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
    return [emulator.instances[instance_id] for instance_id in instance_ids]


def _not_allowed(instance: Record, verb: str) -> str:
    return f"The instance '{instance['InstanceId']}' is not in a state from which it can be {verb}."


def _change(
    emulator: Emulator, request: dict[str, Any], target: int, origins: set[int], there: set[int]
) -> dict[str, Any]:
    found = _find(emulator, request["InstanceId"])
    for instance in found:
        settle(emulator, instance)
        if instance["State"]["Code"] not in origins | there:
            raise ApiError("IncorrectInstanceState", _not_allowed(instance, f"moved to '{_NAMES[target]}'"))
    changes = []
    for instance in found:
        before = instance["State"]
        if before["Code"] in origins:
            set_state(instance, target)
        changes.append(
            {
                "instanceId": instance["InstanceId"],
                "previousState": {"code": before["Code"], "name": before["Name"]},
                "currentState": {"code": instance["State"]["Code"], "name": instance["State"]["Name"]},
            }
        )
    return {"instancesSet": changes}


def _facts(instance: Record) -> dict[str, list[str]]:
    return {
        "instance-id": [instance["InstanceId"]],
        "instance-state-name": [instance["State"]["Name"]],
        "instance-state-code": [str(instance["State"]["Code"])],
        "instance-type": [instance["InstanceType"]],
        "image-id": [instance["ImageId"]],
        "vpc-id": [instance["VpcId"]],
        "subnet-id": [instance["SubnetId"]],
        "availability-zone": [instance["Placement"]["AvailabilityZone"]],
        "private-ip-address": [instance["PrivateIpAddress"]],
        "private-dns-name": [instance["PrivateDnsName"]],
        "instance.group-id": [group["GroupId"] for group in instance["SecurityGroups"]],
    }


def wire(emulator: Emulator, instance: Record) -> dict[str, Any]:
    """Return an instance as EC2 answers it."""
    options, profile = instance["MetadataOptions"], instance["IamInstanceProfile"]
    gone = instance["State"]["Code"] == TERMINATED
    groups = [{"groupId": group["GroupId"], "groupName": group["GroupName"]} for group in instance["SecurityGroups"]]
    return {
        "instanceId": instance["InstanceId"],
        "imageId": instance["ImageId"],
        "instanceState": {"code": instance["State"]["Code"], "name": instance["State"]["Name"]},
        "privateDnsName": "" if gone else instance["PrivateDnsName"],
        "dnsName": "",
        "amiLaunchIndex": instance["AmiLaunchIndex"],
        "instanceType": instance["InstanceType"],
        "launchTime": instance["LaunchTime"],
        "placement": {
            "availabilityZone": instance["Placement"]["AvailabilityZone"],
            "tenancy": instance["Placement"]["Tenancy"],
        },
        "monitoring": {"state": instance["Monitoring"]["State"]},
        "subnetId": None if gone else instance["SubnetId"],
        "vpcId": None if gone else instance["VpcId"],
        "privateIpAddress": None if gone else instance["PrivateIpAddress"],
        "sourceDestCheck": instance["SourceDestCheck"],
        "groupSet": groups,
        "architecture": instance["Architecture"],
        "rootDeviceType": instance["RootDeviceType"],
        "rootDeviceName": instance["RootDeviceName"],
        "blockDeviceMapping": [
            {
                "deviceName": mapping["DeviceName"],
                "ebs": {
                    "volumeId": mapping["Ebs"]["VolumeId"],
                    "status": mapping["Ebs"]["Status"],
                    "attachTime": mapping["Ebs"]["AttachTime"],
                    "deleteOnTermination": mapping["Ebs"]["DeleteOnTermination"],
                },
            }
            for mapping in instance["BlockDeviceMappings"]
        ],
        "virtualizationType": "hvm",
        "hypervisor": "xen",
        "ebsOptimized": instance["EbsOptimized"],
        "iamInstanceProfile": {"arn": profile["Arn"], "id": profile["Id"]} if profile else None,
        "metadataOptions": {
            "state": "applied",
            "httpTokens": options["HttpTokens"],
            "httpPutResponseHopLimit": options["HttpPutResponseHopLimit"],
            "httpEndpoint": options["HttpEndpoint"],
            "httpProtocolIpv6": options["HttpProtocolIpv6"],
            "instanceMetadataTags": options["InstanceMetadataTags"],
        },
        "networkInterfaceSet": []
        if gone
        else [
            {
                "networkInterfaceId": f"eni-{instance['InstanceId'][2:]}",
                "subnetId": instance["SubnetId"],
                "vpcId": instance["VpcId"],
                "ownerId": emulator.account(),
                "status": "in-use",
                "macAddress": instance["MacAddress"],
                "privateIpAddress": instance["PrivateIpAddress"],
                "privateDnsName": instance["PrivateDnsName"],
                "groupSet": groups,
                "attachment": {"deviceIndex": 0, "status": "attached", "deleteOnTermination": True},
            }
        ],
        "tagSet": tag_set(emulator, instance["InstanceId"]),
    }
