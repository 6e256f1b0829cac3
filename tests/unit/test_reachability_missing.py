"""In which template a missing rule goes, and how it names both groups there."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.reachability import MissingRule, load, prove
from tests.unit.small_clusters import Template, cluster, flow_of, instance, resource

CHILD: Template = {
    "Parameters": {"Peer": {"Type": "String", "Default": "none"}},
    "Resources": {
        "Group": resource("SecurityGroup", GroupDescription="x"),
        "Machine": resource("Instance", SecurityGroupIds=[{"Ref": "Group"}], SubnetId="subnet-1"),
    },
    "Outputs": {"Group": {"Value": {"Fn::GetAtt": ["Group", "GroupId"]}}},
}


def nested(**parameters: Any) -> Template:
    return {
        "Type": "AWS::CloudFormation::Stack",
        "Properties": {"TemplateURL": "./child.yaml", "Parameters": parameters},
    }


def missing(templates: dict[str, Template], head: str, worker: str) -> MissingRule:
    found = flow_of(prove(load(templates), head=[head], workers=[worker]), "srun-io")
    return found.missing[0]


def groups(rule: MissingRule) -> tuple[Any, Any]:
    properties = rule.resource()["Properties"]
    return properties["GroupId"], properties["SourceSecurityGroupId"]


def test_a_rule_between_groups_of_one_template_goes_there() -> None:
    rule = missing({"a.yaml": cluster()}, "Head", "Worker1")
    assert rule.template == "a.yaml"
    assert groups(rule) == ({"Fn::GetAtt": ["HeadGroup", "GroupId"]}, {"Fn::GetAtt": ["WorkerGroup", "GroupId"]})


def test_a_rule_between_nested_stacks_goes_into_the_one_that_is_given_the_other() -> None:
    root = {"Resources": {"W": nested(), "H": nested(Peer={"Fn::GetAtt": ["W", "Outputs.Group"]})}}
    rule = missing({"root.yaml": root, "child.yaml": CHILD}, "H/Machine", "W/Machine")
    assert rule.template == "child.yaml"
    assert groups(rule) == ({"Fn::GetAtt": ["Group", "GroupId"]}, {"Ref": "Peer"})


def test_a_rule_between_nested_stacks_that_know_nothing_of_each_other_goes_into_the_outer_one() -> None:
    root = {"Resources": {"W": nested(), "H": nested()}}
    templates = {"root.yaml": root, "child.yaml": CHILD}
    rule = missing(templates, "H/Machine", "W/Machine")
    assert rule.template == "root.yaml"
    assert groups(rule) == ({"Fn::GetAtt": ["H", "Outputs.Group"]}, {"Fn::GetAtt": ["W", "Outputs.Group"]})
    root["Resources"][rule.logical_id] = rule.resource()
    assert not flow_of(prove(load(templates), head=["H/Machine"], workers=["W/Machine"]), "srun-io").missing


def test_a_group_that_no_template_can_name_has_to_come_as_a_parameter() -> None:
    other = {
        "Resources": {
            "Nodes": resource("SecurityGroup"),
            "Node": resource("Instance", SecurityGroupIds=[{"Ref": "Nodes"}]),
        }
    }
    rule = missing({"a.yaml": cluster(), "b.yaml": other}, "Head", "Node")
    assert (rule.template, groups(rule)) == ("a.yaml", ({"Fn::GetAtt": ["HeadGroup", "GroupId"]}, {"Ref": "NodesId"}))


@pytest.mark.parametrize(
    ("group", "written", "code"),
    [
        ("sg-0123", "sg-0123", '"sg-0123"'),
        ({"Ref": "Site"}, {"Ref": "Site"}, 'cdk.Fn.ref("Site")'),
        ({"Fn::ImportValue": "a:b"}, {"Fn::ImportValue": "a:b"}, 'cdk.Fn.import_value("a:b")'),
        (
            {"Fn::GetAtt": ["Vpc", "DefaultSecurityGroup"]},
            {"Fn::GetAtt": ["Vpc", "DefaultSecurityGroup"]},
            'cdk.Fn.get_att("Vpc", "DefaultSecurityGroup").to_string()',
        ),
    ],
)
def test_a_group_is_written_as_its_template_can_write_it(group: Any, written: Any, code: str) -> None:
    template = cluster(
        {"Worker1": resource("Instance", SubnetId={"Ref": "Subnet"}, SecurityGroupIds=[group])},
        parameters={"Site": {"Type": "String"}},
    )
    rule = missing({"a.yaml": template}, "Head", "Worker1")
    assert groups(rule) == ({"Fn::GetAtt": ["HeadGroup", "GroupId"]}, written)
    assert f"source_security_group_id={code}," in rule.cdk()


def test_the_group_that_most_machines_have_is_named() -> None:
    template = cluster({"Cpu": resource("SecurityGroup"), "Worker1": instance("Cpu", "WorkerGroup")})
    found = flow_of(prove(load({"a.yaml": template}), head=["Head"], workers=["Worker1", "Worker2"]), "srun-io")
    assert [rule.opener for rule in found.missing] == ["WorkerGroup"]


def test_the_code_is_a_resource_of_the_template_in_json() -> None:
    text = missing({"a.yaml": cluster()}, "Head", "Worker1").cloudformation()
    assert text.splitlines()[:3] == [
        '"Slurm102465535IngressFromWorkerGroupToHeadGroup": {',
        '  "Type": "AWS::EC2::SecurityGroupIngress",',
        '  "Properties": {',
    ]
