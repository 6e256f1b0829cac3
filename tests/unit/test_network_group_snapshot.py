"""Security groups as read from the API (moto)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from moto import mock_aws

from slurm_cluster.rehearsal.network.groups import GroupRule, snapshot
from tests.unit import moto_account

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[EC2Client]:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    with mock_aws():
        yield boto3.client("ec2", region_name="us-east-1")


@pytest.fixture
def subnet(ec2: EC2Client) -> str:
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    return ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]


@pytest.fixture
def group(ec2: EC2Client, subnet: str) -> str:
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    return ec2.create_security_group(GroupName="workers", Description="d", VpcId=vpc)["GroupId"]


def launch(ec2: EC2Client, subnet: str, group: str, ip: str) -> str:
    return moto_account.launch(ec2, subnet, group, PrivateIpAddress=ip)


def test_members_are_all_instances_but_terminated_ones(ec2: EC2Client, subnet: str, group: str) -> None:
    launch(ec2, subnet, group, "10.0.0.11")
    ec2.stop_instances(InstanceIds=[launch(ec2, subnet, group, "10.0.0.9")])
    ec2.terminate_instances(InstanceIds=[launch(ec2, subnet, group, "10.0.0.13")])

    found = snapshot(ec2)

    assert found.members == {"10.0.0.11": frozenset({group}), "10.0.0.9": frozenset({group})}
    assert found.addresses(group) == ("10.0.0.9", "10.0.0.11")


def test_every_kind_of_peer_becomes_a_rule(ec2: EC2Client, group: str) -> None:
    prefix_list = ec2.create_managed_prefix_list(
        PrefixListName="offices",
        AddressFamily="IPv4",
        MaxEntries=5,
        Entries=[{"Cidr": "192.168.1.0/24"}, {"Cidr": "192.168.2.0/24"}],
    )["PrefixList"]["PrefixListId"]
    ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 6818, "ToPort": 6818, "UserIdGroupPairs": [{"GroupId": group}]},
            {
                "IpProtocol": "udp",
                "FromPort": 1,
                "ToPort": 9,
                "IpRanges": [{"CidrIp": "10.1.0.0/16"}],
                "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
            },
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "PrefixListIds": [{"PrefixListId": prefix_list}]},
            {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "10.2.0.0/16"}]},
        ],
    )
    [found] = [item for item in snapshot(ec2).groups if item.id == group]
    assert set(found.ingress) == {
        GroupRule(protocol="tcp", first=6818, last=6818, peer_group=group),
        GroupRule(protocol="udp", first=1, last=9, peer_cidr="10.1.0.0/16"),
        GroupRule(protocol="tcp", first=22, last=22, peer_cidr="192.168.1.0/24"),
        GroupRule(protocol="tcp", first=22, last=22, peer_cidr="192.168.2.0/24"),
        GroupRule(protocol="-1", peer_cidr="10.2.0.0/16"),
    }
    assert found.egress == (GroupRule(protocol="-1", peer_cidr="0.0.0.0/0"),)


def test_rule_has_one_peer() -> None:
    with pytest.raises(ValueError, match="either a peer_group or a peer_cidr"):
        GroupRule(protocol="tcp", first=1, last=1)
    with pytest.raises(ValueError, match="either a peer_group or a peer_cidr"):
        GroupRule(protocol="tcp", first=1, last=1, peer_group="sg-1", peer_cidr="10.0.0.0/8")
