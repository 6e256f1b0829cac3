"""What users call: grants, connections, metrics, images, and the errors for what is not allowed."""

from __future__ import annotations

import json
from collections.abc import Callable

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match, Template

import slurm_cluster
from slurm_cluster import (
    ClusterFoundation,
    ClusterNetwork,
    HeadNode,
    OperatingSystem,
    PinnedImage,
    PortRange,
    SlurmCluster,
)

C7I = ec2.InstanceType("c7i.large")
NewApp = Callable[..., cdk.App]


@pytest.fixture
def stack(new_app: NewApp) -> cdk.Stack:
    return cdk.Stack(new_app(), "Stack")


def _policies_of(template: Template, role: str) -> str:
    """Return the policies outside of the role whose logical id contains ``role``."""
    found = template.find_resources("AWS::IAM::Policy")
    return json.dumps([item for item in found.values() if role in json.dumps(item["Properties"]["Roles"])])


def test_public_names_are_all_there() -> None:
    for name in slurm_cluster.__all__:
        assert getattr(slurm_cluster, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Cluster'"):
        _ = slurm_cluster.Cluster


def test_what_is_granted_to_the_cluster_reaches_head_and_workers(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    bucket = s3.Bucket(stack, "Bucket")
    bucket.grant_read(cluster)
    template = Template.from_stack(stack)
    for role in ("HeadNodeAccessRole", "WorkerAccessRole"):
        assert "s3:GetObject*" in _policies_of(template, role)


def test_what_is_granted_to_a_part_reaches_that_part_alone(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    partition = cluster.add_partition("cpu", instance_type=C7I, static_nodes=1)
    s3.Bucket(stack, "ForHead").grant_read(cluster.head_node)
    s3.Bucket(stack, "ForWorkers").grant_write(partition)
    template = Template.from_stack(stack)
    assert "ForHead" in _policies_of(template, "HeadNodeAccessRole")
    assert "ForWorkers" not in _policies_of(template, "HeadNodeAccessRole")
    assert "ForWorkers" in _policies_of(template, "WorkerAccessRole")


def test_a_peer_that_lets_the_cluster_in_lets_both_groups_in(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    server = ec2.SecurityGroup(stack, "Server", vpc=cluster.network.vpc)
    server.connections.allow_from(cluster, ec2.Port.tcp(2049))
    rules = Template.from_stack(stack).find_resources(
        "AWS::EC2::SecurityGroupIngress", {"Properties": {"FromPort": 2049}}
    )
    sources = json.dumps([item["Properties"]["SourceSecurityGroupId"] for item in rules.values()])
    assert len(rules) == 2
    assert "HeadGroup" in sources
    assert "WorkerGroup" in sources


def test_grant_submit_opens_a_session_on_the_head_and_nothing_else(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    cluster.add_partition("cpu", instance_type=C7I, static_nodes=1)
    cluster.grant_submit(iam.User(stack, "User"))
    template = Template.from_stack(stack)
    (policy,) = template.find_resources("AWS::IAM::Policy", {"Properties": {"Users": Match.any_value()}}).values()
    statement, sessions = sorted(policy["Properties"]["PolicyDocument"]["Statement"], key=lambda item: item["Action"])
    assert statement["Action"] == "ssm:StartSession"
    assert statement["Condition"] == {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
    instance, document = (json.dumps(resource) for resource in statement["Resource"])
    assert "ClusterHeadNodeInstance" in instance
    assert "*" not in instance + document
    assert "::document/AWS-StartInteractiveCommand" in document
    # the shell's own connection, for sessions of the grantee alone
    assert sessions["Action"] == "ssmmessages:OpenDataChannel"
    assert json.dumps(sessions["Resource"]).endswith(':session/${aws:userid}-*"]]}')


def test_metrics_of_the_head(stack: cdk.Stack) -> None:
    head = SlurmCluster(stack, "Cluster").head_node
    head.metric_cpu_utilization().create_alarm(stack, "Busy", threshold=90, evaluation_periods=5)
    head.metric_status_check_failed().create_alarm(stack, "Down", threshold=1, evaluation_periods=2)
    template = Template.from_stack(stack)
    for name, statistic in (("CPUUtilization", "Average"), ("StatusCheckFailed", "Maximum")):
        template.has_resource_properties(
            "AWS::CloudWatch::Alarm",
            {
                "Namespace": "AWS/EC2",
                "MetricName": name,
                "Statistic": statistic,
                "Period": 60,
                "Dimensions": [{"Name": "InstanceId", "Value": {"Ref": Match.string_like_regexp("HeadNodeInstance")}}],
            },
        )


def test_architectures_share_one_image_each_and_the_function_reads_exactly_those(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    cluster.add_partition("cpu", instance_type=C7I, static_nodes=2)
    cluster.add_partition("arm", instance_type=ec2.InstanceType("c7g.large"), static_nodes=2)
    template = Template.from_stack(stack)
    images = template.find_resources("Custom::SlurmClusterPinnedImage")
    wanted = {f"/aws/service/debian/release/13/latest/{name}" for name in ("amd64", "arm64")}
    assert {item["Properties"]["ParameterName"] for item in images.values()} == wanted
    (role,) = template.find_resources(
        "AWS::IAM::Role", {"Properties": {"Policies": [{"PolicyName": "ReadPublicParameters"}]}}
    ).values()
    statements = role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    readable = json.dumps([item for item in statements if item["Action"] == "ssm:GetParameter"])
    assert all(f"::parameter{name}" in readable for name in wanted)
    assert "*" not in readable
    for item in template.find_resources("AWS::EC2::Instance").values():
        architecture = "arm64" if item["Properties"]["InstanceType"] == "c7g.large" else "amd64"
        assert architecture in item["Properties"]["ImageId"]["Fn::GetAtt"][0]


@pytest.mark.parametrize(
    ("system", "parameter", "user", "device"),
    [
        (
            OperatingSystem.ubuntu_24_04(),
            "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
            "ubuntu",
            "/dev/sda1",
        ),
        (
            OperatingSystem.ubuntu_26_04(),
            "/aws/service/canonical/ubuntu/server/26.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
            "ubuntu",
            "/dev/sda1",
        ),
        (OperatingSystem.debian_13(), "/aws/service/debian/release/13/latest/amd64", "admin", "/dev/xvda"),
    ],
)
def test_operating_systems(system: OperatingSystem, parameter: str, user: str, device: str, stack: cdk.Stack) -> None:
    SlurmCluster(stack, "Cluster", operating_system=system, image_generation=3)
    template = Template.from_stack(stack)
    template.has_resource_properties(
        "Custom::SlurmClusterPinnedImage", {"ParameterName": parameter, "Generation": "3", "ServiceTimeout": "180"}
    )
    (head,) = template.find_resources("AWS::EC2::Instance").values()
    assert head["Properties"]["BlockDeviceMappings"][0]["DeviceName"] == device
    assert json.dumps(f'"job_user":"{user}"')[1:-1] in json.dumps(template.find_resources("AWS::SSM::Parameter"))


def test_own_image_needs_no_custom_resource(new_app: NewApp) -> None:
    system = OperatingSystem.of(
        job_user="admin", amd64=ec2.MachineImage.generic_linux({"eu-west-1": "ami-0123456789abcdef0"})
    )
    stack = cdk.Stack(new_app(), "Stack", env=cdk.Environment(region="eu-west-1"))
    SlurmCluster(stack, "Cluster", operating_system=system, vpc=_imported_vpc(stack), smoke_test=False)
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::Lambda::Function", 0)
    template.has_resource_properties("AWS::EC2::Instance", {"ImageId": "ami-0123456789abcdef0"})


def test_pinned_image_serves_any_instance(stack: cdk.Stack) -> None:
    vpc = ec2.Vpc(stack, "Vpc", restrict_default_security_group=False)
    image = PinnedImage(stack, "Image", parameter_name="/aws/service/debian/release/13/latest/amd64")
    ec2.Instance(stack, "Instance", vpc=vpc, instance_type=C7I, machine_image=image)
    Template.from_stack(stack).has_resource_properties(
        "AWS::EC2::Instance", {"ImageId": {"Fn::GetAtt": [Match.any_value(), "ImageId"]}}
    )


@pytest.mark.parametrize(("default", "expected"), [(None, {"cpu"}), ("gpu", {"gpu"})])
def test_exactly_one_partition_is_the_default(default: str | None, expected: set[str], stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster", default_partition=default)
    for name in ("cpu", "gpu"):
        cluster.add_partition(name, instance_type=C7I, static_nodes=1)
    values = [
        json.loads(item["Properties"]["Value"])
        for item in Template.from_stack(stack).find_resources("AWS::SSM::Parameter").values()
        if isinstance(item["Properties"]["Value"], str)
    ]
    assert {value["name"] for value in values if value["default"]} == expected


def test_default_partition_that_is_never_added_is_an_error(stack: cdk.Stack) -> None:
    SlurmCluster(stack, "Cluster", default_partition="gpu").add_partition("cpu", instance_type=C7I, static_nodes=1)
    with pytest.raises(RuntimeError, match="default_partition is 'gpu', which the cluster does not have"):
        Template.from_stack(stack)


def test_a_cluster_has_exactly_one_head(stack: cdk.Stack) -> None:
    foundation = ClusterFoundation(stack, "Foundation", network=ClusterNetwork(stack, "Network"))
    with pytest.raises(RuntimeError, match="the cluster has no head node"):
        Template.from_stack(stack)
    HeadNode(stack, "Head", foundation=foundation)
    with pytest.raises(ValueError, match="has a head node already"):
        HeadNode(stack, "Second", foundation=foundation)


def test_job_credentials_warn_with_a_stable_id(stack: cdk.Stack) -> None:
    SlurmCluster(stack, "Cluster", job_credentials=True)
    Annotations.from_stack(stack).has_warning(
        "/Stack/Cluster/Foundation", Match.string_like_regexp(r"\[ack: slurm-cluster:jobCredentials\]")
    )


def _imported_vpc(stack: cdk.Stack) -> ec2.IVpc:
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["eu-west-1a"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0"],
    )
    assert len(vpc.private_subnets) == 1
    return vpc


def test_all_problems_of_a_cluster_come_at_once(stack: cdk.Stack) -> None:
    with pytest.raises(ValueError, match="cluster name") as caught:
        SlurmCluster(
            stack,
            "Cluster",
            vpc=_imported_vpc(stack),
            availability_zones=["eu-west-1a"],
            cluster_name="My Cluster",
            head_generation=0,
            image_generation=0,
            head_instance_type=ec2.InstanceType("m7g.large"),
            operating_system=OperatingSystem.of(job_user="admin", amd64=ec2.MachineImage.generic_linux({})),
            srun_ports=PortRange(6800, 6900),
            default_partition="all",
        )
    for part in (
        "availability_zones were given with vpc",
        "cluster name 'My Cluster' is not allowed",
        "partition name 'all' is a keyword",
        "image_generation is 0",
        "generation of the head node is 0",
        "'m7g.large' is arm64 and there is no image for it",
        "srun_ports 6800-6900 is not allowed on custom",
        "contains 6817, the port of slurmctld",
        "contains 6818, the port of slurmd",
    ):
        assert part in str(caught.value)
    assert stack.node.try_find_child("Cluster") is None


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        (PortRange(1000, 2000), "choose ports from 1024-65535"),
        (PortRange(61001, 61005), "holds 5 ports: one srun takes up to 6"),
        (PortRange(60001, 63000), "shares ports with 32768-60999.*choose from 61000-65535 or below 32768"),
        (PortRange(10000, 65000), "shares ports with 32768-60999"),
    ],
)
def test_srun_ports_that_cannot_work(ports: PortRange, message: str, stack: cdk.Stack) -> None:
    with pytest.raises(ValueError, match=message):
        SlurmCluster(stack, "Cluster", srun_ports=ports)


def test_all_problems_of_a_partition_come_at_once(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    cluster.add_partition("cpu", instance_type=C7I, static_nodes=1)
    with pytest.raises(ValueError, match="'cpu' is taken: the cluster has cpu") as caught:
        cluster.add_partition("cpu", instance_type=ec2.InstanceType("large"), static_nodes=0)
    assert "static_nodes of partition 'cpu' is 0" in str(caught.value)
    assert "instance type 'large' is not allowed" in str(caught.value)
    with pytest.raises(ValueError, match="must not end in '-static'"):
        cluster.add_partition("cpu-static", instance_type=C7I, static_nodes=1)


def test_token_as_instance_type_is_refused_without_being_read(stack: cdk.Stack) -> None:
    cluster = SlurmCluster(stack, "Cluster")
    parameter = cdk.CfnParameter(stack, "Type", default="c7i.large")
    with pytest.raises(ValueError, match="the instance type is a token"):
        cluster.add_partition("cpu", instance_type=ec2.InstanceType(parameter.value_as_string), static_nodes=1)


def test_network_options_that_contradict_each_other(stack: cdk.Stack) -> None:
    vpc = _imported_vpc(stack)
    with pytest.raises(ValueError, match="subnet was given without vpc"):
        SlurmCluster(stack, "One", subnet=vpc.private_subnets[0])
    with pytest.raises(ValueError, match="availability_zones is empty"):
        SlurmCluster(stack, "Two", availability_zones=[])
    public = ec2.Vpc.from_vpc_attributes(stack, "Public", vpc_id="vpc-0", availability_zones=["eu-west-1a"])
    with pytest.raises(ValueError, match="no private subnet with egress"):
        SlurmCluster(stack, "Three", vpc=public)
