"""CloudFormation on the emulated AWS does what AWS does: refusals, rollback, deletion policies, rules, order.

No node boots. Templates go straight to CloudFormation; the CDK CLI has tests of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slurm_cluster.rehearsal.cloud.images import DEBIAN_13
from slurm_cluster.rehearsal.cloud.server import Cloud
from slurm_cluster.rehearsal.cloud.verify import differences
from slurm_cluster.rehearsal.paths import cache_dir

_NETWORK: dict[str, Any] = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}},
    "Subnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.1.0.0/24", "AvailabilityZone": "us-east-1a"},
    },
    "Group": {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "nodes", "VpcId": {"Ref": "Vpc"}},
    },
}

_NODE: dict[str, Any] = {
    "Type": "AWS::EC2::Instance",
    "Properties": {
        "ImageId": DEBIAN_13["amd64"],
        "InstanceType": "t3.medium",
        "SubnetId": {"Ref": "Subnet"},
        "SecurityGroupIds": [{"Ref": "Group"}],
    },
}

_VOLUME: dict[str, Any] = {
    "Type": "AWS::EC2::Volume",
    "Properties": {"AvailabilityZone": "us-east-1a", "Size": 1, "VolumeType": "gp3", "Encrypted": True},
}

_ROLE: dict[str, Any] = {
    "Type": "AWS::IAM::Role",
    "Properties": {
        "AssumeRolePolicyDocument": {
            "Statement": [
                {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
            ]
        }
    },
}

_RESPONDER = """
import json, urllib.request
def handler(event, context):
    failed = event["ResourceProperties"].get("Fail") == event["RequestType"]
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    answer |= {
        "PhysicalResourceId": "made", "Status": "FAILED" if failed else "SUCCESS",
        "Reason": "node cpu-static-1: no srun",
        "Data": {"Seen": event["RequestType"]},
    }
    request = urllib.request.Request(event["ResponseURL"], data=json.dumps(answer).encode(), method="PUT")
    urllib.request.urlopen(request)
