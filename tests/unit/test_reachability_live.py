"""A cluster's network as read from an account (moto)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from slurm_cluster.model.flows import PortRange
from slurm_cluster.reachability import Direction, InputError, command_line, live
from slurm_cluster.reachability.network import CidrPeer, GroupPeer, GroupRule, Network, PrefixListPeer
from tests.unit import moto_account

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

REGION = "eu-west-1"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[EC2Client]:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "testing")
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    with mock_aws():
        yield boto3.client("ec2", region_name=REGION)


@pytest.fixture
def vpc(ec2: EC2Client) -> str:
    return ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]


@pytest.fixture
def subnet(ec2: EC2Client, vpc: str) -> str:
    return ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]


@pytest.fixture
def group(ec2: EC2Client, vpc: str) -> str:
    return ec2.create_security_group(GroupName="compute", Description="Slurm's workers", VpcId=vpc)["GroupId"]


def launch(ec2: EC2Client, subnet: str, group: str, name: str = "") -> str:
    tags: list[Any] = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": name}]}] if name else []
    return moto_account.launch(ec2, subnet, group, TagSpecifications=tags)


def read(*instance_ids: str) -> Network:
    return live.read(instance_ids=instance_ids, region=REGION)


def test_instance_is_a_member_with_its_groups_subnet_address_and_name(
    ec2: EC2Client, vpc: str, subnet: str, group: str
) -> None:
    instance = launch(ec2, subnet, group, name="compute-1")

    network = read(instance)

    [member] = network.members
    assert (member.name, member.kind, member.groups, member.subnets) == (instance, "instance", (group,), (subnet,))
    address = ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
    assert member.address == IPv4Address(address)
    assert member.tags["Name"] == "compute-1"
    assert network.groups[group].complete
    assert {"compute", "Slurm's workers"} <= set(network.groups[group].words)
    assert network.subnets[subnet].cidr == IPv4Network("10.0.0.0/24")
    assert network.vpcs[vpc].cidrs == (IPv4Network("10.0.0.0/16"),)


def test_every_kind_of_peer_becomes_a_rule_with_the_id_that_aws_gave_it(
    ec2: EC2Client, subnet: str, group: str
) -> None:
    offices = ec2.create_managed_prefix_list(
        PrefixListName="offices",
        AddressFamily="IPv4",
        MaxEntries=5,
        Entries=[{"Cidr": "192.168.1.0/24"}, {"Cidr": "192.168.2.0/24"}],
    )["PrefixList"]["PrefixListId"]
    ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 6818, "ToPort": 6818, "UserIdGroupPairs": [{"GroupId": group}]},
            {"IpProtocol": "udp", "FromPort": 1, "ToPort": 9, "IpRanges": [{"CidrIp": "10.1.0.0/16"}]},
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "PrefixListIds": [{"PrefixListId": offices}]},
            {"IpProtocol": "-1", "Ipv6Ranges": [{"CidrIpv6": "::/0"}]},
            {"IpProtocol": "icmp", "FromPort": 8, "ToPort": 0, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]},
        ],
    )
    network = read(launch(ec2, subnet, group))

    found = {(rule.protocol, rule.ports, rule.peer) for rule in network.rules if rule.direction is Direction.INGRESS}
    assert found == {
        ("tcp", PortRange(6818, 6818), GroupPeer(group)),
        ("udp", PortRange(1, 9), CidrPeer(IPv4Network("10.1.0.0/16"))),
        ("tcp", PortRange(22, 22), PrefixListPeer(offices)),
        ("-1", None, CidrPeer(IPv6Network("::/0"))),
        # the two numbers of ICMP are its type and code
        ("icmp", None, CidrPeer(IPv4Network("10.0.0.0/8"))),
    }
    assert all(rule.found.id.startswith("sgr-") for rule in network.rules)
    assert network.prefix_lists[offices] == (IPv4Network("192.168.1.0/24"), IPv4Network("192.168.2.0/24"))


def rules_out(network: Network) -> list[GroupRule]:
    return [rule for rule in network.rules if rule.direction is Direction.EGRESS]


def test_what_may_go_out_is_what_the_rules_say(ec2: EC2Client, subnet: str, group: str) -> None:
    instance = launch(ec2, subnet, group)
    [everything] = rules_out(read(instance))
    assert (everything.protocol, everything.ports) == ("-1", None)
    assert everything.peer == CidrPeer(IPv4Network("0.0.0.0/0"))

    ec2.revoke_security_group_egress(
        GroupId=group, IpPermissions=[{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    )

    network = read(instance)
    assert rules_out(network) == []
    assert not network.groups[group].allows_all_egress


def test_network_acl_is_that_of_the_subnet(ec2: EC2Client, vpc: str, subnet: str, group: str) -> None:
    acl = ec2.create_network_acl(VpcId=vpc)["NetworkAcl"]["NetworkAclId"]
    ec2.create_network_acl_entry(
        NetworkAclId=acl,
        RuleNumber=90,
        Protocol="6",
        RuleAction="deny",
        Egress=False,
        CidrBlock="10.0.0.0/8",
        PortRange={"From": 32768, "To": 60999},
    )
    [old] = ec2.describe_network_acls(Filters=[{"Name": "association.subnet-id", "Values": [subnet]}])["NetworkAcls"]
    ec2.replace_network_acl_association(
        AssociationId=old["Associations"][0]["NetworkAclAssociationId"], NetworkAclId=acl
    )

    network = read(launch(ec2, subnet, group))

    assert network.subnets[subnet].acl == acl
    [entry] = [item for item in network.acls[acl].entries if item.number == 90]
    assert (entry.allow, entry.direction, entry.protocol) == (False, Direction.INGRESS, "tcp")
    assert (entry.ports, entry.cidr) == (PortRange(32768, 60999), IPv4Network("10.0.0.0/8"))
    assert network.acls[acl].complete


def let_in(ec2: EC2Client, group: str, peer: str, first: int, last: int) -> None:
    ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "UserIdGroupPairs": [{"GroupId": peer}]}
        ],
    )


def test_closed_connection_of_a_running_cluster_is_mended_by_the_command_that_is_shown(
    ec2: EC2Client, vpc: str, subnet: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head_group = ec2.create_security_group(GroupName="head", Description="Slurm's head", VpcId=vpc)["GroupId"]
    let_in(ec2, head_group, group, 6817, 6817)
    let_in(ec2, group, head_group, 1024, 65535)
    let_in(ec2, group, group, 0, 65535)
    head, *workers = (
        launch(ec2, subnet, head_group, name="head"),
        launch(ec2, subnet, group, name="compute-1"),
        launch(ec2, subnet, group, name="compute-2"),
    )
    arguments = ["--instance-ids", head, *workers, "--region", REGION]

    assert command_line.main(arguments) == 1
    shown = capsys.readouterr().out
    assert "CLOSED  srun-io" in shown
    (command,) = (line.strip() for line in shown.splitlines() if line.strip().startswith("aws "))
    assert command == (
        f"aws ec2 authorize-security-group-ingress --group-id {head_group} --ip-permissions "
        f"'IpProtocol=tcp,FromPort=1024,ToPort=65535,UserIdGroupPairs=[{{GroupId={group}}}]'"
    )

    let_in(ec2, head_group, group, 1024, 65535)
    assert command_line.main(arguments) == 0


def test_terminated_instance_is_no_instance(ec2: EC2Client, subnet: str, group: str) -> None:
    kept, gone = launch(ec2, subnet, group), launch(ec2, subnet, group)
    ec2.terminate_instances(InstanceIds=[gone])

    with pytest.raises(InputError, match=f"terminated: {gone}; check the ids, the Region"):
        read(kept, gone)


Resources = list[tuple[str, str | None]]


@pytest.fixture
def stacks(ec2: EC2Client, monkeypatch: pytest.MonkeyPatch) -> dict[str, Resources]:
    """Types and physical ids of the resources of each stack; moto's CloudFormation needs a dozen packages more."""
    found: dict[str, Resources] = {}
    original = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

    def answer(self: Any, operation: str, parameters: dict[str, Any]) -> Any:
        if operation != "ListStackResources":
            return original(self, operation, parameters)
        name = parameters["StackName"]
        if name not in found:
            message = f"Stack with id {name} does not exist"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, operation)
        summaries = [
            {"ResourceType": kind, "ResourceStatus": "CREATE_COMPLETE" if physical else "CREATE_FAILED"}
            | ({"PhysicalResourceId": physical} if physical else {})
            for kind, physical in found[name]
        ]
        # one resource a page
        start = int(parameters.get("NextToken", 0))
        more = {"NextToken": str(start + 1)} if start + 1 < len(summaries) else {}
        return {"StackResourceSummaries": summaries[start : start + 1], **more}

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", answer)
    return found


