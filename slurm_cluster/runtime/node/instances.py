"""The cluster's worker instances, as EC2 lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import CLUSTER_TAG, NODE_TAG, ROLE_TAG

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client


def worker_addresses(ec2: EC2Client, cluster_id: str) -> dict[str, str]:
    """Return the private address of each worker's newest instance by node name.

    While a worker is replaced there are two of one name. Where EC2 does not answer there are no addresses.
    """
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster_id]},
            {"Name": f"tag:{ROLE_TAG}", "Values": [Role.WORKER]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
    )
    try:
        found = [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if "PrivateIpAddress" in instance
        ]
    except (BotoCoreError, ClientError):
        return {}
    found.sort(key=lambda instance: instance["LaunchTime"])
    tags = [{tag["Key"]: tag["Value"] for tag in instance["Tags"]} for instance in found]
    return {
        names[NODE_TAG]: instance["PrivateIpAddress"]
        for names, instance in zip(tags, found, strict=True)
        if NODE_TAG in names
    }
