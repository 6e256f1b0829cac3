"""What the EC2 API says of instances and volumes at one moment, and what the instances may know of themselves."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm_cluster.model.node_files import NODE_TAG, ROLE_TAG
from slurm_cluster.rehearsal.network.instance_metadata import InstanceMetadata, InstanceProfile

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import InstanceTypeDef


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance of the API; the address is empty once it is terminated."""

    id: str
    state: str
    private_ip: str
    subnet_id: str
    root_device: str
    tags: Mapping[str, str]

    @property
    def role(self) -> str | None:
        """What it is to Slurm; None if it is no node of a cluster."""
        return self.tags.get(ROLE_TAG)

    @property
    def label(self) -> str:
        """What people call it: its node name, ``head``, or its instance id where no tag says more."""
        return self.tags.get(NODE_TAG) or self.role or self.id


@dataclass(frozen=True, kw_only=True)
class Volume:
    """One volume of the API, root volumes excepted: a machine's overlay is its root volume."""

    id: str
    size_gib: int
    instance_id: str | None


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Instances and volumes by their ids."""

    instances: Mapping[str, Instance]
    volumes: Mapping[str, Volume]


def names(instances: Iterable[Instance]) -> dict[str, Instance]:
    """Return instances that are not terminated by what to call them here, see ``Instance.label``.

    Where there are several of one label, as in an app with several clusters, all but the first are
    ``<label>@<instance id>``.
    """
    found: dict[str, Instance] = {}
    for instance in instances:
        if instance.state != "terminated":
            found[f"{instance.label}@{instance.id}" if instance.label in found else instance.label] = instance
    return found


def observe(ec2: EC2Client) -> Observed:
    """Read instances and volumes."""
    instances = {}
    for page in ec2.get_paginator("describe_instances").paginate():
        for reservation in page["Reservations"]:
            for found in reservation["Instances"]:
                instances[found["InstanceId"]] = Instance(
                    id=found["InstanceId"],
                    state=found["State"]["Name"],
                    private_ip=found.get("PrivateIpAddress", ""),
                    subnet_id=found.get("SubnetId", ""),
                    root_device=found["RootDeviceName"],
                    tags={tag["Key"]: tag["Value"] for tag in found.get("Tags", ())},
                )
    return Observed(instances=instances, volumes=_volumes(ec2, instances))


def _volumes(ec2: EC2Client, instances: Mapping[str, Instance]) -> dict[str, Volume]:
    volumes = {}
    for page in ec2.get_paginator("describe_volumes").paginate():
        for found in page["Volumes"]:
            attachments = [item for item in found.get("Attachments", ()) if item["State"] in ("attaching", "attached")]
            holder = instances.get(attachments[0]["InstanceId"]) if attachments else None
            if holder is not None and attachments[0]["Device"] == holder.root_device:
                continue
            volumes[found["VolumeId"]] = Volume(
                id=found["VolumeId"],
                size_gib=found["Size"],
                instance_id=holder.id if holder is not None and holder.state != "terminated" else None,
            )
    return volumes


def instance_metadata(ec2: EC2Client, instance_id: str, role_of: Callable[[str], str]) -> InstanceMetadata:
    """Return what the metadata service tells an instance, read from the API.

    Args:
        ec2: the API.
        instance_id: an instance that is not terminated.
        role_of: returns the name of the role of an instance profile, given by ARN.
    """
    reservation = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]
    instance = reservation["Instances"][0]
    subnet = ec2.describe_subnets(SubnetIds=[instance["SubnetId"]])["Subnets"][0]
    vpc = ec2.describe_vpcs(VpcIds=[instance["VpcId"]])["Vpcs"][0]
    options = instance["MetadataOptions"]
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    user_data = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")["UserData"].get("Value")
    zone = instance["Placement"]["AvailabilityZone"]
    return InstanceMetadata(
        instance_id=instance_id,
        image_id=instance["ImageId"],
        instance_type=instance["InstanceType"],
        architecture=instance["Architecture"],
        private_ip=instance["PrivateIpAddress"],
        region=zone[:-1],
        availability_zone=zone,
        account_id=reservation["OwnerId"],
        reservation_id=reservation["ReservationId"],
        ami_launch_index=instance["AmiLaunchIndex"],
        vpc_id=instance["VpcId"],
        vpc_cidr=vpc["CidrBlock"],
        subnet_id=instance["SubnetId"],
        subnet_cidr=subnet["CidrBlock"],
        interface_id=instance["NetworkInterfaces"][0]["NetworkInterfaceId"],
        security_groups={group["GroupId"]: group["GroupName"] for group in instance["SecurityGroups"]},
        pending_time=instance["LaunchTime"],
        tags=tags if options["InstanceMetadataTags"] == "enabled" else None,
        user_data=base64.b64decode(user_data) if user_data else None,
        token_required=options["HttpTokens"] == "required",
        profile=_profile(instance, role_of),
        root_device=instance["RootDeviceName"],
    )


def _profile(instance: InstanceTypeDef, role_of: Callable[[str], str]) -> InstanceProfile | None:
    if "IamInstanceProfile" not in instance:
        return None
    profile = instance["IamInstanceProfile"]
    return InstanceProfile(arn=profile["Arn"], id=profile["Id"], role_name=role_of(profile["Arn"]))