def test_stack_is_its_instances_those_of_nested_stacks_and_what_its_launch_templates_launched(
    ec2: EC2Client, subnet: str, group: str, stacks: dict[str, Resources]
) -> None:
    head, worker, elastic, scaled, stranger = (launch(ec2, subnet, group) for _ in range(5))
    # EC2 and Auto Scaling themselves tag what they launch
    ec2.create_tags(Resources=[elastic], Tags=[{"Key": "aws:ec2launchtemplate:id", "Value": "lt-0123456789abcdef0"}])
    ec2.create_tags(Resources=[scaled], Tags=[{"Key": "aws:autoscaling:groupName", "Value": "compute"}])
    ec2.create_tags(Resources=[stranger], Tags=[{"Key": "aws:autoscaling:groupName", "Value": "somebody-else"}])
    nested = "arn:aws:cloudformation:eu-west-1:123456789012:stack/workers/1"
    stacks["cluster"] = [
        ("AWS::EC2::Instance", head),
        ("AWS::CloudFormation::Stack", nested),
        ("AWS::EC2::LaunchTemplate", "lt-0123456789abcdef0"),
        ("AWS::EC2::Instance", None),
        ("AWS::SNS::Topic", "topic"),
    ]
    stacks[nested] = [("AWS::EC2::Instance", worker), ("AWS::AutoScaling::AutoScalingGroup", "compute")]

    names = [member.name for member in live.read(stack="cluster", region=REGION).members]

    assert sorted(names) == sorted([head, worker, elastic, scaled])


