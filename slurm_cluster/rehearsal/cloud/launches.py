"""``RunInstances`` of the emulated EC2: what a launch asks for, a launch template merged in, becomes instance records.

The session boots a machine for each record; nothing here starts one.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from typing import Any

from slurm_cluster.rehearsal.cloud import instance_types, volumes
from slurm_cluster.rehearsal.cloud.emulator import (
    ApiError,
    Emulator,
    Record,
    boolean,
    merged_tags,
    refuse_unknown,
    tags_of,
)
from slurm_cluster.rehearsal.cloud.instances import PENDING, set_state, wire

_PLURALS = {"SecurityGroupId": "SecurityGroupIds", "BlockDeviceMapping": "BlockDeviceMappings"}
"""The Query API writes the members of these lists in the singular; launch templates do not."""

LAUNCH_PARAMETERS = {
    "BlockDeviceMappings",
    "DisableApiTermination",
    "EbsOptimized",
    "IamInstanceProfile",
    "ImageId",
    "InstanceInitiatedShutdownBehavior",
    "InstanceType",
    "MetadataOptions",
    "Monitoring",
    "PrivateIpAddress",
    "SecurityGroupIds",
    "SubnetId",
    "TagSpecifications",
    "UserData",
}
"""What a launch, by a call or by a launch template, may ask for."""

METADATA_DEFAULTS = {
    "HttpEndpoint": "enabled",
    "HttpProtocolIpv6": "disabled",
    "HttpPutResponseHopLimit": "1",
    "HttpTokens": "optional",
    "InstanceMetadataTags": "disabled",
}
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceMetadataOptionsRequest.html"""

_CALL_ONLY = {"ClientToken", "LaunchTemplate", "MaxCount", "MinCount", "TagSpecification"}
_EBS = {"DeleteOnTermination", "Encrypted", "Iops", "KmsKeyId", "Throughput", "VolumeSize", "VolumeType"}


