"""The smoke test in templates: what it waits for, when it runs again and when not, what it may do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import boto3
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns

import slurm_cluster.node_bundle as node_bundle
from slurm_cluster import (
    ClusterFoundation,
    ClusterNetwork,
    HeadNode,
    OnUpdate,
    Partition,
    PortRange,
    SlurmCluster,
    SmokeTest,
)

Template = dict[str, Any]
Resources = Callable[[Template, str], dict[str, Any]]
NewApp = Callable[..., cdk.App]
TemplateOf = Callable[[cdk.Stack], Template]

C7I = ec2.InstanceType("c7i.large")
SMOKE_TEST = "Custom::SlurmSmokeTest"


def _test_of(template: Template) -> Any:
    (found,) = (item for item in template["Resources"].values() if item["Type"] == SMOKE_TEST)
    return found


@pytest.fixture
def synthesized(new_app: NewApp, template_of: TemplateOf) -> Callable[..., Template]:
    """Synthesize a cluster with one partition of two workers; options are the cluster's."""

    def synthesize(
        change: Callable[[SlurmCluster], None] = lambda cluster: None, workers: int = 2, kind: str = "c7i.large",
        **options: Any,
    ) -> Template:  # fmt: skip
        stack = cdk.Stack(new_app(), "Stack")
        cluster = SlurmCluster(stack, "Cluster", **options)
        cluster.add_partition("cpu", instance_type=ec2.InstanceType(kind), static_nodes=workers)
        change(cluster)
        return template_of(stack)

    return synthesize


def test_it_comes_after_nodes_parameters_rules_and_the_heads_name(
    default_template: Template, resources: Resources
) -> None:
    test = _test_of(default_template)
    workers = [
        name for name in resources(default_template, "AWS::EC2::Instance") if name.startswith("Clustercpucpustatic")
    ]
    assert test["Properties"]["NodeNames"] == ["cpu-static-1", "cpu-static-2"]
    assert test["Properties"]["WorkerInstanceIds"] == [{"Ref": name} for name in workers]
    assert test["Properties"]["HeadInstanceId"] == {"Ref": "ClusterHeadNodeInstance727D399C"}
    for kind in ("AWS::SSM::Parameter", "AWS::EC2::SecurityGroupIngress", "AWS::Route53::RecordSet"):
        assert set(resources(default_template, kind)) <= set(test["DependsOn"])


