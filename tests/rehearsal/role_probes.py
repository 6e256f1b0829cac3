"""For each permission of a role, the call that needs it, made with the role's own credentials.

A probe returns when the call is allowed and raises ``Refused`` when IAM refuses it; what it changes it puts back.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from slurm_cluster.rehearsal.cloud.server import Cloud

_REFUSALS = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}


class Refused(Exception):
    """IAM refused the call."""


@dataclass(frozen=True)
class Role:
    """A deployed role and the inline policies that hold all its permissions."""

    cloud: Cloud
    name: str
    arn: str
    policies: Mapping[str, Any]

    def client(self, service: str) -> Any:
        """Return a client with the role's credentials."""
        return self.cloud.client(service, self.cloud.assume(self.arn, "i-rehearsal"))

    def put(self, policies: Mapping[str, Any]) -> None:
        """Give the role these policies in place of its own."""
        for name, document in policies.items():
            self.cloud.client("iam").put_role_policy(
                RoleName=self.name, PolicyName=name, PolicyDocument=json.dumps(document)
            )


def roles_of(cloud: Cloud, service: str, stack: str) -> list[Role]:
    """Return the roles of a stack that an AWS service such as ``ec2`` assumes."""
    iam = cloud.client("iam")
    found = []
    for role in iam.list_roles()["Roles"]:
        principals = {item["Principal"].get("Service") for item in role["AssumeRolePolicyDocument"]["Statement"]}
        if not role["RoleName"].startswith(f"{stack}-") or f"{service}.amazonaws.com" not in principals:
            continue
        assert not iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
        names = iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]
        policies = {
            name: iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)["PolicyDocument"] for name in names
        }
        found.append(Role(cloud, role["RoleName"], role["Arn"], policies))
    return found


