"""Instances and volumes of the emulated EC2: launches, states, attachments, errors."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal.cloud import authorization, instances, launches, ssm_agents, volumes
from slurm_cluster.rehearsal.cloud.compute_types import COMPUTE_TYPES
from slurm_cluster.rehearsal.cloud.emulator import ApiError
from slurm_cluster.rehearsal.cloud.images import DEBIAN_13
from tests.unit.emulated_account import GROUP, SUBNET, ZONE, Account, refused


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


def test_a_launched_instance_is_described_as_it_was_asked_for(account: Account) -> None:
    instance_id = account.launch(
        IamInstanceProfile={"Name": "node"},
        MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        UserData="c2NyaXB0",
        BlockDeviceMapping=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": "16", "Encrypted": "true"}}],
        TagSpecification=[
            {"ResourceType": "instance", "Tag": [{"Key": "slurm-cluster:role", "Value": "head"}]},
            {"ResourceType": "volume", "Tag": [{"Key": "slurm-cluster:role", "Value": "disk"}]},
        ],
    )
    assert account.state(instance_id) == "pending"
    (reservation,) = instances.describe_instances(
        account.emulator, {"Filter": [{"Name": "tag:slurm-cluster:role", "Value": ["head"]}]}
    )["reservationSet"]
    (found,) = reservation["instancesSet"]
    assert found["instanceId"] == instance_id
    assert found["privateIpAddress"] == "10.0.0.4"  # the first that EC2 does not keep to itself
    assert found["privateDnsName"] == "ip-10-0-0-4.ec2.internal"
    assert found["iamInstanceProfile"]["arn"] == "arn:profile/node"
    assert found["metadataOptions"]["httpTokens"] == "required"
    assert found["metadataOptions"]["httpPutResponseHopLimit"] == "1"
    assert found["metadataOptions"]["instanceMetadataTags"] == "enabled"
    attribute = instances.describe_instance_attribute(
        account.emulator, {"InstanceId": instance_id, "Attribute": "userData"}
    )
    assert attribute["userData"] == {"value": "c2NyaXB0"}
    (root,) = volumes.describe_volumes(account.emulator, {})["volumeSet"]
    assert (root["size"], root["encrypted"], root["status"]) == (16, True, "in-use")
    assert root["tagSet"] == [{"key": "slurm-cluster:role", "value": "disk"}]


def test_addresses_are_unique_and_run_out(account: Account) -> None:
    taken = [account.launch() for _ in range(3)]
    addresses = {account.emulator.instances[instance]["PrivateIpAddress"] for instance in taken}
    assert addresses == {"10.0.0.4", "10.0.0.5", "10.0.0.6"}
    with pytest.raises(ApiError, match="InsufficientFreeAddressesInSubnet"):
        account.launch()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"ImageId": "ami-1"}, "InvalidAMIID.NotFound"),
        ({"ImageId": DEBIAN_13["arm64"]}, "InvalidParameterValue"),
        ({"InstanceType": "u-24tb1.112xlarge"}, "InvalidInstanceType"),
        ({"SubnetId": "subnet-2"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupId": ["sg-2"]}, "InvalidGroup.NotFound"),
        ({"IamInstanceProfile": {"Name": "other"}}, "InvalidParameterValue"),
        ({"IamInstanceProfile": {"Name": "arn:profile/node"}}, "InvalidParameterValue"),
        ({"MetadataOptions": {"HttpTokenz": "required"}}, "UnsupportedOperation"),
        ({"HibernationOptions": {"Configured": "true"}}, "UnsupportedOperation"),
        ({"PrivateIpAddress": "10.0.0.3"}, "InvalidParameterValue"),
        ({"MinCount": "2", "MaxCount": "2"}, "UnsupportedOperation"),
    ],
)
def test_a_launch_that_ec2_would_refuse_is_refused(account: Account, asked: Any, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        account.launch(**asked)
    assert caught.value.code == code
    assert not account.emulator.instances


def test_a_launch_template_gives_what_the_call_leaves_out(account: Account) -> None:
    account.emulator.launch_templates["lt-1"] = {
        "LaunchTemplateId": "lt-1",
        "LaunchTemplateName": "worker",
        "DefaultVersionNumber": 1,
        "LatestVersionNumber": 2,
        "Versions": [
            {"VersionNumber": 1, "LaunchTemplateData": {"InstanceType": "m7i.large"}},
            {
                "VersionNumber": 2,
                "LaunchTemplateData": {
                    "InstanceType": "c7i.large",
                    "IamInstanceProfile": {"Name": "node"},
                    "MetadataOptions": {"HttpTokens": "required"},
                    "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "template"}]}],
                    "UserData": "dGVtcGxhdGU=",
                },
            },
        ],
    }
    request = {
        "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "$Latest"},
        "ImageId": DEBIAN_13["amd64"],
        "SubnetId": SUBNET,
        "SecurityGroupId": [GROUP],
        "UserData": "Y2FsbA==",
        "TagSpecification": [{"ResourceType": "instance", "Tag": [{"Key": "b", "Value": "call"}]}],
    }
    launches.run_instances(account.emulator, request)
    (instance,) = account.emulator.instances.values()
    assert (instance["InstanceType"], instance["UserData"]) == ("c7i.large", "Y2FsbA==")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["IamInstanceProfile"]["Arn"] == "arn:profile/node"
    tags = {tag["Key"]: tag["Value"] for tag in account.emulator.tags[instance["InstanceId"]]}
    assert tags == {
        "a": "template",
        "b": "call",
        "aws:ec2launchtemplate:id": "lt-1",
        "aws:ec2launchtemplate:version": "2",
    }
    refused(
        "InvalidLaunchTemplateId.VersionNotFound",
        launches.run_instances,
        account,
        LaunchTemplate={"LaunchTemplateId": "lt-1", "Version": "3"},
    )


def test_stopped_means_that_the_machine_is_off(account: Account) -> None:
    instance_id = account.running()
    account.machine(instance_id, on=True)
    (change,) = instances.stop_instances(account.emulator, {"InstanceId": [instance_id]})["instancesSet"]
    assert (change["previousState"]["name"], change["currentState"]["name"]) == ("running", "stopping")
    assert account.state(instance_id) == "stopping"
    refused("IncorrectInstanceState", instances.start_instances, account, InstanceId=[instance_id])
    account.machine(instance_id, on=False)
    assert account.state(instance_id) == "stopped"
    instances.start_instances(account.emulator, {"InstanceId": [instance_id]})
    assert account.state(instance_id) == "pending"
    account.await_state(instance_id, "running")


def test_termination_deletes_the_root_volume_and_frees_the_other(account: Account) -> None:
    instance_id = account.running()
    data = volumes.create_volume(account.emulator, {"AvailabilityZone": ZONE, "Size": "50", "VolumeType": "gp3"})
    volumes.attach_volume(
        account.emulator, {"VolumeId": data["volumeId"], "InstanceId": instance_id, "Device": "/dev/sdf"}
    )
    account.machine(instance_id, on=True)
    instances.terminate_instances(account.emulator, {"InstanceId": [instance_id]})
    assert account.state(instance_id) == "shutting-down"
    assert len(account.emulator.volumes) == 2
    account.machine(instance_id, on=False)
    assert account.state(instance_id) == "terminated"
    (left,) = volumes.describe_volumes(account.emulator, {})["volumeSet"]
    assert (left["volumeId"], left["status"], left["attachmentSet"]) == (data["volumeId"], "available", [])


def test_an_instance_protected_against_termination_stays(account: Account) -> None:
    instance_id = account.running(DisableApiTermination="true")
    refused("OperationNotPermitted", instances.terminate_instances, account, InstanceId=[instance_id])
    assert account.state(instance_id) == "running"


def test_a_volume_is_attached_to_one_instance_of_its_zone(account: Account) -> None:
    first, second = account.running(), account.running()
    volume_id = volumes.create_volume(account.emulator, {"AvailabilityZone": ZONE, "Size": "1", "VolumeType": "gp3"})[
        "volumeId"
    ]
    elsewhere = volumes.create_volume(
        account.emulator, {"AvailabilityZone": "us-east-1b", "Size": "1", "VolumeType": "gp3"}
    )["volumeId"]
    attach = {"VolumeId": volume_id, "InstanceId": first, "Device": "/dev/sdf"}
    assert volumes.attach_volume(account.emulator, attach)["status"] == "attaching"
    moved = {**attach, "InstanceId": second}
    assert "already attached" in refused("VolumeInUse", volumes.attach_volume, account, **moved)
    instances.stop_instances(account.emulator, {"InstanceId": [first]})
    assert account.state(first) == "stopped"
    refused("VolumeInUse", volumes.attach_volume, account, **moved)  # a stopped instance keeps its volumes
    refused("VolumeInUse", volumes.delete_volume, account, VolumeId=volume_id)
    volumes.detach_volume(account.emulator, {"VolumeId": volume_id})
    volumes.attach_volume(account.emulator, moved)
    refused("InvalidVolume.ZoneMismatch", volumes.attach_volume, account, **{**moved, "VolumeId": elsewhere})
    refused("InvalidVolume.NotFound", volumes.attach_volume, account, **{**moved, "VolumeId": "vol-0"})
    refused("InvalidInstanceID.NotFound", volumes.attach_volume, account, **{**moved, "InstanceId": "i-0"})


def test_describe_refuses_filters_and_parameters_that_it_does_not_act_on(account: Account) -> None:
    account.launch()
    refused("InvalidParameterValue", instances.describe_instances, account, Filter=[{"Name": "x", "Value": ["y"]}])
    refused("UnsupportedOperation", instances.describe_instances, account, DryRun="true")
    refused("InvalidInstanceID.NotFound", instances.describe_instances, account, InstanceId=["i-0"])


def test_the_console_is_the_end_of_the_machines_log(account: Account) -> None:
    instance_id = account.launch()
    assert instances.get_console_output(account.emulator, {"InstanceId": instance_id})["output"] is None
    log = account.emulator.node(instance_id, "console.log")
    log.parent.mkdir(parents=True)
    log.write_bytes(b"x" * 70_000 + b"slurm-cluster: FAILED step=a reason=b\n")
    output = instances.get_console_output(account.emulator, {"InstanceId": instance_id, "Latest": "true"})["output"]
    text = base64.b64decode(output)
    assert len(text) == 64 * 1024
    assert text.endswith(b"reason=b\n")


def test_run_command_reaches_an_instance_whose_agent_runs_and_whose_role_lets_it(account: Account) -> None:
    instance_id = account.running(IamInstanceProfile={"Name": "node"})
    emulator = account.emulator
    assert not ssm_agents.is_managed(emulator, instance_id)
    assert ssm_agents.instance_information(emulator, {}) == {"InstanceInformationList": []}
    account.machine(instance_id, on=True)
    emulator.node(instance_id, "agent-online").touch()
    assert ssm_agents.is_managed(emulator, instance_id)
    for action in authorization.AGENT_ACTIONS:
        account.denied = {action}
        assert not ssm_agents.is_managed(emulator, instance_id), action
    asked = {"Filters": [{"Key": "InstanceIds", "Values": [instance_id]}]}
    (entry,) = ssm_agents.instance_information(emulator, asked)["InstanceInformationList"]
    assert entry["PingStatus"] == "ConnectionLost"
    account.denied = set()
    without_profile = account.running()
    emulator.node(without_profile, "agent-online").parent.mkdir(parents=True)
    emulator.node(without_profile, "agent-online").touch()
    assert not ssm_agents.is_managed(emulator, without_profile)


def test_a_command_that_cannot_be_rehearsed_is_refused() -> None:
    with pytest.raises(ApiError, match="InvalidDocument: document AWS-RunPowerShellScript"):
        ssm_agents.check_command({"DocumentName": "AWS-RunPowerShellScript"})
    with pytest.raises(ApiError, match=r"UnsupportedOperation.*runAsUser"):
        ssm_agents.check_command({"DocumentName": "AWS-RunShellScript", "Parameters": {"runAsUser": ["a"]}})
    with pytest.raises(ApiError, match="InvalidParameters"):
        ssm_agents.check_command({"DocumentName": "AWS-RunShellScript"})


def test_attaching_needs_permission_on_volume_and_instance_with_their_tags(account: Account) -> None:
    account.emulator.tags["i-1"] = [{"Key": "role", "Value": "head"}]
    found = authorization.targets(account.emulator, "ec2:AttachVolume", {"VolumeId": "vol-1", "InstanceId": "i-1"}, b"")
    assert found is not None
    assert [target.arn for target in found] == [
        "arn:aws:ec2:us-east-1:000000000000:volume/vol-1",
        "arn:aws:ec2:us-east-1:000000000000:instance/i-1",
    ]
    assert found[1].context == {"aws:ResourceTag/role": "head", "ec2:ResourceTag/role": "head"}


def test_every_stopped_instance_needs_permission(account: Account) -> None:
    query = {"InstanceId.1": "i-1", "InstanceId.2": "i-2"}
    found = authorization.targets(account.emulator, "ec2:StopInstances", query, b"")
    assert found is not None
    assert [target.arn.rpartition("/")[2] for target in found] == ["i-1", "i-2"]


@pytest.mark.parametrize(
    ("action", "body", "arns"),
    [
        ("ssm:GetParameter", b'{"Name": "/c/cluster"}', ["arn:aws:ssm:us-east-1:000000000000:parameter/c/cluster"]),
        ("ssm:GetParameter", b'{"Name": "/aws/service/x"}', ["arn:aws:ssm:us-east-1::parameter/aws/service/x"]),
        ("ssm:GetParametersByPath", b'{"Path": "/c"}', ["arn:aws:ssm:us-east-1:000000000000:parameter/c"]),
        (
            "ssm:GetParameters",
            b'{"Names": ["/a", "/b"]}',
            [f"arn:aws:ssm:us-east-1:000000000000:parameter/{name}" for name in "ab"],
        ),
        (
            "logs:PutLogEvents",
            b'{"logGroupName": "/f", "logStreamName": "s"}',
            ["arn:aws:logs:us-east-1:000000000000:log-group:/f:log-stream:s"],
        ),
        (
            "logs:FilterLogEvents",
            b'{"logGroupName": "/f"}',
            ["arn:aws:logs:us-east-1:000000000000:log-group:/f:log-stream:"],
        ),
        (
            "ssm:SendCommand",
            b'{"DocumentName": "AWS-RunShellScript", "InstanceIds": ["i-1"]}',
            [
                "arn:aws:ssm:us-east-1::document/AWS-RunShellScript",
                "arn:aws:ec2:us-east-1:000000000000:instance/i-1",
            ],
        ),
    ],
)
def test_a_request_needs_permission_on_what_it_names(
    account: Account, action: str, body: bytes, arns: list[str]
) -> None:
    found = authorization.targets(account.emulator, action, {}, body)
    assert found is not None
    assert [target.arn for target in found] == arns


def test_describe_actions_need_permission_on_everything(account: Account) -> None:
    query = {"InstanceId.1": "i-1"}
    assert authorization.targets(account.emulator, "ec2:DescribeInstances", query, b"") == [authorization.Target("*")]
    assert authorization.targets(account.emulator, "ec2:RunInstances", {}, b"") == []
    assert authorization.targets(account.emulator, "s3:GetObject", {}, b"") is None


def test_a_stack_stops_and_starts_an_instance_for_new_user_data_and_keeps_it_for_new_tags(account: Account) -> None:
    kind = COMPUTE_TYPES["AWS::EC2::Instance"]
    declared = {
        "ImageId": DEBIAN_13["amd64"],
        "InstanceType": "t3.medium",
        "SubnetId": SUBNET,
        "SecurityGroupIds": [GROUP],
        "UserData": "b25l",
        "Tags": [{"Key": "a", "Value": "1"}],
    }
    assert kind.update is not None
    instance_id, attributes = kind.create(account.emulator, "Node", declared, "stack")
    assert attributes["PrivateIp"] == "10.0.0.4"
    since = account.emulator.instances[instance_id]["StateSince"]
    tagged = {**declared, "Tags": [{"Key": "b", "Value": "2"}]}
    kind.update(account.emulator, instance_id, declared, tagged)
    assert account.emulator.tags[instance_id] == [{"Key": "b", "Value": "2"}]
    assert account.emulator.instances[instance_id]["StateSince"] == since
    kind.update(account.emulator, instance_id, tagged, {**tagged, "UserData": "dHdv"})
    assert account.emulator.instances[instance_id]["UserData"] == "dHdv"
    assert account.emulator.instances[instance_id]["StateSince"] > since
    kind.delete(account.emulator, instance_id, declared)
    assert account.state(instance_id) == "terminated"