"""


class Stacks:
    """CloudFormation of one cloud."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.api = cloud.client("cloudformation")

    def create(self, name: str, resources: dict[str, Any], **outputs: Any) -> str:
        """Create a stack, wait, and return its status."""
        self.api.create_stack(StackName=name, **self._template(resources, outputs))
        return self.settled(name)

    def update(self, name: str, resources: dict[str, Any], **outputs: Any) -> str:
        """Update a stack, wait, and return its status."""
        self.api.update_stack(StackName=name, **self._template(resources, outputs))
        return self.settled(name)

    def delete(self, name: str) -> str:
        """Delete a stack, wait, and return its status."""
        stack_id = self.describe(name)["StackId"]
        self.api.delete_stack(StackName=name)
        return self.settled(stack_id)

    @staticmethod
    def _template(resources: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        template = {"Resources": resources, "Outputs": {key: {"Value": value} for key, value in outputs.items()}}
        return {"TemplateBody": json.dumps(template), "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]}

    def describe(self, name: str) -> Any:
        """Return the stack."""
        return self.api.describe_stacks(StackName=name)["Stacks"][0]

    def settled(self, name: str) -> str:
        """Wait until nothing is in progress and return the status."""
        deadline = time.monotonic() + 60
        while (status := self.describe(name)["StackStatus"]).endswith("_IN_PROGRESS"):
            assert time.monotonic() < deadline, status
            time.sleep(0.1)
        return str(status)

    def outputs(self, name: str) -> dict[str, str]:
        """Return the stack's outputs."""
        return {item["OutputKey"]: item["OutputValue"] for item in self.describe(name)["Outputs"]}

    def reasons(self, name: str) -> dict[str, str]:
        """Return the reason of each resource that failed, by logical id."""
        events = self.api.describe_stack_events(StackName=name)["StackEvents"]
        return {
            event["LogicalResourceId"]: event["ResourceStatusReason"]
            for event in events
            if event["ResourceStatus"].endswith("_FAILED")
        }

    def order(self, name: str, status: str) -> list[str]:
        """Return the logical ids that reached a status, in that order."""
        events = self.api.describe_stack_events(StackName=name)["StackEvents"]
        return [event["LogicalResourceId"] for event in reversed(events) if event["ResourceStatus"] == status]


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stacks]:
    directory = tmp_path_factory.mktemp("stacks")
    with Cloud(directory, directory / "nodes", cache=cache_dir()) as cloud:
        yield Stacks(cloud)


def _with(resource: dict[str, Any], *, policy: str | None = None, after: str | None = None, **properties: Any) -> Any:
    changed: dict[str, Any] = {**resource, "Properties": {**resource.get("Properties", {}), **properties}}
    if policy:
        changed |= {"DeletionPolicy": policy, "UpdateReplacePolicy": "Retain"}
    if after:
        changed["DependsOn"] = after
    return changed


def _volumes(stacks: Stacks) -> set[str]:
    found = stacks.cloud.client("ec2").describe_volumes()["Volumes"]
    return {volume["VolumeId"] for volume in found}


def test_a_type_that_is_not_rehearsed_is_refused_by_name(stacks: Stacks) -> None:
    for kind in ("AWS::EC2::PlacementGroup", "AWS::SQS::Queue", "AWS::EC2::Nonsense"):
        with pytest.raises(ClientError, match=kind):
            stacks.create("type", {"Thing": {"Type": kind}})


def test_a_property_that_is_not_rehearsed_fails_the_stack_by_name(stacks: Stacks) -> None:
    before = _volumes(stacks)
    node = _with(_NODE, HibernationOptions={"Configured": True})
    assert stacks.create("property", {**_NETWORK, "Disk": _VOLUME, "Node": node}) == "ROLLBACK_COMPLETE"
    assert "HibernationOptions.Configured is not rehearsed" in stacks.reasons("property")["Node"]
    assert _volumes(stacks) == before
    subnet = _with(_NETWORK["Subnet"], Ipv6Native=True)
    assert stacks.create("property2", {**_NETWORK, "Subnet": subnet}) == "ROLLBACK_COMPLETE"
    assert "Ipv6Native is not rehearsed" in stacks.reasons("property2")["Subnet"]


def test_an_alarm_is_as_declared_and_one_on_a_formula_is_refused(stacks: Stacks) -> None:
    alarm = {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
            "Dimensions": [{"Name": "InstanceId", "Value": {"Ref": "Node"}}],
            "EvaluationPeriods": 2,
            "MetricName": "StatusCheckFailed",
            "Namespace": "AWS/EC2",
            "Period": 60,
            "Statistic": "Maximum",
            "Tags": [{"Key": "owner", "Value": "lab"}],
            "Threshold": 1,
        },
    }
    resources = {**_NETWORK, "Node": _NODE}
    assert stacks.create("alarm", {**resources, "Alarm": alarm}, Name={"Ref": "Alarm"}) == "CREATE_COMPLETE"
    assert differences(stacks.cloud) == []
    changed = _with(alarm, Threshold=3, AlarmDescription="the head")
    assert stacks.update("alarm", {**resources, "Alarm": changed}, Name={"Ref": "Alarm"}) == "UPDATE_COMPLETE"
    assert differences(stacks.cloud) == []
    name = stacks.outputs("alarm")["Name"]
    cloudwatch = stacks.cloud.client("cloudwatch")
    (found,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    assert (found["Threshold"], found["AlarmDescription"]) == (3, "the head")
    assert stacks.delete("alarm") == "DELETE_COMPLETE"
    assert cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"] == []
    formula = _with(alarm, Metrics=[{"Id": "m", "Expression": "1"}])
    assert stacks.create("formula", {**resources, "Alarm": formula}) == "ROLLBACK_COMPLETE"
    assert "Metrics.Expression, Metrics.Id is not rehearsed" in stacks.reasons("formula")["Alarm"]


def test_an_error_of_the_api_is_the_reason(stacks: Stacks) -> None:
    node = _with(_NODE, InstanceType="p5.48xlarge")
    assert stacks.create("error", {**_NETWORK, "Node": node}) == "ROLLBACK_COMPLETE"
    assert "InvalidInstanceType: The instance type 'p5.48xlarge' is not rehearsed" in stacks.reasons("error")["Node"]


def test_retain_except_on_create_deletes_in_a_failed_create_only(stacks: Stacks) -> None:
    before = _volumes(stacks)
    kept = _with(_VOLUME, policy="RetainExceptOnCreate")
    failing = _with(_VOLUME, after="Disk", VolumeType="io2")
    assert stacks.create("retain1", {"Disk": kept, "Failing": failing}) == "ROLLBACK_COMPLETE"
    assert _volumes(stacks) == before
    assert stacks.create("retain2", {"Disk": kept, "Other": _VOLUME}, Id={"Ref": "Disk"}) == "CREATE_COMPLETE"
    volume_id = stacks.outputs("retain2")["Id"]
    assert stacks.delete("retain2") == "DELETE_COMPLETE"
    assert _volumes(stacks) - before == {volume_id}


def test_resources_are_made_in_order_and_removed_in_reverse(stacks: Stacks) -> None:
    resources = {"A": _with(_VOLUME, after="B"), "B": _with(_VOLUME, after="C"), "C": _VOLUME}
    assert stacks.create("order", resources) == "CREATE_COMPLETE"
    assert stacks.order("order", "CREATE_COMPLETE") == ["C", "B", "A", "order"]
    stack_id = stacks.describe("order")["StackId"]
    assert stacks.delete("order") == "DELETE_COMPLETE"
    assert stacks.order(stack_id, "DELETE_COMPLETE") == ["A", "B", "C", "order"]


def test_an_egress_rule_of_its_own_replaces_the_one_that_allows_all(stacks: Stacks) -> None:
    rule = {
        "Type": "AWS::EC2::SecurityGroupEgress",
        "Properties": {
            "GroupId": {"Ref": "Group"},
            "IpProtocol": "tcp",
            "FromPort": 6818,
            "ToPort": 6818,
            "DestinationSecurityGroupId": {"Ref": "Group"},
            "Description": "launch",
        },
    }
    ec2 = stacks.cloud.client("ec2")

    def egress(name: str) -> list[Any]:
        (group,) = ec2.describe_security_groups(GroupIds=[stacks.outputs(name)["Id"]])["SecurityGroups"]
        return list(group["IpPermissionsEgress"])

    assert stacks.create("egress0", _NETWORK, Id={"Ref": "Group"}) == "CREATE_COMPLETE"
    assert [item["IpProtocol"] for item in egress("egress0")] == ["-1"]
    assert stacks.create("egress1", {**_NETWORK, "Rule": rule}, Id={"Ref": "Group"}) == "CREATE_COMPLETE"
    (only,) = egress("egress1")
    assert (only["FromPort"], only["UserIdGroupPairs"][0]["GroupId"]) == (6818, stacks.outputs("egress1")["Id"])
    assert differences(stacks.cloud) == []
    for name in ("egress0", "egress1"):
        assert stacks.delete(name) == "DELETE_COMPLETE"


def test_an_instance_is_replaced_before_the_old_one_ends(stacks: Stacks) -> None:
    outputs = {"Id": {"Ref": "Node"}, "Address": {"Fn::GetAtt": ["Node", "PrivateIp"]}}
    node = _with(_NODE, Tags=[{"Key": "a", "Value": "1"}])
    assert stacks.create("replace", {**_NETWORK, "Node": node}, **outputs) == "CREATE_COMPLETE"
    first = stacks.outputs("replace")
    retagged = _with(_NODE, Tags=[{"Key": "a", "Value": "2"}], UserData="bmV3")
    assert stacks.update("replace", {**_NETWORK, "Node": retagged}, **outputs) == "UPDATE_COMPLETE"
    assert stacks.outputs("replace") == first  # new user data stops and starts an instance, a tag not even that
    assert differences(stacks.cloud) == []
    other = _with(retagged, BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 20}}])
    assert stacks.update("replace", {**_NETWORK, "Node": other}, **outputs) == "UPDATE_COMPLETE"
    second = stacks.outputs("replace")
    assert second["Id"] != first["Id"]
    assert second["Address"] != first["Address"]
    states = {
        instance["InstanceId"]: instance["State"]["Name"]
        for reservation in stacks.cloud.client("ec2").describe_instances()["Reservations"]
        for instance in reservation["Instances"]
    }
    assert (states[first["Id"]], states[second["Id"]]) == ("terminated", "running")
    assert differences(stacks.cloud) == []
    assert stacks.delete("replace") == "DELETE_COMPLETE"