def run_instances(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``RunInstances`` for one instance."""
    counts = {request.get("MinCount", "1"), request.get("MaxCount", "1")}
    if counts != {"1"}:
        raise ApiError("UnsupportedOperation", "RunInstances of more than one instance is not rehearsed; use 1 and 1")
    asked = {_PLURALS.get(key, key): value for key, value in request.items() if key not in _CALL_ONLY}
    template_tags: list[dict[str, str]] = []
    if request.get("LaunchTemplate"):
        template, template_tags = template_data(emulator, request["LaunchTemplate"])
        # a parameter of the call overrides the template's; tags of both apply
        launch = {**template, **asked}
    else:
        launch = asked
    specifications = [*(launch.pop("TagSpecifications", None) or []), *(request.get("TagSpecification") or [])]
    if template_tags:
        specifications.append({"ResourceType": "instance", "Tags": template_tags})
    instance = _launch(emulator, launch, specifications)
    return {
        "reservationId": f"r-{secrets.token_hex(9)[:17]}",
        "ownerId": emulator.account(),
        "instancesSet": [wire(emulator, instance)],
    }


def template_data(emulator: Emulator, reference: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Return the launch data of a launch template version, and the tags that EC2 gives its instances.

    Raises:
        ApiError: no such template or version.
    """
    named = reference.get("LaunchTemplateName")
    for template in emulator.launch_templates.values():
        if template["LaunchTemplateId"] == reference.get("LaunchTemplateId") or template["LaunchTemplateName"] == named:
            break
    else:
        raise ApiError("InvalidLaunchTemplateId.NotFound", f"The specified launch template {reference} does not exist.")
    version = str(reference.get("Version") or "$Default")
    number = {"$Default": template["DefaultVersionNumber"], "$Latest": template["LatestVersionNumber"]}.get(
        version, version
    )
    for candidate in template["Versions"]:
        if str(candidate["VersionNumber"]) == str(number):
            return dict(candidate["LaunchTemplateData"]), [
                {"Key": "aws:ec2launchtemplate:id", "Value": template["LaunchTemplateId"]},
                {"Key": "aws:ec2launchtemplate:version", "Value": str(number)},
            ]
    raise ApiError("InvalidLaunchTemplateId.VersionNotFound", f"Could not find launch template version {version}")


def _launch(emulator: Emulator, launch: dict[str, Any], specifications: list[Any]) -> Record:
    refuse_unknown("RunInstances", launch, LAUNCH_PARAMETERS)
    for name in ("ImageId", "InstanceType", "SubnetId", "SecurityGroupIds"):
        if not launch.get(name):
            raise ApiError("MissingParameter", f"The request must contain the parameter {name}")
    facts = instance_types.find(launch["InstanceType"])
    image = emulator.images.get(launch["ImageId"])
    if image is None:
        raise ApiError("InvalidAMIID.NotFound", f"The image id '[{launch['ImageId']}]' does not exist")
    if image["Architecture"] != facts.architecture:
        raise ApiError(
            "InvalidParameterValue",
            f"The architecture '{facts.architecture}' of the specified instance type does not match the architecture "
            f"'{image['Architecture']}' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again.",
        )
    subnet = emulator.subnets.get(launch["SubnetId"])
    if subnet is None:
        raise ApiError("InvalidSubnetID.NotFound", f"The subnet ID '{launch['SubnetId']}' does not exist")
    address = _private_address(emulator, subnet, launch.get("PrivateIpAddress"))
    instance: Record = {
        "InstanceId": f"i-{secrets.token_hex(9)[:17]}",
        "ImageId": launch["ImageId"],
        "InstanceType": launch["InstanceType"],
        "SubnetId": subnet["SubnetId"],
        "VpcId": subnet["VpcId"],
        "Placement": {"AvailabilityZone": subnet["AvailabilityZone"], "Tenancy": "default"},
        "PrivateIpAddress": address,
        "PrivateDnsName": private_name(address, emulator.region()),
        "PublicIpAddress": "",
        "PublicDnsName": "",
        "MacAddress": ":".join(f"{part:02x}" for part in (0x02, 0x5C, *ipaddress.IPv4Address(address).packed)),
        "SecurityGroups": security_groups(emulator, subnet["VpcId"], launch["SecurityGroupIds"]),
        "IamInstanceProfile": profile_of(emulator, launch.get("IamInstanceProfile")),
        "MetadataOptions": {**METADATA_DEFAULTS, **(launch.get("MetadataOptions") or {})},
        "Monitoring": {"State": "enabled" if boolean((launch.get("Monitoring") or {}).get("Enabled")) else "disabled"},
        "UserData": launch.get("UserData") or "",
        "EbsOptimized": boolean(launch.get("EbsOptimized")),
        "DisableApiTermination": boolean(launch.get("DisableApiTermination")),
        "InstanceInitiatedShutdownBehavior": launch.get("InstanceInitiatedShutdownBehavior") or "stop",
        "SourceDestCheck": True,
        "Architecture": facts.architecture,
        "RootDeviceType": "ebs",
        "RootDeviceName": image["RootDeviceName"],
        "BlockDeviceMappings": [],
        "AmiLaunchIndex": 0,
        "LaunchTime": volumes.now(),
        "LaunchedAt": time.time(),
    }
    refuse_unknown("RunInstances MetadataOptions", instance["MetadataOptions"], METADATA_DEFAULTS)
    _attach_new_volumes(emulator, image, instance, launch.get("BlockDeviceMappings") or [], specifications)
    tags = merged_tags(tags_of(specifications, "instance"))
    if tags:
        emulator.tags[instance["InstanceId"]] = tags
    set_state(instance, PENDING)
    emulator.instances[instance["InstanceId"]] = instance
    return instance


def private_name(address: str, region: str) -> str:
    """Return the IP-based host name that EC2 gives an address.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-naming.html
    """
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


def security_groups(emulator: Emulator, vpc_id: str, group_ids: list[str]) -> list[dict[str, str]]:
    """Return an instance's groups.

    Raises:
        ApiError: a group does not exist in the VPC.
    """
    for group_id in group_ids:
        if emulator.security_groups.get(group_id, {}).get("VpcId") != vpc_id:
            raise ApiError("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist in {vpc_id}")
    return [
        {"GroupId": group_id, "GroupName": emulator.security_groups[group_id]["GroupName"]} for group_id in group_ids
    ]


def profile_of(emulator: Emulator, asked: dict[str, str] | None) -> dict[str, str] | None:
    """Return the instance profile that ``asked`` names by Name or Arn; None asks for none.

    Raises:
        ApiError: there is no such profile.
    """
    if not asked:
        return None
    kind, given = next(iter(asked.items()))
    found = emulator.profile(given) if given.startswith("arn:") == (kind == "Arn") else None
    if found is None:
        raise ApiError(
            "InvalidParameterValue",
            f"Value ({given}) for parameter iamInstanceProfile.{kind.lower()} is invalid. "
            f"Invalid IAM Instance Profile {kind}",
        )
    return {"Arn": found.arn, "Id": found.id}


def _private_address(emulator: Emulator, subnet: Record, asked: str | None) -> str:
    network = ipaddress.IPv4Network(subnet["CidrBlock"])
    records = [*emulator.instances.values(), *emulator.nat_gateways.values()]
    taken = {record.get("PrivateIpAddress") for record in records if record.get("SubnetId") == subnet["SubnetId"]}
    # EC2 keeps the first four addresses and the last one of a subnet to itself.
    free = (str(address) for address in list(network)[4:-1] if str(address) not in taken)
    if asked is None:
        address = next(free, None)
        if address is None:
            raise ApiError(
                "InsufficientFreeAddressesInSubnet", f"There are not enough free addresses in {subnet['SubnetId']}"
            )
        return address
    if asked in taken:
        raise ApiError("InvalidIPAddress.InUse", f"Address {asked} is in use.")
    if asked not in free:
        raise ApiError("InvalidParameterValue", f"Address {asked} does not fall within the subnet's address range")
    return asked


def _attach_new_volumes(
    emulator: Emulator, image: Record, instance: Record, mappings: list[Any], specifications: list[Any]
) -> None:
    devices: dict[str, dict[str, Any]] = {image["RootDeviceName"]: {"VolumeSize": 8, "VolumeType": "gp3"}}
    for mapping in mappings:
        refuse_unknown("RunInstances BlockDeviceMapping", mapping, {"DeviceName", "Ebs"})
        refuse_unknown("RunInstances BlockDeviceMapping.Ebs", mapping["Ebs"], _EBS)
        devices[mapping["DeviceName"]] = {**devices.get(mapping["DeviceName"], {}), **mapping["Ebs"]}
    for device, ebs in devices.items():
        volume = volumes.new_volume(
            emulator,
            instance["Placement"]["AvailabilityZone"],
            {**ebs, "Size": ebs.get("VolumeSize")},
            merged_tags(tags_of(specifications, "volume")),
        )
        volumes.attach(volume, instance, device, delete_on_termination=boolean(ebs.get("DeleteOnTermination", True)))
