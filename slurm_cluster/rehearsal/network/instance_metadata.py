"""What the instance metadata service knows of one instance, as the tree of paths that EC2 serves.

Source: EC2 user guide, "Instance metadata categories" and "Dynamic data categories".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from slurm_cluster.rehearsal.network.addresses import mac_address, private_dns_name

Tree: TypeAlias = "dict[str, Tree | str | Callable[[], str]]"

_PARTITIONS = {"cn-": ("aws-cn", "amazonaws.com.cn"), "us-gov-": ("aws-us-gov", "amazonaws.com")}


@dataclass(frozen=True, kw_only=True)
class InstanceProfile:
    """An instance profile with its one role."""

    arn: str
    id: str
    role_name: str


@dataclass(frozen=True, kw_only=True)
class RoleCredentials:
    """Temporary credentials of a role, as STS AssumeRole gives them; ``expiration`` is aware of its time zone."""

    access_key_id: str
    secret_access_key: str
    session_token: str
    expiration: datetime


@dataclass(frozen=True, kw_only=True)
class InstanceMetadata:
    """One instance.

    Args:
        tags: the instance's tags if its metadata options enable them (InstanceMetadataTags), else None.
        user_data: decoded; None if the instance has none.
        token_required: whether its metadata options require IMDSv2 (HttpTokens).
        profile: None if the instance has no role.
        security_groups: names by group id, in the order of the interface.
        pending_time: when the instance was launched.
        root_device: name of the root device in the AMI's block device mapping.
    """

    instance_id: str
    image_id: str
    instance_type: str
    architecture: str
    private_ip: str
    region: str
    availability_zone: str
    account_id: str
    reservation_id: str
    ami_launch_index: int
    vpc_id: str
    vpc_cidr: str
    subnet_id: str
    subnet_cidr: str
    interface_id: str
    security_groups: Mapping[str, str]
    pending_time: datetime
    tags: Mapping[str, str] | None = None
    user_data: bytes | None = None
    token_required: bool = True
    profile: InstanceProfile | None = None
    root_device: str = "/dev/xvda"


def meta_data(instance: InstanceMetadata, credentials: Callable[[], RoleCredentials]) -> Tree:
    """Return the tree below ``meta-data/``.

    Args:
        instance: the instance.
        credentials: called when the instance asks for those of its role.
    """
    host_name = private_dns_name(instance.private_ip, instance.region)
    mac = mac_address(instance.private_ip)
    partition, domain = next(
        (names for prefix, names in _PARTITIONS.items() if instance.region.startswith(prefix)),
        ("aws", "amazonaws.com"),
    )
    tree: Tree = {
        "ami-id": instance.image_id,
        "ami-launch-index": str(instance.ami_launch_index),
        "ami-manifest-path": "(unknown)",
        "block-device-mapping": {"ami": instance.root_device, "root": instance.root_device},
        "hostname": host_name,
        "instance-action": "none",
        "instance-id": instance.instance_id,
        "instance-life-cycle": "on-demand",
        "instance-type": instance.instance_type,
        "local-hostname": host_name,
        "local-ipv4": instance.private_ip,
        "mac": mac,
        "network": {"interfaces": {"macs": {mac: _interface(instance, mac, host_name)}}},
        "placement": {"availability-zone": instance.availability_zone, "region": instance.region},
        "profile": "default-hvm",
        "reservation-id": instance.reservation_id,
        "security-groups": "\n".join(instance.security_groups.values()),
        "services": {"domain": domain, "partition": partition},
        "system": "nitro",
    }
    if instance.profile is not None:
        tree["iam"] = _iam(instance.profile, credentials)
    if instance.tags:
        tree["tags"] = {"instance": dict(instance.tags)}
    return tree


def dynamic(instance: InstanceMetadata) -> Tree:
    """Return the tree below ``dynamic/``; the document is not signed."""
    document = {
        "accountId": instance.account_id,
        "architecture": instance.architecture,
        "availabilityZone": instance.availability_zone,
        "billingProducts": None,
        "devpayProductCodes": None,
        "marketplaceProductCodes": None,
        "imageId": instance.image_id,
        "instanceId": instance.instance_id,
        "instanceType": instance.instance_type,
        "kernelId": None,
        "pendingTime": _time(instance.pending_time),
        "privateIp": instance.private_ip,
        "ramdiskId": None,
        "region": instance.region,
        "version": "2017-09-30",
    }
    return {"instance-identity": {"document": json.dumps(document, indent=2)}}


def _interface(instance: InstanceMetadata, mac: str, host_name: str) -> Tree:
    return {
        "device-number": "0",
        "interface-id": instance.interface_id,
        "local-hostname": host_name,
        "local-ipv4s": instance.private_ip,
        "mac": mac,
        "owner-id": instance.account_id,
        "security-group-ids": "\n".join(instance.security_groups),
        "security-groups": "\n".join(instance.security_groups.values()),
        "subnet-id": instance.subnet_id,
        "subnet-ipv4-cidr-block": instance.subnet_cidr,
        "vpc-id": instance.vpc_id,
        "vpc-ipv4-cidr-block": instance.vpc_cidr,
        "vpc-ipv4-cidr-blocks": instance.vpc_cidr,
    }


def _iam(profile: InstanceProfile, credentials: Callable[[], RoleCredentials]) -> Tree:
    def secret() -> str:
        found = credentials()
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": _time(datetime.now(UTC)),
                "Type": "AWS-HMAC",
                "AccessKeyId": found.access_key_id,
                "SecretAccessKey": found.secret_access_key,
                "Token": found.session_token,
                "Expiration": _time(found.expiration),
            },
            indent=2,
        )

    def info() -> str:
        return json.dumps(
            {
                "Code": "Success",
                "LastUpdated": _time(datetime.now(UTC)),
                "InstanceProfileArn": profile.arn,
                "InstanceProfileId": profile.id,
            },
            indent=2,
        )

    return {"info": info, "security-credentials": {profile.role_name: secret}}


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
