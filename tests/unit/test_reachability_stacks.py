"""Functions, parameters, conditions, nested stacks and exports, as stacks compute them."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.reachability import InputError
from slurm_cluster.reachability.intrinsics import resolve
from slurm_cluster.reachability.stacks import Deployment, Stack
from slurm_cluster.reachability.values import NO_VALUE, Token, among, same
from slurm_cluster.reachability.worlds import World, explore

GROUP = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"VpcId": {"Ref": "Vpc"}}}
TEMPLATE: dict[str, Any] = {
    "Parameters": {
        "Vpc": {"Type": "AWS::EC2::VPC::Id"},
        "Other": {"Type": "AWS::EC2::SecurityGroup::Id"},
        "Port": {"Type": "Number", "Default": 6817},
        "Names": {"Type": "CommaDelimitedList", "Default": "a, b"},
        "Groups": {"Type": "List<AWS::EC2::SecurityGroup::Id>"},
        "Stage": {"Type": "String", "AllowedValues": ["test", "prod"]},
        "Image": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": "/aws/image"},
    },
    "Mappings": {"Map": {"One": {"Two": "found"}}},
    "Conditions": {
        "Yes": {"Fn::Equals": [{"Ref": "Port"}, "6817"]},
        "No": {"Fn::Not": [{"Condition": "Yes"}]},
        "Prod": {"Fn::Equals": [{"Ref": "Stage"}, "prod"]},
        "Test": {"Fn::Equals": [{"Ref": "Stage"}, "test"]},
        "Both": {"Fn::And": [{"Condition": "Prod"}, {"Condition": "Test"}]},
        "Either": {"Fn::Or": [{"Condition": "Prod"}, {"Condition": "Test"}]},
        "Loop": {"Condition": "Loop"},
    },
    "Resources": {
        "Head": GROUP,
        "Worker": GROUP,
        "Net": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Bucket": {"Type": "AWS::S3::Bucket"},
    },
}


def stack_of(template: dict[str, Any] = TEMPLATE, world: World | None = None, **parameters: str) -> Stack:
    return Deployment({"t.yaml": template}, parameters, world or World()).stacks[0]


def computed(value: Any, **parameters: str) -> Any:
    return resolve(stack_of(TEMPLATE, None, **parameters), value)


HEAD = stack_of().token("Head")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"Ref": "Head"}, HEAD),
        ({"Fn::GetAtt": ["Head", "GroupId"]}, HEAD),
        ({"Fn::GetAtt": "Head.GroupId"}, HEAD),
        ({"Fn::Sub": "${Head}"}, HEAD),
        ({"Fn::Sub": "${Head.GroupId}"}, HEAD),
        ({"Fn::Sub": ["${Id}", {"Id": {"Ref": "Head"}}]}, HEAD),
        ({"Fn::Join": ["", [{"Ref": "Head"}]]}, HEAD),
        ({"Fn::Select": ["1", ["x", {"Ref": "Head"}]]}, HEAD),
        ({"Fn::Select": [1, {"Fn::Split": [",", {"Fn::Join": [",", ["x", {"Ref": "Head"}]]}]}]}, HEAD),
        ({"Fn::Select": [0, {"Fn::Split": ["|", {"Fn::Sub": "${Head}|${Worker}"}]}]}, HEAD),
        ({"Fn::If": ["Yes", {"Ref": "Head"}, {"Ref": "Worker"}]}, HEAD),
        ({"Fn::If": ["No", {"Ref": "Worker"}, {"Ref": "Head"}]}, HEAD),
        ([{"Fn::If": ["No", "x", {"Ref": "AWS::NoValue"}]}, "y"], ["y"]),
        ({"Ref": "AWS::NoValue"}, NO_VALUE),
        ({"Ref": "Port"}, "6817"),
        ({"Ref": "Names"}, ["a", "b"]),
        ({"Fn::Sub": "p-${Port}-${!Port}"}, "p-6817-${Port}"),
        ({"Fn::FindInMap": ["Map", "One", {"Fn::Join": ["", ["T", "wo"]]}]}, "found"),
        ({"Fn::FindInMap": ["Map", "Absent", "Two", {"DefaultValue": "default"}]}, "default"),
        ({"Fn::GetAtt": ["Net", "CidrBlock"]}, "10.0.0.0/16"),
        ({"Fn::Select": [1, {"Fn::Cidr": [{"Fn::GetAtt": ["Net", "CidrBlock"]}, 4, "8"]}]}, "10.0.1.0/24"),
        ({"Fn::Base64": {"Fn::Join": ["-", ["a", "b"]]}}, "a-b"),
        ({"Key": {"Ref": "Port"}, "Gone": {"Ref": "AWS::NoValue"}}, {"Key": "6817"}),
    ],
)
def test_what_is_known_is_computed(expression: Any, expected: Any) -> None:
    assert computed(expression) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"Fn::Sub": "${AWS::StackName}-x"}, {"Fn::Join": ["-", [{"Ref": "AWS::StackName"}, "x"]]}),
        ({"Fn::Select": [0, {"Fn::GetAZs": ""}]}, {"Fn::Select": ["0", {"Fn::GetAZs": ""}]}),
        ({"Fn::ImportValue": "group"}, {"Fn::ImportValue": {"Fn::Sub": "group"}}),
        ({"Ref": "Image"}, {"Fn::Sub": "${Image}"}),
        ({"Fn::GetAtt": ["Bucket", "Arn"]}, {"Fn::Sub": "${Bucket.Arn}"}),
        ("{{resolve:ssm:/group}}", {"Fn::Sub": ["${G}", {"G": "{{resolve:ssm:/group}}"}]}),
    ],
)
def test_what_is_not_known_is_equal_to_itself_however_it_is_written(one: Any, other: Any) -> None:
    assert computed(one) == computed(other)
    assert isinstance(computed(one), Token)


def test_ids_are_the_same_different_or_nobody_knows() -> None:
    other, image = computed({"Ref": "Other"}), computed({"Ref": "Image"})
    worker = computed({"Ref": "Worker"})
    imported = computed({"Fn::ImportValue": "x"})
    assert same(HEAD, computed({"Fn::Sub": "${Head}"})) is True
    assert same("sg-1", "sg-1") is True
    # a resource of these templates is none of another name, and none that was there before
    assert same(HEAD, worker) is False
    assert same(HEAD, "sg-1") is False
    assert same(HEAD, other) is False
    assert same(HEAD, imported) is False
    assert same("sg-1", "sg-2") is False
    assert same(other, "sg-1") is None
    assert same(other, image) is None
    assert same(other, imported) is None
    # deployed one after the other, one stack's group may be the other's parameter
    elsewhere = Deployment({"t.yaml": TEMPLATE, "u.yaml": TEMPLATE}, {}, World()).stacks[1]
    assert same(HEAD, elsewhere.ref("Other")) is None


def test_an_item_of_an_unknown_list_is_in_it() -> None:
    groups = computed({"Ref": "Groups"})
    assert isinstance(groups, Token)
    assert among(computed({"Fn::Select": [0, {"Ref": "Groups"}]}), (groups,)) is True
    assert among("sg-1", (groups,)) is None
    assert among(HEAD, (groups,)) is False


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"Ref": "Absent"}, "t.yaml: refers to Absent, which is neither a parameter nor a resource of it"),
        ({"Fn::GetAtt": ["Absent", "Arn"]}, "takes the attribute Arn of Absent, which is no resource of it"),
        ({"Fn::If": ["Absent", 1, 2]}, "there is no condition 'Absent' in its Conditions"),
        ({"Fn::FindInMap": ["Map", "Absent", "Two"]}, "FindInMap finds no 'Absent'; allowed are One"),
        ({"Fn::Select": [5, ["a"]]}, r"Fn::Select cannot take \[5, \['a'\]\]"),
        ({"Fn::Join": "a"}, "Fn::Join cannot take 'a'"),
        ({"Fn::Cidr": ["10.0.0.0", "x"]}, "Fn::Cidr cannot take"),
    ],
)
def test_a_function_that_cannot_be_computed_is_named(expression: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        computed(expression)


def test_a_condition_that_refers_to_itself_is_an_error() -> None:
    with pytest.raises(InputError, match="the condition Loop refers to itself"):
        stack_of().condition("Loop")


def test_a_range_that_refers_to_itself_is_an_error() -> None:
    loop = {"Net": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": {"Fn::GetAtt": ["Net", "CidrBlock"]}}}}
    with pytest.raises(InputError, match=r"the attribute Net\.CidrBlock refers to itself"):
        stack_of({"Resources": loop}).attribute("Net", "CidrBlock")


def test_every_world_of_an_unknown_parameter_is_looked_at() -> None:
    def look(world: World) -> tuple[bool, ...]:
        stack = stack_of(world=world)
        return tuple(stack.condition(name) for name in ("Prod", "Test", "Both", "Either", "Yes"))

    assert {found: world.text() for world, found in explore(look)} == {
        (True, False, False, True, True): "${Stage} is prod",
        (False, True, False, True, True): "${Stage} is not prod",
    }


def test_a_given_parameter_leaves_one_world() -> None:
    worlds = list(explore(lambda world: stack_of(world=world, Stage="prod").condition("Prod")))
    assert [found for _, found in worlds] == [True]


def test_too_many_worlds_are_refused_by_name() -> None:
    tokens = [Token(f"${{P{number}}}", ("parameter", "t", f"P{number}")) for number in range(7)]
    with pytest.raises(InputError, match=r"more than 64 clusters to prove: give some of them as parameters, \$\{P0\}"):
        list(explore(lambda world: [world.equals(token, "yes") for token in tokens]))


def nested(url: Any, **properties: Any) -> dict[str, Any]:
    return {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": url, **properties}}


CHILD: dict[str, Any] = {
    "Parameters": {"Peer": {"Type": "String"}, "List": {"Type": "CommaDelimitedList", "Default": ""}},
    "Resources": {"Group": {"Type": "AWS::EC2::SecurityGroup"}},
    "Outputs": {"Id": {"Value": {"Ref": "Group"}}, "Peer": {"Value": {"Ref": "Peer"}}},
}


@pytest.mark.parametrize(
    "url",
    [
        "https://bucket.s3.amazonaws.com/some/child.yaml",
        "https://bucket.s3.amazonaws.com/child.yaml?versionId=1",
        "./child.yaml",
        {"Fn::Sub": "https://${Bucket}.s3.${AWS::URLSuffix}/child.yaml"},
        {"Fn::Join": ["/", ["https:/", {"Ref": "Bucket"}, "child.yaml"]]},
    ],
)
def test_a_nested_stack_is_known_by_its_file_name(url: Any) -> None:
    root = {
        "Parameters": {"Bucket": {"Type": "String"}},
        "Resources": {
            "One": nested(url, Parameters={"Peer": {"Fn::GetAtt": ["Two", "Outputs.Id"]}}),
            "Two": nested(url, Parameters={"Peer": "sg-1", "List": {"Fn::Join": [",", ["a", {"Ref": "Bucket"}]]}}),
        },
    }
    outer, one, two = Deployment({"root.yaml": root, "dir/child.yaml": CHILD}, {}, World()).stacks
    assert (one.name, two.name) == ("root.yaml/One", "root.yaml/Two")
    # two stacks of one template have a group each, and know each other's
    assert same(one.token("Group"), two.token("Group")) is False
    assert one.ref("Peer") == two.token("Group") == outer.attribute("One", "Outputs.Peer")
    assert outer.attribute("Two", "Outputs.Peer") == "sg-1"
    assert str(two.token("Group")) == "Two/Group"


def test_a_nested_stack_of_the_cdk_is_known_by_its_asset() -> None:
    asset = {**nested({"Fn::Join": ["", ["https://s3/", {"Fn::Sub": "x"}, "/0123abcd.json"]]})}
    asset["Metadata"] = {"aws:asset:path": "AppNestedStack1234.nested.template.json"}
    names = [
        stack.name
        for stack in Deployment(
            {
                "out/App.template.json": {"Resources": {"N": asset}},
                "out/AppNestedStack1234.nested.template.json": CHILD,
            },
            {},
            World(),
        ).stacks
    ]
    assert names == ["out/App.template.json", "out/App.template.json/N"]


def test_two_files_of_one_name_are_joined_to_no_stack() -> None:
    root = {"Resources": {"N": nested("./child.yaml")}}
    stacks = Deployment({"root.yaml": root, "a/child.yaml": CHILD, "b/child.yaml": CHILD}, {}, World()).stacks
    assert [stack.name for stack in stacks] == ["root.yaml", "a/child.yaml", "b/child.yaml"]


def test_templates_that_nest_each_other_are_an_error() -> None:
    with pytest.raises(InputError, match="is nested in another: give the outermost one as well"):
        Deployment({"a.yaml": {"Resources": {"B": nested("a.yaml")}}}, {}, World())
    loop = {"a.yaml": {"Resources": {"B": nested("b.yaml")}}, "b.yaml": {"Resources": {"B": nested("b.yaml")}}}
    with pytest.raises(InputError, match=r"b\.yaml nests itself, by b\.yaml in a\.yaml"):
        Deployment(loop, {}, World())


def test_an_export_of_a_given_template_is_what_another_imports() -> None:
    exporting = {
        "Resources": {"Group": {"Type": "AWS::EC2::SecurityGroup"}},
        "Outputs": {"O": {"Value": {"Ref": "Group"}, "Export": {"Name": {"Fn::Sub": "shared-group"}}}},
    }
    importing, other = Deployment({"i.yaml": TEMPLATE, "e.yaml": exporting}, {}, World()).stacks
    assert resolve(importing, {"Fn::ImportValue": "shared-group"}) == other.token("Group")
    assert str(resolve(importing, {"Fn::ImportValue": "absent"})) == "ImportValue(absent)"
