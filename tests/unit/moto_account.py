"""Instances in the EC2 that moto fakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client


def launch(ec2: EC2Client, subnet: str, group: str, **more: Any) -> str:
    """Launch one instance of any image, ``more`` as of RunInstances; return its id."""
    answer = ec2.run_instances(
        ImageId=ec2.describe_images()["Images"][0]["ImageId"],
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet,
        SecurityGroupIds=[group],
        **more,
    )
    return answer["Instances"][0]["InstanceId"]