def lacking_one_statement(policies: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each statement with the policies as they are without it."""
    for name, document in policies.items():
        for position, statement in enumerate(document["Statement"]):
            variant = copy.deepcopy(dict(policies))
            del variant[name]["Statement"][position]
            # a policy has at least one statement: this one allows nothing
            variant[name]["Statement"] = variant[name]["Statement"] or [
                {"Effect": "Deny", "Action": "sts:DecodeAuthorizationMessage", "Resource": "*"}
            ]
            yield statement, variant


def listed(value: Any) -> list[Any]:
    """Return a policy element that may be one value or several as several."""
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True)
class Head:
    """The head instance and the volume that its role may claim."""

    instance_id: str
    volume_id: str


def probe(role: Role, action: str, resource: str, head: Head) -> None:
    """Make the call that needs ``action`` on ``resource``.

    Raises:
        Refused: IAM refuses it.
        AssertionError: no call is known for the action; add one.
    """
    assert action in _PROBES, f"no probe for {action}: add the call that needs it"
    try:
        _PROBES[action](role, resource, head)
    except ClientError as error:
        if error.response["Error"]["Code"] not in _REFUSALS:
            raise
        raise Refused(str(error)) from error


def _name_of(arn: str) -> str:
    return "/" + arn.partition(":parameter/")[2]


def _get_parameter(role: Role, resource: str, _: Head) -> None:
    role.client("ssm").get_parameter(Name=_name_of(resource))


def _get_parameters_by_path(role: Role, resource: str, _: Head) -> None:
    role.client("ssm").get_parameters_by_path(Path=_name_of(resource))


def _get_secret(role: Role, resource: str, _: Head) -> None:
    role.client("secretsmanager").get_secret_value(SecretId=resource)


def _get_object(role: Role, resource: str, _: Head) -> None:
    bucket, key = resource.rpartition(":::")[2].split("/", 1)
    role.client("s3").get_object(Bucket=bucket, Key=key)


def _described(call: str) -> Callable[[Role, str, Head], None]:
    def describe(role: Role, resource: str, _: Head) -> None:
        getattr(role.client("ec2"), call)()

    return describe


def _attach(role: Role, _: str, head: Head) -> None:
    role.client("ec2").attach_volume(VolumeId=head.volume_id, InstanceId=head.instance_id, Device="/dev/sdf")
    role.cloud.client("ec2").detach_volume(VolumeId=head.volume_id)


def _detach(role: Role, _: str, head: Head) -> None:
    ec2 = role.cloud.client("ec2")
    ec2.attach_volume(VolumeId=head.volume_id, InstanceId=head.instance_id, Device="/dev/sdf")
    try:
        role.client("ec2").detach_volume(VolumeId=head.volume_id)
    except ClientError:
        ec2.detach_volume(VolumeId=head.volume_id)
        raise


def _stop(role: Role, _: str, head: Head) -> None:
    role.client("ec2").stop_instances(InstanceIds=[head.instance_id])
    ec2 = role.cloud.client("ec2")
    for move, state in ((None, "stopped"), (ec2.start_instances, "running")):
        if move is not None:
            move(InstanceIds=[head.instance_id])
        deadline = time.monotonic() + 5
        while instance_state(role.cloud, head.instance_id) != state:
            assert time.monotonic() < deadline, f"{head.instance_id} does not become {state}"
            time.sleep(0.05)


def instance_state(cloud: Cloud, instance_id: str) -> str:
    """Return the name of an instance's state."""
    (reservation,) = cloud.client("ec2").describe_instances(InstanceIds=[instance_id])["Reservations"]
    return str(reservation["Instances"][0]["State"]["Name"])


def _agent(role: Role, _: str, __: Head) -> None:
    """Look whether Systems Manager manages an instance of this role, as it does when its agent may call."""
    iam, ssm = role.cloud.client("iam"), role.cloud.client("ssm")
    (profile,) = iam.list_instance_profiles_for_role(RoleName=role.name)["InstanceProfiles"]
    reservations = role.cloud.client("ec2").describe_instances(
        Filters=[{"Name": "instance-state-name", "Values": ["running"]}]
    )["Reservations"]
    instance = next(
        item
        for reservation in reservations
        for item in reservation["Instances"]
        if item["IamInstanceProfile"]["Arn"] == profile["Arn"]
    )
    online = role.cloud.nodes / instance["InstanceId"] / "agent-online"
    online.parent.mkdir(parents=True, exist_ok=True)
    online.touch()
    try:
        found = ssm.describe_instance_information(Filters=[{"Key": "InstanceIds", "Values": [instance["InstanceId"]]}])[
            "InstanceInformationList"
        ]
    finally:
        online.unlink()
    if [entry["PingStatus"] for entry in found] != ["Online"]:
        raise Refused(f"{instance['InstanceId']} is not managed")


def _log_group(resource: str) -> str:
    return resource.partition(":log-group:")[2].partition(":")[0]


def _create_log_stream(role: Role, resource: str, _: Head) -> None:
    role.client("logs").create_log_stream(logGroupName=_log_group(resource), logStreamName=f"probe-{time.time_ns()}")


def _put_log_events(role: Role, resource: str, _: Head) -> None:
    stream = f"probe-{time.time_ns()}"
    role.cloud.client("logs").create_log_stream(logGroupName=_log_group(resource), logStreamName=stream)
    role.client("logs").put_log_events(
        logGroupName=_log_group(resource),
        logStreamName=stream,
        logEvents=[{"timestamp": int(time.time() * 1000), "message": "probe"}],
    )


def _filter_log_events(role: Role, resource: str, _: Head) -> None:
    role.client("logs").filter_log_events(logGroupName=_log_group(resource), filterPattern="REJECT")


def _send_command(role: Role, resource: str, head: Head) -> None:
    """Send a command to the head; both the document and the instance have to be allowed."""
    del resource
    role.client("ssm").send_command(
        DocumentName="AWS-RunShellScript", InstanceIds=[head.instance_id], Parameters={"commands": ["true"]}
    )


def _about_command(call: str, *, many: bool) -> Callable[[Role, str, Head], None]:
    def ask(role: Role, _: str, head: Head) -> None:
        sent = role.cloud.client("ssm").send_command(
            DocumentName="AWS-RunShellScript", InstanceIds=[head.instance_id], Parameters={"commands": ["true"]}
        )
        where: dict[str, Any] = {"InstanceIds": [head.instance_id]} if many else {"InstanceId": head.instance_id}
        getattr(role.client("ssm"), call)(CommandId=sent["Command"]["CommandId"], **where)

    return ask


def _describe_agents(role: Role, _: str, __: Head) -> None:
    role.client("ssm").describe_instance_information()


def _console(role: Role, _: str, head: Head) -> None:
    role.client("ec2").get_console_output(InstanceId=head.instance_id, Latest=True)


def _describe_stack(role: Role, resource: str, _: Head) -> None:
    role.client("cloudformation").describe_stacks(StackName=resource)


def _invoke(role: Role, resource: str, _: Head) -> None:
    role.client("lambda").invoke(FunctionName=resource, InvocationType="DryRun")


_AGENT = (
    *(f"ec2messages:{name}" for name in ("AcknowledgeMessage", "DeleteMessage", "FailMessage")),
    *(f"ec2messages:{name}" for name in ("GetEndpoint", "GetMessages", "SendReply")),
    "ssm:UpdateInstanceInformation",
    *(f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")),
)

_PROBES: dict[str, Callable[[Role, str, Head], None]] = {
    **dict.fromkeys(_AGENT, _agent),
    "cloudformation:DescribeStacks": _describe_stack,
    "ec2:AttachVolume": _attach,
    "ec2:DescribeFlowLogs": _described("describe_flow_logs"),
    "ec2:DescribeInstanceTypes": _described("describe_instance_types"),
    "ec2:DescribeInstances": _described("describe_instances"),
    "ec2:DescribeVolumes": _described("describe_volumes"),
    "ec2:DetachVolume": _detach,
    "ec2:GetConsoleOutput": _console,
    "ec2:StopInstances": _stop,
    "lambda:InvokeFunction": _invoke,
    "logs:CreateLogStream": _create_log_stream,
    "logs:FilterLogEvents": _filter_log_events,
    "logs:PutLogEvents": _put_log_events,
    "s3:GetObject": _get_object,
    "secretsmanager:GetSecretValue": _get_secret,
    "ssm:CancelCommand": _about_command("cancel_command", many=True),
    "ssm:DescribeInstanceInformation": _describe_agents,
    "ssm:GetCommandInvocation": _about_command("get_command_invocation", many=False),
    "ssm:GetParameter": _get_parameter,
    "ssm:GetParametersByPath": _get_parameters_by_path,
    "ssm:SendCommand": _send_command,
}