def test_it_always_gets_an_answer(default_template: Template, resources: Resources) -> None:
    test = _test_of(default_template)
    functions = resources(default_template, "AWS::Lambda::Function")
    function = functions[test["Properties"]["ServiceToken"]["Fn::GetAtt"][0]]["Properties"]
    ((name, watched),) = resources(default_template, "AWS::Lambda::EventInvokeConfig").items()
    assert name in test["DependsOn"]
    destination = watched["Properties"]["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert functions[destination]["Properties"]["Handler"].endswith("index.on_death")
    assert functions[destination]["Properties"]["Code"] == function["Code"]
    assert watched["Properties"]["MaximumRetryAttempts"] == 0
    assert watched["Properties"]["Qualifier"] == "$LATEST"
    # CloudFormation's own time-out comes just after the function's
    budget = int(function["Environment"]["Variables"]["BUDGET_SECONDS"])
    assert budget < int(test["Properties"]["ServiceTimeout"]) <= min(3600, budget + 180)
    assert function["Timeout"] == 900
    assert "VpcConfig" not in function


def test_the_report_outlives_the_stack(default_template: Template) -> None:
    log = default_template["Resources"]["ClusterSmokeTestLog8BF9DFE7"]
    assert (log["DeletionPolicy"], log["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_it_reaches_the_nodes_of_its_cluster_only(default_template: Template) -> None:
    role = default_template["Resources"]["ClusterSmokeTestRole6CCA6371"]["Properties"]
    statements = role["Policies"][0]["PolicyDocument"]["Statement"]
    for statement in statements:
        if "instance/*" in json.dumps(statement["Resource"]):
            (condition,) = statement["Condition"]["StringEquals"].items()
            assert condition[0].endswith("esourceTag/slurm-cluster:cluster")
            assert "AWS::StackId" in json.dumps(condition[1])
        elif statement["Resource"] == "*":
            assert all(re.search(":(Describe|Get|Cancel)", action) for action in statement["Action"])
    allowed = {action for item in statements for action in [item["Action"]] if isinstance(action, str)}
    assert allowed == {"ssm:SendCommand", "ec2:GetConsoleOutput", "cloudformation:DescribeStacks"}


def test_the_code_of_its_functions_is_complete(new_app: NewApp) -> None:
    app = new_app()
    SlurmCluster(cdk.Stack(app, "Stack"), "Cluster")
    template = app.synth().get_stack_by_name("Stack").template
    code = template["Resources"]["ClusterSmokeTestFunction465772B4"]["Properties"]["Code"]
    unpacked = Path(app.outdir, f"asset.{code['S3Key'].removesuffix('.zip')}")
    packages = Path(boto3.__file__).parents[1]
    # as Lambda does it: the code first, boto3 from the runtime, and nothing of this project's environment before that
    program = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
        "from slurm_cluster.runtime.functions.smoke_test import index\n"
        "assert 'boto3' not in sys.modules\n"
        f"sys.path.append({str(packages)!r})\n"
        "from slurm_cluster.runtime.functions.smoke_test import cloud, report, watch\n"
        "assert watch.__file__.startswith(sys.path[0])\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)


@pytest.fixture(scope="module")
def base(new_app: NewApp, template_of: TemplateOf) -> Any:
    """The properties of the unchanged test."""
    stack = cdk.Stack(new_app(), "Stack")
    SlurmCluster(stack, "Cluster").add_partition("cpu", instance_type=C7I, static_nodes=2)
    return _test_of(template_of(stack))["Properties"]


def test_it_does_not_run_again_when_nothing_changed(base: Any, synthesized: Callable[..., Template]) -> None:
    assert _test_of(synthesized())["Properties"] == base


def _output(cluster: SlurmCluster) -> None:
    cdk.CfnOutput(cdk.Stack.of(cluster), "Another", value="x")
    cluster.grant_submit(iam.User(cdk.Stack.of(cluster), "User"))
    sns.Topic(cdk.Stack.of(cluster), "Topic")


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (_output, {}),
        (lambda cluster: None, {"on_update": OnUpdate.all()}),
    ],
    ids=["other resources", "which workers an update tests"],
)
def test_it_does_not_run_again_for_what_does_not_matter(
    change: Callable[[SlurmCluster], None], options: dict[str, Any], base: Any, synthesized: Callable[..., Template]
) -> None:
    assert _test_of(synthesized(change, **options))["Properties"] == base


def _take_a_rule_away(cluster: SlurmCluster) -> None:
    assert cluster.foundation.security.node.try_remove_child("SrunIo")


def _narrow_a_rule(cluster: SlurmCluster) -> None:
    rule = cluster.foundation.security.node.find_child("SrunIo")
    assert isinstance(rule, ec2.CfnSecurityGroupIngress)
    rule.from_port = 30000


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ({"workers": 3}, {"NodeNames", "WorkerInstanceIds", "Version"}),
        ({"kind": "c7i.xlarge"}, {"Version"}),
        ({"head_generation": 2}, {"HeadInstanceId"}),
        ({"head_instance_type": ec2.InstanceType("m7i.large")}, {"Version"}),
        ({"cluster_name": "other"}, {"Version"}),
        ({"job_credentials": True}, {"Version"}),
        ({"srun_ports": PortRange(60001, 63000)}, {"SrunPorts", "Version"}),
        ({"change": _take_a_rule_away}, {"Version"}),
        ({"change": _narrow_a_rule}, {"Version"}),
        ({"smoke_test_budget": cdk.Duration.minutes(40)}, {"ServiceTimeout"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_it_runs_again_when_something_that_matters_changed(
    arguments: dict[str, Any], changed: set[str], base: Any, synthesized: Callable[..., Template]
) -> None:
    after = _test_of(synthesized(**arguments))["Properties"]
    assert {name for name in base if after[name] != base[name]} == changed


def test_it_runs_again_when_node_programs_changed(
    base: Any, synthesized: Callable[..., Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_bundle, "_CONTENT", (*node_bundle._CONTENT, "py.typed"))
    after = _test_of(synthesized())["Properties"]
    assert {name for name in base if after[name] != base[name]} == {"Version"}


def test_others_can_depend_on_a_cluster_that_runs_jobs(synthesized: Callable[..., Template]) -> None:
    def topic_after(cluster: SlurmCluster) -> None:
        sns.Topic(cdk.Stack.of(cluster), "Topic").node.add_dependency(cluster.ready)

    tested = synthesized(topic_after)
    (topic,) = (item for item in tested["Resources"].values() if item["Type"] == "AWS::SNS::Topic")
    assert [tested["Resources"][name]["Type"] for name in topic["DependsOn"]] == [SMOKE_TEST]
    untested = synthesized(topic_after, smoke_test=False)
    assert all("SmokeTest" not in name for name in untested["Resources"])
    (topic,) = (item for item in untested["Resources"].values() if item["Type"] == "AWS::SNS::Topic")
    nodes = [name for name, item in untested["Resources"].items() if item["Type"] == "AWS::EC2::Instance"]
    assert len(nodes) == 3
    assert set(nodes) <= set(topic["DependsOn"])


def test_partitions_of_several_stacks_are_tested_in_the_last(new_app: NewApp, resources: Resources) -> None:
    app = new_app()
    cluster = SlurmCluster(cdk.Stack(app, "Stack"), "Cluster", smoke_test=False)
    cluster.add_partition("cpu", instance_type=C7I, static_nodes=1)
    more = cdk.Stack(app, "Workers")
    Partition(more, "Gpu", foundation=cluster.foundation, partition_name="gpu", instance_type=C7I, static_nodes=1)
    SmokeTest(more, "Test", head_node=cluster.head_node)
    assembly = app.synth()
    test = _test_of(assembly.get_stack_by_name("Workers").template)
    assert test["Properties"]["NodeNames"] == ["cpu-static-1", "gpu-static-1"]
    assert resources(assembly.get_stack_by_name("Stack").template, SMOKE_TEST) == {}


def test_a_test_before_its_workers_is_an_error(new_app: NewApp) -> None:
    app = new_app()
    cluster = SlurmCluster(cdk.Stack(app, "Stack"), "Cluster")
    workers = cdk.Stack(app, "Workers")
    Partition(workers, "Gpu", foundation=cluster.foundation, partition_name="gpu", instance_type=C7I, static_nodes=1)
    with pytest.raises(RuntimeError, match="gpu-static-1 are in another stack, which is deployed after the smoke test"):
        app.synth()


@pytest.mark.parametrize("minutes", [9, 56])
def test_budget_that_cannot_work(minutes: int, new_app: NewApp) -> None:
    stack = cdk.Stack(new_app(), "Stack")
    budget = cdk.Duration.minutes(minutes)
    with pytest.raises(ValueError, match=f"budget is {minutes} minutes: give 10 to 55 minutes"):
        SlurmCluster(stack, "Cluster", smoke_test_budget=budget)
    foundation = ClusterFoundation(stack, "Foundation", network=ClusterNetwork(stack, "Network"))
    head = HeadNode(stack, "Head", foundation=foundation)
    with pytest.raises(ValueError, match="give 10 to 55 minutes"):
        SmokeTest(stack, "Test", head_node=head, budget=budget)


def test_workers_to_test_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match="on_update is 'idle': give OnUpdate"):
        OnUpdate("idle")


def test_options_of_a_test_that_is_switched_off(new_app: NewApp) -> None:
    with pytest.raises(ValueError, match="smoke_test=False: leave them out"):
        SlurmCluster(cdk.Stack(new_app(), "Stack"), "Cluster", smoke_test=False, on_update=OnUpdate.off())
