"""SlurmReachability in apps: a closed connection fails synthesis, and the rule that it names mends it."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct

import app as default_app
from slurm_cluster import PortRange, SlurmCluster, SlurmReachability
from slurm_cluster.model.flows import Role, SlurmPorts, cluster_flows

NewApp = Callable[..., cdk.App]
Violation = dict[str, Any]

ALL_FLOWS = {flow.id for flow in cluster_flows(SlurmPorts())}
TYPE = ec2.InstanceType("c7i.large")
IMAGE = {"us-east-1": "ami-0123456789abcdef0"}


def violations(app: cdk.App, **options: Any) -> list[Violation]:
    """Synthesize and return what the plug-in found; synthesis fails exactly if there is an error among it."""
    cdk.Validations.of(app).add_plugins(SlurmReachability(**options))
    try:
        app.synth()
        problem = ""
    except RuntimeError as error:
        problem = str(error)
    report = json.loads(Path(app.outdir, "validation-report.json").read_text())
    found = [item for item in report["pluginReports"] if item["pluginName"] == "SlurmReachability"]
    listed = [violation for item in found for violation in item["violations"]]
    assert ("ValidationFailed" in problem) is any(violation["severity"] == "error" for violation in listed), problem
    return listed


def names(found: Sequence[Violation]) -> dict[str, str]:
    return {violation["ruleName"]: violation["severity"] for violation in found}


def cluster(stack: cdk.Stack, **options: Any) -> SlurmCluster:
    made = SlurmCluster(stack, "Cluster", **options)
    made.add_partition("cpu", instance_type=TYPE, static_nodes=2)
    return made


def test_default_app_is_proven(new_app: NewApp) -> None:
    app = new_app()
    default_app.build(app)
    assert violations(app, strict=True) == []


def test_cluster_is_found_whoever_holds_it(new_app: NewApp) -> None:
    app = new_app()
    cluster(cdk.Stack(app, "Stack")).foundation.security.node.try_remove_child("SrunIo")
    gc.collect()
    assert names(violations(app)) == {"srun-io": "error"}


def test_closed_connection_names_group_symptom_and_rule(new_app: NewApp) -> None:
    app = new_app()
    cluster(cdk.Stack(app, "Stack")).foundation.security.node.try_remove_child("SrunIo")

    [found] = violations(app)

    assert found["ruleName"] == "srun-io"
    [place] = found["violatingConstructs"]
    assert place["constructPath"] == "Stack/Cluster/Foundation/Security/HeadGroup/Resource"
    assert "srun-io is closed (worker -> head, TCP 1024-65535): no rule of" in found["description"]
    assert "connect io: Connection timed out" in found["description"]
    assert "ec2.CfnSecurityGroupIngress(" in found["suggestedFix"]


def add(stack: cdk.Stack, violation: Violation) -> None:
    """Run the suggested code as the stack's constructor would."""
    _, code = violation["suggestedFix"].split("\n", 1)
    exec(code, {"self": stack, "cdk": cdk, "ec2": ec2})  # noqa: S102 (our own text)


@pytest.mark.parametrize("rule", ["ControllerRpc", "NodeRpc", "SrunIo", "MessageTree", "ControllerToSrunInJob"])
def test_the_rules_that_it_names_mend_it(rule: str, new_app: NewApp) -> None:
    def define() -> tuple[cdk.App, cdk.Stack]:
        app = new_app()
        stack = cdk.Stack(app, "Stack")
        # the daemons' rules are inside the default range of srun
        made = cluster(stack, srun_ports=PortRange(61000, 63999))
        assert made.foundation.security.node.try_remove_child(rule)
        return app, stack

    found = violations(define()[0])
    assert found
    app, stack = define()
    for violation in found:
        add(stack, violation)
    assert violations(app) == []


def test_override_that_moves_the_head_out_of_its_group_is_seen(new_app: NewApp) -> None:
    app = new_app()
    stack = cdk.Stack(app, "Stack")
    made = cluster(stack)
    stray = ec2.SecurityGroup(stack, "Stray", vpc=made.network.vpc)
    made.head_node.instance.instance.add_property_override("SecurityGroupIds", [stack.resolve(stray.security_group_id)])
    head = {flow.id for flow in cluster_flows(SlurmPorts()) if Role.HEAD in (flow.opener, flow.listener)}
    assert names(violations(app)) == dict.fromkeys(head, "error")


def test_override_of_a_rule_is_seen(new_app: NewApp) -> None:
    app = new_app()
    rule = cluster(cdk.Stack(app, "Stack")).foundation.security.node.find_child("SrunIo")
    assert isinstance(rule, ec2.CfnSecurityGroupIngress)
    rule.add_property_override("FromPort", 32768)
    assert names(violations(app)) == {"srun-io": "error"}


