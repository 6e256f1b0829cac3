"""What of a CloudFormation stack has machines in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient


@dataclass(frozen=True, kw_only=True)
class LaunchedBy:
    """Physical ids of a stack's resources that are instances or launch some."""

    instances: list[str] = field(default_factory=list)
    launch_templates: list[str] = field(default_factory=list)
    auto_scaling_groups: list[str] = field(default_factory=list)


def launched_by(cloudformation: CloudFormationClient, stack: str) -> LaunchedBy:
    """Return the resources of a stack and of the stacks nested in it."""
    found = LaunchedBy()
    kinds = {
        "AWS::EC2::Instance": found.instances,
        "AWS::EC2::LaunchTemplate": found.launch_templates,
        "AWS::AutoScaling::AutoScalingGroup": found.auto_scaling_groups,
    }
    waiting = [stack]
    pages = cloudformation.get_paginator("list_stack_resources")
    while waiting:
        for page in pages.paginate(StackName=waiting.pop()):
            for resource in page["StackResourceSummaries"]:
                # one that failed to be made has no id
                name = resource.get("PhysicalResourceId")
                if not name or resource["ResourceStatus"] == "DELETE_COMPLETE":
                    continue
                if resource["ResourceType"] == "AWS::CloudFormation::Stack":
                    waiting.append(name)
                elif resource["ResourceType"] in kinds:
                    kinds[resource["ResourceType"]].append(name)
    return found
