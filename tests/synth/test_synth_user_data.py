"""User data: frozen, small, and without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from syrupy.assertion import SnapshotAssertion

import app as default_app
from slurm_cluster import OperatingSystem, PortRange, SlurmCluster

Template = dict[str, Any]
Resources = Callable[[Template, str], dict[str, Any]]
NewApp = Callable[..., cdk.App]
TemplateOf = Callable[[cdk.Stack], Template]

LIMIT = 4096
LONGEST = {"AWS::Region": 25, "AWS::StackName": 128, "AWS::StackId": 160}
PARAMETER_PATH_LIMIT = 200


def _parts(instance: dict[str, Any]) -> list[Any]:
    value = instance["Properties"]["UserData"]["Fn::Base64"]
    return [value] if isinstance(value, str) else list(value["Fn::Join"][1])


def _text(instance: dict[str, Any], values: dict[str, str]) -> str:
    return "".join(part if isinstance(part, str) else values[part["Ref"]] for part in _parts(instance))


def _user_data(template: Template, resources: Resources) -> dict[str, str]:
    return {
        name: json.dumps(item["Properties"]["UserData"])
        for name, item in resources(template, "AWS::EC2::Instance").items()
    }


def test_user_data_is_pinned(default_template: Template, resources: Resources, snapshot: SnapshotAssertion) -> None:
    # a changed text stops and starts every node of every deployed cluster, and never runs
    instances = resources(default_template, "AWS::EC2::Instance")
    for name in ("ClusterHeadNodeInstance727D399C", "Clustercpucpustatic1985E71EE"):
        assert _text(instances[name], {"AWS::StackName": "<stack>"}) == snapshot(name=name)


def test_user_data_fits_with_the_longest_values(default_template: Template, resources: Resources) -> None:
    for name, item in resources(default_template, "AWS::EC2::Instance").items():
        references = [part for part in _parts(item) if not isinstance(part, str)]
        assert all(set(part) == {"Ref"} for part in references)
        longest = {ref["Ref"]: "x" * LONGEST[ref["Ref"]] for ref in references}
        path = f"/slurm-cluster/{longest['AWS::StackName']}/12345678/partitions/{'p' * 25}"
        assert len(path) <= PARAMETER_PATH_LIMIT
        # even if the path took all of its limit wherever it occurs
        slack = len(references) * (PARAMETER_PATH_LIMIT - LONGEST["AWS::StackName"])
        assert len(_text(item, longest).encode()) + slack < LIMIT, name


def test_no_option_of_a_running_cluster_reaches_its_user_data(
    default_template: Template, new_app: NewApp, template_of: TemplateOf, resources: Resources
) -> None:
    stack = cdk.Stack(new_app(), "SlurmCluster")
    cluster = SlurmCluster(
        stack,
        "Cluster",
        cluster_name="other",
        srun_ports=PortRange(61000, 63999),
        job_credentials=True,
        state_volume_size=cdk.Size.gibibytes(500),
        operating_system=OperatingSystem.ubuntu_26_04(),
        image_generation=7,
        default_partition="gpu",
    )
    cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.xlarge"), static_nodes=2)
    cluster.add_partition("gpu", instance_type=ec2.InstanceType("g6.xlarge"), static_nodes=1)
    changed = _user_data(template_of(stack), resources)
    for name, text in _user_data(default_template, resources).items():
        assert changed[name] == text


def test_head_generation_replaces_the_head_alone(
    default_template: Template, new_app: NewApp, template_of: TemplateOf, resources: Resources
) -> None:
    template = template_of(default_app.build(new_app(head_generation=2)))
    before, after = (set(item["Resources"]) for item in (default_template, template))
    (gone,), (new,) = before - after, after - before
    assert default_template["Resources"][gone]["Type"] == template["Resources"][new]["Type"] == "AWS::EC2::Instance"
    assert "HeadNode" in gone
    (record,) = resources(template, "AWS::Route53::RecordSet").values()
    assert record["Properties"]["ResourceRecords"] == [{"Fn::GetAtt": [new, "PrivateIp"]}]


def test_no_secret_in_template_or_user_data(default_template: Template, resources: Resources) -> None:
    (key,) = resources(default_template, "AWS::SecretsManager::Secret").values()
    assert set(key["Properties"]) == {"Description", "GenerateSecretString"}
    assert key["Properties"]["GenerateSecretString"] == {"ExcludePunctuation": True, "PasswordLength": 128}
    assert key["DeletionPolicy"] == key["UpdateReplacePolicy"] == "Delete"
    # a dynamic reference would put the value into whatever property holds it
    assert "{{resolve:" not in json.dumps(default_template)
    for text in _user_data(default_template, resources).values():
        assert "MungeKey" not in text
        assert "secretsmanager" not in text
