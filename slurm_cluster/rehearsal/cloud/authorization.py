"""On which resources, with which tags, AWS evaluates the policies of a request: what ministack's evaluator leaves out.

Source of the resource types and condition keys: https://docs.aws.amazon.com/service-authorization/latest/reference/
(list_amazonec2.html, list_awssystemsmanager.html, list_amazoncloudwatchlogs.html).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_cluster.rehearsal.cloud.emulator import Emulator, nested

AGENT_ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""What the SSM agent calls to be managed and to get commands and sessions; none has resource-level permissions.

https://docs.aws.amazon.com/systems-manager/latest/userguide/systems-manager-setting-up-messageAPIs.html
"""

_INSTANCE_ACTIONS = {"RebootInstances", "StartInstances", "StopInstances", "TerminateInstances"}
_VOLUME_ACTIONS = {"AttachVolume", "DetachVolume"}
_INSTANCE_OR_ANY = {"GetConsoleOutput"}


@dataclass(frozen=True)
class Target:
    """One resource that a request needs permission on, and the condition keys that come with it."""

    arn: str
    context: Mapping[str, str] = field(default_factory=dict)


def targets(emulator: Emulator, action: str, query: Mapping[str, str], body: bytes) -> list[Target] | None:
    """Return the resources that AWS checks for a request, or None where ministack's own answer is right.

    Args:
        action: IAM action, e.g. ``ec2:StopInstances``.
        query: flat query parameters, for the services that speak the Query protocol.
        body: the request's body, for those that speak JSON.

    Returns:
        An empty list for an EC2 action whose checks are not known here: a role is refused it.
    """
    service, _, name = action.partition(":")
    if service == "ec2":
        return _ec2_targets(emulator, name, nested(query))
    if service == "ssm":
        return _ssm_targets(emulator, name, body)
    if service == "logs" and name in ("CreateLogStream", "FilterLogEvents", "PutLogEvents"):
        request = json.loads(body or b"{}")
        group = f"arn:aws:logs:{emulator.region()}:{emulator.account()}:log-group:{request.get('logGroupName')}"
        # of what is asked of a group, the stream's name is empty, so that the group's own ARN with its :* allows it
        return [Target(f"{group}:log-stream:{request.get('logStreamName') or ''}")]
    return None


def _ec2_targets(emulator: Emulator, name: str, request: dict[str, Any]) -> list[Target]:
    if name.startswith("Describe"):
        # no EC2 Describe action of the product's has resource-level permissions
        return [Target("*")]
    if name in _INSTANCE_ACTIONS:
        return [_ec2_target(emulator, "instance", instance_id) for instance_id in request["InstanceId"]]
    if name in _INSTANCE_OR_ANY:
        return [_ec2_target(emulator, "instance", request["InstanceId"])]
    if name in _VOLUME_ACTIONS:
        found = [_ec2_target(emulator, "volume", request["VolumeId"])]
        instance_id = request.get("InstanceId")
        if instance_id is None:
            attachments = emulator.volumes.get(request["VolumeId"], {}).get("Attachments")
            instance_id = attachments[0]["InstanceId"] if attachments else None
        return [*found, *([_ec2_target(emulator, "instance", instance_id)] if instance_id else [])]
    return []


def _ec2_target(emulator: Emulator, kind: str, resource_id: str) -> Target:
    tags = emulator.tags.get(resource_id, [])
    return Target(
        f"arn:aws:ec2:{emulator.region()}:{emulator.account()}:{kind}/{resource_id}",
        {f"{prefix}:ResourceTag/{tag['Key']}": tag["Value"] for tag in tags for prefix in ("aws", "ec2")},
    )


def _ssm_targets(emulator: Emulator, name: str, body: bytes) -> list[Target] | None:
    request = json.loads(body or b"{}")
    if name == "SendCommand":
        document = request.get("DocumentName", "")
        owner = "" if document.startswith("AWS-") else emulator.account()
        instances = [_ec2_target(emulator, "instance", instance) for instance in request.get("InstanceIds") or []]
        return [
            Target(f"arn:aws:ssm:{emulator.region()}:{owner}:document/{document}"),
            *(
                Target(item.arn, {**item.context, **_ssm_keys(emulator, item.arn.rpartition("/")[2])})
                for item in instances
            ),
        ]
    if name in ("GetParameter", "GetParameterHistory"):
        names = [request.get("Name", "")]
    elif name == "GetParameters":
        names = request.get("Names") or []
    elif name == "GetParametersByPath":
        names = [request.get("Path", "")]
    elif name in ("CancelCommand", "DescribeInstanceInformation", "GetCommandInvocation", "ListCommands"):
        return [Target("*")]
    else:
        return None
    return [Target(_parameter_arn(emulator, item)) for item in names]


def _ssm_keys(emulator: Emulator, instance_id: str) -> dict[str, str]:
    return {f"ssm:resourceTag/{tag['Key']}": tag["Value"] for tag in emulator.tags.get(instance_id, [])}


def _parameter_arn(emulator: Emulator, name: str) -> str:
    if name.startswith("arn:"):
        return name
    # public parameters belong to no account
    account = "" if name.startswith("/aws/") else emulator.account()
    return f"arn:aws:ssm:{emulator.region()}:{account}:parameter/{name.lstrip('/')}"