def test_an_instance_of_a_launch_template_has_what_the_template_says(stacks: Stacks) -> None:
    template = {
        "Type": "AWS::EC2::LaunchTemplate",
        "Properties": {
            "LaunchTemplateData": {
                "InstanceType": "c7i.large",
                "MetadataOptions": {"HttpTokens": "required"},
                "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}],
            }
        },
    }
    node = _with(
        {
            **_NODE,
            "Properties": {name: value for name, value in _NODE["Properties"].items() if name != "InstanceType"},
        },
        LaunchTemplate={
            "LaunchTemplateId": {"Ref": "Template"},
            "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
        },
    )
    resources = {**_NETWORK, "Template": template, "Node": node}
    assert stacks.create("template", resources, Id={"Ref": "Node"}) == "CREATE_COMPLETE", stacks.reasons("template")
    (reservation,) = stacks.cloud.client("ec2").describe_instances(InstanceIds=[stacks.outputs("template")["Id"]])[
        "Reservations"
    ]
    instance = reservation["Instances"][0]
    assert instance["InstanceType"] == "c7i.large"
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert {"Key": "from", "Value": "template"} in instance["Tags"]
    assert [str(item) for item in differences(stacks.cloud)] == []
    assert stacks.delete("template") == "DELETE_COMPLETE"


