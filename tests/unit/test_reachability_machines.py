"""Which machines templates make, in which groups and subnets."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from slurm_cluster.reachability import load
from slurm_cluster.reachability.network import Member
from slurm_cluster.reachability.template_network import network
from slurm_cluster.reachability.worlds import World
from tests.unit.small_clusters import Template, cluster, group, resource

ONLY: Template = {"Head": None, "Worker1": None, "Worker2": None, "A": group(), "B": group()}
A, B, SUBNET = {"Ref": "A"}, {"Fn::GetAtt": ["B", "GroupId"]}, {"Ref": "Subnet"}


def members(resources: Template, parameters: Template | None = None) -> dict[str, Member]:
    template = cluster({**ONLY, **resources}, parameters=parameters)
    return {item.name: item for item in network(load({"t": template}), World()).members}


def seen(member: Member) -> tuple[str, list[str], list[str], bool]:
    return member.kind, [str(item) for item in member.groups], [str(item) for item in member.subnets], member.many


def launch_template(**data: Any) -> Template:
    return resource("LaunchTemplate", LaunchTemplateData=data)


def auto_scaling(**properties: Any) -> Template:
    return {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {"VPCZoneIdentifier": [SUBNET], **properties}}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            {"M": resource("Instance", SubnetId=SUBNET, SecurityGroupIds=[A, B])},
            {"M": ("instance", ["A", "B"], ["Subnet"], False)},
        ),
        (
            {"M": resource("Instance", NetworkInterfaces=[{"DeviceIndex": "0", "SubnetId": SUBNET, "GroupSet": [A]}])},
            {"M": ("instance", ["A"], ["Subnet"], False)},
        ),
        (
            {
                "M": resource(
                    "Instance",
                    NetworkInterfaces=[
                        {"DeviceIndex": "1", "GroupSet": [B], "SubnetId": SUBNET},
                        {"DeviceIndex": "0", "GroupSet": [A], "SubnetId": SUBNET},
                    ],
                )
            },
            {"M": ("instance", ["A"], ["Subnet"], False)},
        ),
        (
            {
                "Eni": resource("NetworkInterface", SubnetId=SUBNET, GroupSet=[A]),
                "M": resource(
                    "Instance", NetworkInterfaces=[{"DeviceIndex": "0", "NetworkInterfaceId": {"Ref": "Eni"}}]
                ),
            },
            {"M": ("instance", ["A"], ["Subnet"], False)},
        ),
        (
            {
                "Eni": resource("NetworkInterface", SubnetId=SUBNET, GroupSet=[B]),
                "Second": resource(
                    "NetworkInterfaceAttachment",
                    InstanceId={"Ref": "M"},
                    NetworkInterfaceId={"Ref": "Eni"},
                    DeviceIndex="1",
                ),
                "M": resource("Instance", SubnetId=SUBNET, SecurityGroupIds=[A]),
            },
            {"M": ("instance", ["A"], ["Subnet"], False)},
        ),
        (
            {"Eni": resource("NetworkInterface", SubnetId=SUBNET, GroupSet=[B])},
            {"Eni": ("network interface", ["B"], ["Subnet"], False)},
        ),
        (
            {
                "T": launch_template(SecurityGroupIds=[A]),
                "M": resource("Instance", SubnetId=SUBNET, LaunchTemplate={"LaunchTemplateId": {"Ref": "T"}}),
            },
            {"M": ("instance", ["A"], ["Subnet"], False)},
        ),
        (
            {
                "T": {
                    **launch_template(SecurityGroupIds=[A]),
                    "Properties": {
                        **launch_template(SecurityGroupIds=[A])["Properties"],
                        "LaunchTemplateName": "named",
                    },
                },
                "M": resource(
                    "Instance", SubnetId=SUBNET, SecurityGroupIds=[B], LaunchTemplate={"LaunchTemplateName": "named"}
                ),
            },
            {"M": ("instance", ["B"], ["Subnet"], False)},
        ),
        (
            {"M": resource("Instance", SubnetId=SUBNET, LaunchTemplate={"LaunchTemplateId": "lt-0123"})},
            {"M": ("instance", ["the groups of lt-0123"], ["Subnet"], False)},
        ),
        ({"T": launch_template(SecurityGroupIds=[A])}, {"T": ("launch template", ["A"], [], True)}),
        ({"T": launch_template(InstanceType="c7i.large")}, {}),
        (
            {
                "T": launch_template(
                    NetworkInterfaces=[
                        {"DeviceIndex": 1, "NetworkCardIndex": 1, "Groups": [B]},
                        {"DeviceIndex": 0, "NetworkCardIndex": 0, "Groups": [A], "SubnetId": SUBNET},
                    ]
                )
            },
            {"T": ("launch template", ["A"], ["Subnet"], True)},
        ),
        (
            {
                "T": launch_template(SecurityGroupIds=[A]),
                "G": auto_scaling(LaunchTemplate={"LaunchTemplateId": {"Ref": "T"}, "Version": "1"}),
            },
            {"G": ("auto scaling group", ["A"], ["Subnet"], True)},
        ),
        (
            {
                "T": launch_template(SecurityGroupIds=[B]),
                "G": auto_scaling(
                    MixedInstancesPolicy={
                        "LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateId": {"Ref": "T"}}}
                    }
                ),
            },
            {"G": ("auto scaling group", ["B"], ["Subnet"], True)},
        ),
        (
            {
                "C": {"Type": "AWS::AutoScaling::LaunchConfiguration", "Properties": {"SecurityGroups": [A]}},
                "G": auto_scaling(LaunchConfigurationName={"Ref": "C"}),
            },
            {"G": ("auto scaling group", ["A"], ["Subnet"], True)},
        ),
        (
            {"M": resource("Instance", SubnetId=SUBNET)},
            {"M": ("instance", ["Vpc.DefaultSecurityGroup"], ["Subnet"], False)},
        ),
        (
            {"M": resource("Instance", SubnetId="subnet-1")},
            {"M": ("instance", ["the default group of VPC unknown"], ["subnet-1"], False)},
        ),
    ],
)
def test_a_machine_has_the_groups_of_its_primary_interface(
    resources: Template, expected: dict[str, tuple[str, list[str], list[str], bool]]
) -> None:
    assert {name: seen(item) for name, item in members(resources).items()} == expected


def test_an_auto_scaling_group_of_two_launch_templates_is_two_kinds_of_machine() -> None:
    specification = {"LaunchTemplateSpecification": {"LaunchTemplateId": {"Ref": "T"}}}
    other = {"InstanceType": "x", "LaunchTemplateSpecification": {"LaunchTemplateId": {"Ref": "U"}}}
    template = cluster(
        {
            **ONLY,
            "T": launch_template(SecurityGroupIds=[A]),
            "U": launch_template(SecurityGroupIds=[B]),
            "G": auto_scaling(MixedInstancesPolicy={"LaunchTemplate": {**specification, "Overrides": [other]}}),
        }
    )
    found = network(load({"t": template}), World()).members
    assert [(item.name, [str(one) for one in item.groups]) for item in found] == [("G", ["A"]), ("G", ["B"])]


def test_an_unknown_list_of_subnets_may_be_more_than_one() -> None:
    found = members(
        {
            "T": launch_template(SecurityGroupIds=[A]),
            "G": auto_scaling(LaunchTemplate={"LaunchTemplateId": {"Ref": "T"}}, VPCZoneIdentifier={"Ref": "Subnets"}),
        },
        {"Subnets": {"Type": "List<AWS::EC2::Subnet::Id>"}},
    )
    assert seen(found["G"])[2] == ["Select(0, ${Subnets})", "Select(1, ${Subnets})"]


def test_a_fixed_address_tags_and_daemons_are_kept() -> None:
    script = {"Fn::Base64": {"Fn::Sub": "#!/bin/sh\nsystemctl start slurmctld\n"}}
    found = members(
        {
            "M": resource(
                "Instance",
                SubnetId=SUBNET,
                SecurityGroupIds=[A],
                PrivateIpAddress="10.0.0.7",
                Tags=[{"Key": "Name", "Value": "x"}],
                UserData=script,
            ),
            "T": launch_template(
                SecurityGroupIds=[B],
                UserData={"Fn::Base64": "slurmd -Dvvv"},
                TagSpecifications=[
                    {"ResourceType": "volume", "Tags": [{"Key": "Name", "Value": "disk"}]},
                    {"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": "y"}]},
                ],
            ),
        }
    )
    assert (found["M"].address, found["M"].tags) == (IPv4Address("10.0.0.7"), {"Name": "x"})
    assert (found["M"].words, found["T"].words) == (("slurmctld",), ("slurmd",))
    assert found["T"].tags == {"Name": "y"}