def test_acknowledged_connection_does_not_fail(new_app: NewApp) -> None:
    app = new_app()
    made = cluster(cdk.Stack(app, "Stack"))
    made.foundation.security.node.try_remove_child("SrunIo")
    cdk.Validations.of(made).acknowledge(
        cdk.Acknowledgment(id="SlurmReachability::srun-io", reason="nobody runs srun on this head")
    )
    assert violations(app) == []


def test_narrow_ports_of_a_cluster_are_its_own(new_app: NewApp) -> None:
    app = new_app()
    cluster(cdk.Stack(app, "Wide"))
    cluster(cdk.Stack(app, "Narrow"), srun_ports=PortRange(61000, 63999))
    assert violations(app, strict=True) == []


def test_every_cluster_of_every_stage_is_proven(new_app: NewApp) -> None:
    app = new_app()
    for name in ("Test", "Live"):
        made = cluster(cdk.Stack(cdk.Stage(app, name), "Stack"))
        if name == "Live":
            made.foundation.security.node.try_remove_child("SrunIo")
    [found] = violations(app)
    assert found["violatingConstructs"][0]["constructPath"].startswith("Live/Stack/")


def test_vpc_of_another_stack(new_app: NewApp) -> None:
    app = new_app()
    network = cdk.Stack(app, "Network")
    vpc = ec2.Vpc(network, "Vpc", max_azs=2)
    cluster(cdk.Stack(app, "Stack"), vpc=vpc)
    assert violations(app, strict=True) == []


def test_cluster_without_workers_is_proven_by_its_groups(new_app: NewApp) -> None:
    app = new_app()
    made = SlurmCluster(cdk.Stack(app, "Stack"), "Cluster")
    made.foundation.security.node.try_remove_child("MessageTree")
    assert set(names(violations(app))) == {"message-tree", "srun-io-in-job", "mpi"}


class ByHand(Construct):
    """Machines and groups as people define them who do not use SlurmCluster."""

    def __init__(self, scope: Construct, construct_id: str, *, vpc: ec2.IVpc, open_srun: bool) -> None:
        super().__init__(scope, construct_id)
        self.head_group = ec2.SecurityGroup(self, "HeadGroup", vpc=vpc)
        self.worker_group = ec2.SecurityGroup(self, "WorkerGroup", vpc=vpc)
        image = ec2.MachineImage.generic_linux(IMAGE)
        self.head = ec2.Instance(
            self, "Head", vpc=vpc, instance_type=TYPE, machine_image=image, security_group=self.head_group
        )
        template = ec2.LaunchTemplate(
            self, "Template", instance_type=TYPE, machine_image=image, security_group=self.worker_group
        )
        self.workers = autoscaling.AutoScalingGroup(self, "Workers", vpc=vpc, launch_template=template)
        self.head_group.add_ingress_rule(self.worker_group, ec2.Port.tcp(6817))
        self.worker_group.add_ingress_rule(self.head_group, ec2.Port.tcp_range(1024, 65535))
        self.worker_group.add_ingress_rule(self.worker_group, ec2.Port.all_tcp())
        if open_srun:
            self.head_group.add_ingress_rule(self.worker_group, ec2.Port.tcp_range(1024, 65535))


def stack_in_an_environment(app: cdk.App, name: str = "Stack") -> cdk.Stack:
    return cdk.Stack(app, name, env=cdk.Environment(account="111122223333", region="us-east-1"))


@pytest.mark.parametrize("open_srun", [True, False])
@pytest.mark.parametrize(
    "told",
    [
        lambda made: (made.head, made.workers),
        lambda made: (made.head_group, [made.worker_group]),
    ],
    ids=["machines", "groups"],
)
def test_cluster_made_by_hand(
    told: Callable[[ByHand], tuple[IConstruct, IConstruct]], open_srun: bool, new_app: NewApp
) -> None:
    app = new_app()
    stack = stack_in_an_environment(app)
    made = ByHand(stack, "Slurm", vpc=ec2.Vpc(stack, "Vpc"), open_srun=open_srun)
    head, workers = told(made)
    expected = {} if open_srun else {"srun-io": "error"}
    assert names(violations(app, head=head, workers=workers)) == expected


def test_network_acl_between_subnets_is_seen(new_app: NewApp) -> None:
    app = new_app()
    stack = stack_in_an_environment(app)
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    made = ByHand(stack, "Slurm", vpc=vpc, open_srun=True)
    acl = ec2.NetworkAcl(stack, "Acl", vpc=vpc, subnet_selection=ec2.SubnetSelection(subnets=vpc.private_subnets))
    for direction in (ec2.TrafficDirection.INGRESS, ec2.TrafficDirection.EGRESS):
        acl.add_entry(
            direction.name,
            cidr=ec2.AclCidr.any_ipv4(),
            rule_number=100,
            # what answers to the kernel's own clients need, and no daemon
            traffic=ec2.AclTraffic.tcp_port_range(32768, 60999),
            direction=direction,
        )
    found = violations(app, head=made.head, workers=made.workers)
    assert names(found) == dict.fromkeys(ALL_FLOWS, "error")
    assert "ec2.CfnNetworkAclEntry(" in found[0]["suggestedFix"]
    assert found[0]["violatingConstructs"][0]["constructPath"].startswith("Stack/Acl")