def test_stack_without_instances_is_refused(stacks: dict[str, Resources]) -> None:
    stacks["empty"] = [("AWS::SNS::Topic", "topic")]
    with pytest.raises(InputError, match="stack empty has no instance: give one"):
        live.read(stack="empty", region=REGION)


def test_stack_that_does_not_exist_is_named(stacks: dict[str, Resources]) -> None:
    with pytest.raises(InputError, match="ListStackResources with ValidationError: Stack with id nosuch does"):
        live.read(stack="nosuch", region=REGION)


def test_missing_region_is_said(ec2: EC2Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(InputError, match=r"You must specify a region.*--region"):
        live.read(instance_ids=["i-0123456789abcdef0"])


def test_missing_permission_is_named(ec2: EC2Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, operation: str, parameters: object) -> None:
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "not authorized"}}, operation)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", refuse)
    with pytest.raises(InputError, match="AWS refuses DescribeInstances: not authorized; allow it"):
        read("i-0123456789abcdef0")


def test_only_the_operations_that_the_docstring_lists_are_called(
    ec2: EC2Client, subnet: str, group: str, stacks: dict[str, Resources], monkeypatch: pytest.MonkeyPatch
) -> None:
    offices = ec2.create_managed_prefix_list(PrefixListName="o", AddressFamily="IPv4", MaxEntries=1)
    stacks["cluster"] = [("AWS::EC2::Instance", launch(ec2, subnet, group))]
    ec2.authorize_security_group_ingress(
        GroupId=group,
        IpPermissions=[
            {"IpProtocol": "-1", "PrefixListIds": [{"PrefixListId": offices["PrefixList"]["PrefixListId"]}]}
        ],
    )
    called: set[str] = set()
    here = threading.get_ident()
    original = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

    def record(self: Any, operation: str, parameters: object) -> Any:
        if threading.get_ident() == here:  # a rehearsal of other tests may look at its machines at the same time
            called.add(f"{self.meta.service_model.service_name}:{operation}")
        return original(self, operation, parameters)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", record)
    live.read(stack="cluster", region=REGION)

    assert live.__doc__
    listed = {word for word in live.__doc__.split() if word.startswith(("ec2:", "cloudformation:"))}
    assert called == listed