def test_a_subnet_with_an_instance_from_elsewhere_in_it_cannot_be_deleted(stacks: Stacks) -> None:
    outputs = {"Subnet": {"Ref": "Subnet"}, "Group": {"Ref": "Group"}}
    assert stacks.create("survivor", _NETWORK, **outputs) == "CREATE_COMPLETE"
    ec2, ids = stacks.cloud.client("ec2"), stacks.outputs("survivor")
    instance_id = ec2.run_instances(
        ImageId=DEBIAN_13["amd64"],
        InstanceType="t3.medium",
        SubnetId=ids["Subnet"],
        SecurityGroupIds=[ids["Group"]],
        MinCount=1,
        MaxCount=1,
    )["Instances"][0]["InstanceId"]
    assert stacks.delete("survivor") == "DELETE_FAILED"
    assert f"has a dependent object ({instance_id})" in stacks.reasons("survivor")["Subnet"]
    ec2.terminate_instances(InstanceIds=[instance_id])
    ec2.describe_instances(InstanceIds=[instance_id])
    assert stacks.delete("survivor") == "DELETE_COMPLETE"


def _custom(fail: str, **properties: Any) -> dict[str, Any]:
    return {
        "Role": _ROLE,
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Code": {"ZipFile": _RESPONDER},
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Runtime": "python3.13",
                "Timeout": 20,
            },
        },
        "Test": {
            "Type": "Custom::Test",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Fail": fail, **properties},
        },
    }


def test_a_custom_resource_that_fails_fails_the_stack_with_its_reason(stacks: Stacks) -> None:
    assert stacks.create("custom1", _custom("Create")) == "ROLLBACK_COMPLETE"
    assert stacks.reasons("custom1")["Test"] == "node cpu-static-1: no srun"
    seen = {"Seen": {"Fn::GetAtt": ["Test", "Seen"]}}
    assert stacks.create("custom2", _custom("never"), **seen) == "CREATE_COMPLETE"
    assert stacks.outputs("custom2") == {"Seen": "Create"}
    assert stacks.update("custom2", _custom("never", Version="2"), **seen) == "UPDATE_COMPLETE"
    assert stacks.outputs("custom2") == {"Seen": "Update"}
    assert stacks.update("custom2", _custom("Update", Version="3"), **seen) == "UPDATE_ROLLBACK_COMPLETE"
    assert stacks.delete("custom2") == "DELETE_COMPLETE"