def test_cluster_in_a_nested_stack(new_app: NewApp) -> None:
    app = new_app()
    stack = stack_in_an_environment(app)
    vpc = ec2.Vpc(stack, "Vpc")
    made = ByHand(cdk.NestedStack(stack, "Nested"), "Slurm", vpc=vpc, open_srun=False)
    [found] = violations(app, head=made.head, workers=made.workers)
    assert found["ruleName"] == "srun-io"
    assert found["violatingConstructs"][0]["constructPath"] == "Stack/Nested/Slurm/HeadGroup/Resource"


def test_groups_of_one_stack_and_machines_of_another(new_app: NewApp) -> None:
    app = new_app()
    network, nodes = stack_in_an_environment(app, "Network"), stack_in_an_environment(app, "Nodes")
    vpc = ec2.Vpc(network, "Vpc")
    groups = ByHand(network, "Slurm", vpc=vpc, open_srun=True)
    late = ec2.Instance(
        nodes,
        "Late",
        vpc=vpc,
        instance_type=TYPE,
        machine_image=ec2.MachineImage.generic_linux(IMAGE),
        security_group=groups.worker_group,
    )
    assert violations(app, head=groups.head, workers=[groups.workers, late]) == []


def test_imported_group_is_unknown_and_only_a_warning(new_app: NewApp) -> None:
    app = new_app()
    stack = stack_in_an_environment(app)
    vpc = ec2.Vpc(stack, "Vpc")
    made = ByHand(stack, "Slurm", vpc=vpc, open_srun=False)
    theirs = ec2.SecurityGroup.from_security_group_id(stack, "Theirs", "sg-0123456789abcdef0")
    made.head.add_security_group(theirs)
    [found] = violations(app, head=made.head, workers=made.workers)
    assert (found["ruleName"], found["severity"]) == ("srun-io", "warning")
    assert "sg-0123456789abcdef0" in found["description"]
    assert "To know:" in found["description"]


def test_too_wide_a_rule_fails_where_it_is_asked_for(new_app: NewApp) -> None:
    def define() -> cdk.App:
        app = new_app()
        made = cluster(cdk.Stack(app, "Stack"))
        made.foundation.security.head_group.add_ingress_rule(ec2.Peer.ipv4("198.51.100.0/24"), ec2.Port.tcp(22))
        return app

    assert violations(define()) == []
    [found] = violations(define(), strict=True)
    assert found["ruleName"] == "wider-than-needed"
    [place] = found["violatingConstructs"]
    assert place["constructPath"] == "Stack/Cluster/Foundation/Security/HeadGroup/Resource"
    assert place["cloudFormationResource"]["propertyPaths"] == ["Properties.SecurityGroupIngress"]


def test_app_without_a_cluster_proves_nothing_and_says_so(new_app: NewApp) -> None:
    app = new_app()
    cdk.CfnResource(cdk.Stack(app, "Stack"), "Topic", type="AWS::SNS::Topic")
    [found] = violations(app)
    assert found["ruleName"] == "no-cluster"
    assert "give head and workers, or leave SlurmReachability out" in found["description"]


def test_construct_that_is_no_machine_is_named(new_app: NewApp) -> None:
    app = new_app()
    stack = stack_in_an_environment(app)
    vpc = ec2.Vpc(stack, "Vpc")
    made = ByHand(stack, "Slurm", vpc=vpc, open_srun=True)
    [found] = violations(app, head=made.head, workers=vpc)
    assert found["ruleName"] == "not-proven"
    assert "Stack/Vpc is an AWS::EC2::VPC: give security groups, instances" in found["description"]


def test_cluster_taken_out_of_the_tree_is_none(new_app: NewApp) -> None:
    app = new_app()
    stack = cdk.Stack(app, "Stack")
    cluster(stack)
    cdk.CfnResource(stack, "Topic", type="AWS::SNS::Topic")
    stack.node.try_remove_child("Cluster")
    assert names(violations(app)) == {"no-cluster": "error"}


def test_options_that_contradict_are_refused(new_app: NewApp) -> None:
    stack = cdk.Stack(new_app(), "Stack")
    with pytest.raises(ValueError, match="head was given alone: give head and workers"):
        SlurmReachability(head=stack)
    with pytest.raises(ValueError, match="srun_ports was given without head and workers"):
        SlurmReachability(srun_ports=PortRange(61000, 63999))
