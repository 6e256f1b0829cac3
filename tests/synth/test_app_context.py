"""app.py: what its context may say, and what it answers to what it may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import botocore.session
import pytest
from botocore.model import StringShape

import app as default_app
from slurm_cluster.model.flows import PortRange

Template = dict[str, Any]
Resources = Callable[[Template, str], dict[str, Any]]
NewApp = Callable[..., cdk.App]
TemplateOf = Callable[[cdk.Stack], Template]

PARTITIONS = [{"name": "cpu", "instance_type": "c7i.large", "static_nodes": 2}]


def test_every_key_changes_what_it_says(new_app: NewApp, template_of: TemplateOf, resources: Resources) -> None:
    # as the command line gives them: texts
    stack = default_app.build(
        new_app(
            stack_name="Mine",
            cluster_name="mine",
            head_instance_type="m7i.large",
            head_generation="2",
            state_volume_gib="77",
            partitions='[{"name": "gpu", "instance_type": "g6.xlarge", "static_nodes": 1},'
            ' {"name": "arm", "instance_type": "c7g.large", "static_nodes": 1}]',
            default_partition="arm",
            operating_system="ubuntu-26.04",
            image_generation="4",
            srun_ports="61000-63999",
            job_credentials="true",
            availability_zones="eu-west-1a,eu-west-1b",
        )
    )
    template = template_of(stack)
    text = json.dumps(template)
    assert stack.stack_name == "Mine"
    for part in ("mine", "61000", "63999", '\\"job_credentials\\":true'):
        assert json.dumps(part)[1:-1] in text or part in text
    types = {item["Properties"]["InstanceType"] for item in resources(template, "AWS::EC2::Instance").values()}
    assert types == {"m7i.large", "g6.xlarge", "c7g.large"}
    assert any(name.startswith("ClusterHeadNodeInstance2") for name in template["Resources"])
    (volume,) = resources(template, "AWS::EC2::Volume").values()
    assert volume["Properties"]["Size"] == 77
    assert volume["Properties"]["AvailabilityZone"] == "eu-west-1a"
    images = resources(template, "Custom::SlurmClusterPinnedImage").values()
    assert {item["Properties"]["Generation"] for item in images} == {"4"}
    assert all("ubuntu" in item["Properties"]["ParameterName"] for item in images)
    assert template["Outputs"]["NodeNames"]["Value"] == "gpu-static-1 arm-static-1"
    assert "sudo -iu ubuntu" in json.dumps(template["Outputs"]["Shell"])
    partitions = [
        json.loads(item["Properties"]["Value"])
        for name, item in resources(template, "AWS::SSM::Parameter").items()
        if "Partitions" in name
    ]
    assert {item["name"] for item in partitions if item["default"]} == {"arm"}


def test_every_key_is_read() -> None:
    context = {
        "stack_name": "S",
        "cluster_name": "c",
        "head_instance_type": "m7i.large",
        "head_generation": 2,
        "state_volume_gib": 9,
        "partitions": PARTITIONS,
        "default_partition": "cpu",
        "operating_system": "debian-13",
        "image_generation": 2,
        "srun_ports": "61000-63999",
        "job_credentials": False,
        "smoke_test": True,
        "on_update": "all",
        "vpc_id": "vpc-1",
        "subnet_ids": ["subnet-1"],
        "availability_zones": ["eu-west-1a"],
    }
    assert set(context) == set(default_app.CONTEXT)
    settings = default_app.read_context(context)
    assert set(settings) == set(context)
    assert settings["srun_ports"] == PortRange(61000, 63999)
    assert settings["job_credentials"] is False
    assert settings["smoke_test"] is True
    assert settings["on_update"].value == "all"


def test_keys_of_cdk_are_left_alone() -> None:
    context = {
        "partitions": PARTITIONS,
        "@aws-cdk/core:x": True,
        "aws:cdk:y": 1,
        "vpc-provider:account=1": {},
        "cli-telemetry": False,
    }
    assert set(default_app.read_context(context)) == {"partitions"}


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"head_type": "t3.medium"}, "context key 'head_type' is not known: the keys are stack_name, "),
        ({"head_instance_type": "medium"}, "context head_instance_type is 'medium': instance type 'medium' is not"),
        ({"head_generation": "0"}, "context head_generation is '0': expected a whole number from 1"),
        ({"head_generation": True}, "expected a whole number"),
        ({"on_update": "some"}, "context on_update is 'some': expected one of free, all, off"),
        ({"smoke_test": "no"}, "expected true or false"),
        ({"state_volume_gib": "50 GiB"}, "expected a whole number"),
        ({"operating_system": "debian"}, "expected one of debian-13, ubuntu-24.04, ubuntu-26.04"),
        ({"operating_system": ["debian-13"]}, "expected one of debian-13"),
        ({"srun_ports": "61000"}, "expected two ports such as"),
        ({"srun_ports": "63999-61000"}, "port range 63999-61000 is not valid"),
        ({"job_credentials": "yes"}, "expected true or false"),
        ({"cluster_name": "My Cluster"}, "cluster name 'My Cluster' is not allowed"),
        ({"stack_name": ""}, "context stack_name is '': expected a text"),
        ({"partitions": "cpu"}, "expected a list such as"),
        ({"partitions": []}, "expected a list such as"),
        ({"partitions": ["cpu"]}, "context partitions: number 1 is 'cpu': expected an object such as {"),
        ({"partitions": [{**PARTITIONS[0], "name": "cpu-static"}]}, "must not end in '-static'"),
        ({"head_instance_typ": "x"}, "did you mean head_instance_type?"),
        (
            {"head_instance_type": "t3.mediun"},
            "context head_instance_type is 't3.mediun': instance type 't3.mediun' is not allowed: 'mediun' is no size",
        ),
        ({"partitions": PARTITIONS * 2}, "partition names must differ, cpu occurs more than once"),
        ({"subnet_ids": "subnet-1"}, "context subnet_ids needs vpc_id and availability_zones"),
        (
            {"vpc_id": "vpc-1", "subnet_ids": "subnet-1,subnet-2", "availability_zones": "a"},
            "differ in length",
        ),
        ({"vpc_id": "vpc-1", "availability_zones": "eu-west-1a"}, "needs subnet_ids; vpc_id alone looks both up"),
        ({"availability_zones": ","}, "expected a list, or values with commas"),
        ({"stack_name": "my stack"}, "expected up to 128 letters, digits and hyphens, a letter first"),
        ({"stack_name": "S" * 129}, "expected up to 128 letters"),
        ({"stack_name": 5}, "context stack_name is 5: expected a text"),
        ({"default_partition": "gpu"}, "context default_partition is 'gpu': choose one of cpu"),
        ({"vpc_id": "my-vpc"}, "expected an id such as vpc-0123456789abcdef0"),
        (
            {"vpc_id": "vpc-1", "subnet_ids": "subnet-1,subnet-1", "availability_zones": "a,b"},
            "subnets must differ, subnet-1 occurs more than once",
        ),
        (
            {"vpc_id": "vpc-1", "subnet_ids": "private-1", "availability_zones": "a"},
            "'private-1' is none: expected ids such as subnet-0123456789abcdef0",
        ),
    ],
)
def test_what_is_not_allowed_is_said(context: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="context") as caught:
        default_app.read_context({"partitions": PARTITIONS, **context})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"static_nodes": 0}, "static_nodes of partition 'cpu' is 0: expected a whole number from 1 to 500"),
        ({"static_nodes": 501}, "static_nodes of partition 'cpu' is 501: expected a whole number from 1 to 500"),
        ({"static_nodes": True}, "static_nodes of partition 'cpu' is True: expected a whole number from 1 to 500"),
        ({"static_nodes": 2.0}, "static_nodes of partition 'cpu' is 2.0: expected a whole number from 1 to 500"),
        (
            {"static_nodes": "2"},
            "static_nodes of partition 'cpu' is '2': expected a whole number from 1 to 500, without quotes in JSON",
        ),
        (
            {"instance_type": "c7x.lrage"},
            "instance_type of partition 'cpu' is 'c7x.lrage': instance type 'c7x.lrage' is not allowed: "
            "'lrage' is no size",
        ),
        ({"instance_type": 5}, "instance_type of partition 'cpu' is 5: expected a text"),
        ({"name": 5}, "name of partition number 1 is 5: expected a text"),
        (
            {"color": "red"},
            "key 'color' of partition 'cpu' is not known: the keys are name, instance_type, static_nodes",
        ),
    ],
)
@pytest.mark.parametrize("as_text", [False, True], ids=["cdk.json", "command line"])
def test_what_is_wrong_in_a_partition_is_said_without_the_rest(
    changes: dict[str, Any], problem: str, as_text: bool
) -> None:
    partitions = [{**PARTITIONS[0], **changes}, {**PARTITIONS[0], "name": "gpu"}]
    with pytest.raises(ValueError, match="context") as caught:
        default_app.read_context({"partitions": json.dumps(partitions) if as_text else partitions})
    message = str(caught.value)
    assert message.startswith(f"context partitions: {problem}")
    assert "gpu" not in message
    assert len(message.splitlines()) == 1


def test_a_misspelt_key_of_a_partition_is_one_problem() -> None:
    partition = {"name": "cpu", "instance_type": "c7i.large", "static_node": 2}
    with pytest.raises(ValueError, match="context") as caught:
        default_app.read_context({"partitions": [partition]})
    assert str(caught.value) == (
        "context partitions: key 'static_node' of partition 'cpu' is not known: "
        "the keys are name, instance_type, static_nodes; did you mean static_nodes?"
    )


def test_all_problems_of_all_partitions_come_at_once() -> None:
    partitions = [{"name": "cpu", "static_nodes": 0}, {"instance_type": "c7i.larg", "static_nodes": 1}, 3, *PARTITIONS]
    with pytest.raises(ValueError, match="context") as caught:
        default_app.read_context({"partitions": partitions, "head_instance_type": "t3.mediun"})
    lines = str(caught.value).splitlines()
    for line, start in zip(
        lines,
        (
            "context partitions: partition 'cpu' has no instance_type: give one such as \"c7i.large\"",
            "context partitions: static_nodes of partition 'cpu' is 0: ",
            'context partitions: partition number 2 has no name: give one such as "cpu"',
            "context partitions: instance_type of partition number 2 is 'c7i.larg': ",
            "context partitions: number 3 is 3: expected an object such as ",
            "context partitions: partition names must differ, cpu occurs more than once",
            "context head_instance_type is 't3.mediun': ",
        ),
        strict=True,
    ):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("t3.mediun", "t3.medium"),
        ("c7x.lrage", "c7x.large"),
        ("c7i.24xlrage", "c7i.24xlarge"),
        ("m7i.metal-24xlarge", "m7i.metal-24xl"),
        ("T3.Medium", "t3.medium"),
        ("u-6tb1.112xlarg", "u-6tb1.112xlarge"),
    ],
)
def test_the_size_that_was_meant_is_said(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match="head_instance_type") as caught:
        default_app.read_context({"partitions": PARTITIONS, "head_instance_type": given})
    assert f"did you mean {meant}?" in str(caught.value)


def test_a_size_like_no_other_gets_an_example() -> None:
    with pytest.raises(ValueError, match=r"give one such as c7i\.large; sizes are nano, micro, small") as caught:
        default_app.read_context({"partitions": PARTITIONS, "head_instance_type": "t3.qqq"})
    assert "did you mean" not in str(caught.value)


def test_every_type_that_ec2_lists_is_allowed() -> None:
    shape = botocore.session.get_session().get_service_model("ec2").shape_for("InstanceType")
    assert isinstance(shape, StringShape)
    assert len(shape.enum) > 1000
    for name in shape.enum:
        default_app.read_context({"partitions": PARTITIONS, "head_instance_type": name})


def test_spaces_behind_commas_do_not_matter() -> None:
    context = {"partitions": PARTITIONS, "availability_zones": "eu-west-1a, eu-west-1b"}
    assert default_app.read_context(context)["availability_zones"] == ["eu-west-1a", "eu-west-1b"]


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"state_volume_gib": 70000}, "state_volume_size is 70000 GiB: give whole GiB from 1 to 65536"),
        ({"srun_ports": "6800-6900"}, "contains 6817, the port of slurmctld"),
    ],
)
def test_what_the_constructs_do_not_allow_is_said(context: dict[str, Any], message: str, new_app: NewApp) -> None:
    with pytest.raises(ValueError, match=message):
        default_app.build(new_app(**context))


def test_longest_stack_name(new_app: NewApp, template_of: TemplateOf) -> None:
    stack = default_app.build(new_app(stack_name="S" * 128))
    assert template_of(stack)["Outputs"]["NodeNames"]["Value"] == "cpu-static-1 cpu-static-2"


def test_missing_partitions_are_said() -> None:
    with pytest.raises(ValueError, match="context partitions is missing"):
        default_app.read_context({})


def test_all_problems_come_at_once_and_without_a_traceback() -> None:
    context = {"partitions": PARTITIONS, "head_type": "x", "srun_ports": "1", "job_credentials": "maybe"}
    environment = {**os.environ, "CDK_CONTEXT_JSON": json.dumps(context)}
    run = subprocess.run([sys.executable, "app.py"], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stdout == ""
    assert "Traceback" not in run.stderr
    assert run.stderr.startswith("slurm_cluster: ")
    for part in ("'head_type' is not known", "srun_ports is '1'", "job_credentials is 'maybe'"):
        assert part in run.stderr


def test_outputs_of_the_default_app(default_template: Template) -> None:
    outputs = {name: item["Value"] for name, item in default_template["Outputs"].items()}
    assert outputs["NodeNames"] == "cpu-static-1 cpu-static-2"
    assert outputs["HeadInstanceId"] == {"Ref": "ClusterHeadNodeInstance727D399C"}
    assert outputs["StateVolumeId"] == {"Ref": "ClusterHeadNodeStateVolume2C37373F"}
    command = "".join(part if isinstance(part, str) else f"<{part['Ref']}>" for part in outputs["Shell"]["Fn::Join"][1])
    assert command == (
        "aws ssm start-session --region <AWS::Region> --target <ClusterHeadNodeInstance727D399C> "
        "--document-name AWS-StartInteractiveCommand --parameters 'command=[\"sudo -iu admin\"]'"
    )
