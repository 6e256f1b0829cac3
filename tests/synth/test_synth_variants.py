"""Clusters in every place where people put them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

import app as default_app
from slurm_cluster import ClusterFoundation, ClusterNetwork, HeadNode, Partition, SlurmCluster, SmokeTest

Template = dict[str, Any]
Resources = Callable[[Template, str], dict[str, Any]]
NewApp = Callable[..., cdk.App]
TemplateOf = Callable[[cdk.Stack], Template]

C7I = ec2.InstanceType("c7i.large")
GROWTH_LIMIT = 6


def _node_actions(template: Template, resources: Resources) -> dict[str, list[Any]]:
    """Return on which resources the roles of nodes may act, by action."""
    found: dict[str, list[Any]] = {}
    for role in resources(template, "AWS::IAM::Role").values():
        policies = [item for item in role["Properties"].get("Policies", ()) if item["PolicyName"] == "Node"]
        for statement in (item for policy in policies for item in policy["PolicyDocument"]["Statement"]):
            actions = statement["Action"]
            for action in actions if isinstance(actions, list) else [actions]:
                found.setdefault(action, []).append(statement["Resource"])
    return found


def test_only_the_head_reads_refused_packets_and_only_those_of_its_own_vpc(
    default_template: Template, resources: Resources
) -> None:
    (flow_log,) = resources(default_template, "AWS::EC2::FlowLog").values()
    (group,) = _node_actions(default_template, resources)["logs:FilterLogEvents"]
    assert group["Fn::GetAtt"] == [flow_log["Properties"]["LogGroupName"]["Ref"], "Arn"]


def test_two_clusters_in_one_stack_share_nothing_that_tells_them_apart(
    new_app: NewApp, template_of: TemplateOf, resources: Resources
) -> None:
    stack = cdk.Stack(new_app(), "Stack")
    for name in ("One", "Two"):
        SlurmCluster(stack, name).add_partition("cpu", instance_type=C7I, static_nodes=1)
    template = template_of(stack)
    for kind in ("AWS::SSM::Parameter", "AWS::Route53::HostedZone", "AWS::Route53::RecordSet"):
        names = [json.dumps(item["Properties"]["Name"]) for item in resources(template, kind).values()]
        assert len(names) == len(set(names)) > 1
    tags = {
        json.dumps(tag["Value"])
        for item in resources(template, "AWS::EC2::Instance").values()
        for tag in item["Properties"]["Tags"]
        if tag["Key"] == "slurm-cluster:cluster"
    }
    assert len(tags) == 2
    assert len(resources(template, "Custom::SlurmClusterPinnedImage")) == 2
    assert len([name for name in resources(template, "AWS::Lambda::Function") if "PinnedImage" in name]) == 1
    assert len(resources(template, "AWS::SecretsManager::Secret")) == 2


def test_cluster_in_the_vpc_of_another_stack(new_app: NewApp, resources: Resources) -> None:
    app = new_app()
    network = cdk.Stack(app, "Network")
    vpc = ec2.Vpc(network, "Vpc", max_azs=2, nat_gateways=1, restrict_default_security_group=False)
    stack = cdk.Stack(app, "Stack")
    SlurmCluster(stack, "Cluster", vpc=vpc).add_partition("cpu", instance_type=C7I, static_nodes=1)
    assembly = app.synth()
    template: Template = assembly.get_stack_by_name("Stack").template
    assert resources(template, "AWS::EC2::VPC") == {}
    assert resources(template, "AWS::EC2::FlowLog") == {}
    # whose logs are whose business
    assert not {"logs:FilterLogEvents", "ec2:DescribeFlowLogs"} & _node_actions(template, resources).keys()
    assert len(resources(template, "AWS::EC2::SecurityGroupIngress")) == 5
    # the network's stack knows nothing of the cluster, so that there is no cycle
    assert "Stack" not in {item.id for item in assembly.get_stack_by_name("Network").dependencies}
    assert "slurm" not in json.dumps(assembly.get_stack_by_name("Network").template).lower()


def test_partition_in_a_stack_of_its_own(new_app: NewApp, resources: Resources) -> None:
    app = new_app()
    cluster = SlurmCluster(cdk.Stack(app, "Stack"), "Cluster", smoke_test=False)
    workers = cdk.Stack(app, "Workers")
    Partition(workers, "Gpu", foundation=cluster.foundation, partition_name="gpu", instance_type=C7I, static_nodes=2)
    assembly = app.synth()
    theirs = assembly.get_stack_by_name("Workers").template["Resources"].values()
    assert {item["Type"] for item in theirs} == {"AWS::EC2::Instance"}
    main: Template = assembly.get_stack_by_name("Stack").template
    assert any("gpu" in json.dumps(item["Properties"]) for item in resources(main, "AWS::SSM::Parameter").values())
    # its workers are told where their cluster's stack keeps the parameters, and carry that cluster's tag
    for item in theirs:
        own = json.dumps([item["Properties"]["UserData"], item["Properties"]["Tags"]])
        assert "AWS::StackName" not in own
        assert "AWS::StackId" not in own


def test_parts_composed_by_hand(new_app: NewApp, template_of: TemplateOf, resources: Resources) -> None:
    stack = cdk.Stack(new_app(), "Stack")
    network = ClusterNetwork(stack, "Network")
    foundation = ClusterFoundation(stack, "Foundation", network=network)
    # workers before the head: the order of composition does not matter
    Partition(stack, "Cpu", foundation=foundation, partition_name="cpu", instance_type=C7I, static_nodes=1)
    SmokeTest(stack, "Test", head_node=HeadNode(stack, "Head", foundation=foundation))
    by_hand = template_of(stack)
    composed_stack = cdk.Stack(new_app(), "Stack")
    SlurmCluster(composed_stack, "Cluster").add_partition("cpu", instance_type=C7I, static_nodes=1)
    composed = template_of(composed_stack)
    kinds = [sorted(item["Type"] for item in template["Resources"].values()) for template in (by_hand, composed)]
    assert kinds[0] == kinds[1]
    worker = next(item for name, item in resources(by_hand, "AWS::EC2::Instance").items() if name.startswith("Cpu"))
    assert any("SharedCluster" in name for name in worker["DependsOn"])


def test_app_with_a_vpc_by_its_parts_needs_no_look_up(
    new_app: NewApp, template_of: TemplateOf, resources: Resources
) -> None:
    stack = default_app.build(
        new_app(
            vpc_id="vpc-0123456789abcdef0",
            subnet_ids="subnet-0123456789abcdef0,subnet-0123456789abcdef1",
            availability_zones="eu-west-1b,eu-west-1a",
        )
    )
    template = template_of(stack)
    assert cdk.Token.is_unresolved(stack.account)
    for item in resources(template, "AWS::EC2::Instance").values():
        assert item["Properties"]["SubnetId"] == "subnet-0123456789abcdef0"
    (volume,) = resources(template, "AWS::EC2::Volume").values()
    assert volume["Properties"]["AvailabilityZone"] == "eu-west-1b"
    assert resources(template, "AWS::EC2::NatGateway") == {}


def test_app_with_a_vpc_by_its_id_looks_it_up(
    new_app: NewApp, template_of: TemplateOf, resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "111122223333")
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")
    group = {
        "name": "Private",
        "type": "Private",
        "subnets": [
            {
                "subnetId": "subnet-0fedcba9876543210",
                "cidr": "10.1.0.0/18",
                "availabilityZone": "eu-west-1c",
                "routeTableId": "rtb-0123456789abcdef0",
            }
        ],
    }
    found = {
        "vpcId": "vpc-0123456789abcdef0",
        "vpcCidrBlock": "10.1.0.0/16",
        "availabilityZones": [],
        "subnetGroups": [group],
    }
    key = (
        "vpc-provider:account=111122223333:filter.vpc-id=vpc-0123456789abcdef0:region=eu-west-1"
        ":returnAsymmetricSubnets=true"
    )
    stack = default_app.build(new_app(vpc_id="vpc-0123456789abcdef0", **{key: found}))
    template = template_of(stack)
    for item in resources(template, "AWS::EC2::Instance").values():
        assert item["Properties"]["SubnetId"] == "subnet-0fedcba9876543210"


def test_look_up_without_an_environment_is_refused(new_app: NewApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CDK_DEFAULT_ACCOUNT", raising=False)
    with pytest.raises(ValueError, match="looked up in your account"):
        default_app.build(new_app(vpc_id="vpc-0123456789abcdef0"))


@pytest.mark.parametrize("static_nodes", [1, 5])
def test_one_more_partition_adds_little(static_nodes: int, new_app: NewApp, template_of: TemplateOf) -> None:
    def count(partitions: int) -> int:
        stack = cdk.Stack(new_app(), "Stack")
        cluster = SlurmCluster(stack, "Cluster")
        for number in range(partitions):
            cluster.add_partition(f"p{number}", instance_type=C7I, static_nodes=static_nodes)
        return len(template_of(stack)["Resources"])

    one, two, three = count(1), count(2), count(3)
    assert two - one == three - two
    assert two - one <= GROWTH_LIMIT + static_nodes
    # its parameter, and its workers
    assert two - one == 1 + static_nodes
