"""Reading templates: JSON, YAML with short tags, and what is wrong with a file that is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_cluster.reachability import InputError, load
from slurm_cluster.reachability.documents import parse

RESOURCE = "Resources: {A: {Type: 'AWS::EC2::VPC', Properties: {Value: %s}}}"


def value(text: str) -> object:
    return parse(RESOURCE % text, "t.yaml")["Resources"]["A"]["Properties"]["Value"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!Ref A", {"Ref": "A"}),
        ("!GetAtt A.GroupId", {"Fn::GetAtt": ["A", "GroupId"]}),
        ("!GetAtt Stack.Outputs.Group", {"Fn::GetAtt": ["Stack", "Outputs.Group"]}),
        ("!GetAtt [A, GroupId]", {"Fn::GetAtt": ["A", "GroupId"]}),
        ("!Sub '${A}-x'", {"Fn::Sub": "${A}-x"}),
        ("!Join [',', [!Ref A, b]]", {"Fn::Join": [",", [{"Ref": "A"}, "b"]]}),
        ("!If [C, !Ref A, !Ref 'AWS::NoValue']", {"Fn::If": ["C", {"Ref": "A"}, {"Ref": "AWS::NoValue"}]}),
        ("!Condition C", {"Condition": "C"}),
        ("!FindInMap [M, k, {v: 1}]", {"Fn::FindInMap": ["M", "k", {"v": 1}]}),
        ("2010-09-09", "2010-09-09"),
        ("6817", 6817),
        ("'6817'", "6817"),
        ("true", True),
    ],
)
def test_short_tags_are_functions_and_dates_are_texts(text: str, expected: object) -> None:
    assert value(text) == expected


def test_a_key_is_a_text_as_in_json() -> None:
    text = "Mappings: {Accounts: {210987654321: {Port: 1}, true: {Port: 2}}}\nResources: {A: {Type: T}}\n"
    assert parse(text, "t.yaml")["Mappings"]["Accounts"] == {"210987654321": {"Port": 1}, "true": {"Port": 2}}


def test_an_anchor_may_be_used_again() -> None:
    text = "Resources:\n  A: &a {Type: T, Properties: {P: 1}}\n  B: {<<: *a, Type: U}\n"
    assert parse(text, "t.yaml")["Resources"]["B"] == {"Type": "U", "Properties": {"P": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Resources:\n  A: {Type: T\n", r"t\.yaml, line 3, column 1: .*; the file must be valid YAML"),
        ("Resources:\n  A: {Type: T}\n  A: {Type: T}\n", r"t\.yaml, line 3, column 3: the key 'A' is there twice"),
        ('{"Resources": {"A": {"Type": "T",}}', r"t\.yaml, line 1, column 34: .*; the file begins like JSON and is"),
        ('{"Resources": {"A": {"Type": "T"}, "A": {"Type": "T"}}}', r"t\.yaml: the key 'A' is there twice in one"),
        ("- a\n- b\n", r"t\.yaml: is no CloudFormation template: it has no mapping Resources with resources in it"),
        ("Resources: {}", r"t\.yaml: is no CloudFormation template"),
        ("Resources: {A: {Properties: {}}}", r"t\.yaml: the resource A has no Type; each resource needs one"),
        (
            "Resources:\n  'Fn::ForEach::Nodes': [X, [a], {}]\n",
            r"t\.yaml: Fn::ForEach::Nodes makes resources when the template is deployed; give the processed template",
        ),
    ],
)
def test_a_file_that_is_no_template_is_told_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text, "t.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*absent\.yaml: No such file or directory; give a CloudForm"):
        load(tmp_path / "absent.yaml")


def test_a_binary_file_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "image.yaml"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="it is no text in UTF-8"):
        load([path])


def test_a_parameter_that_no_template_has_is_refused() -> None:
    template = {"Parameters": {"Vpc": {"Type": "String"}}, "Resources": {"A": {"Type": "T"}}}
    with pytest.raises(InputError, match="no template has a parameter 'VPC'; they have Vpc"):
        load({"t": template}, {"VPC": "vpc-1"})
    assert load({"t": template}, {"Vpc": "vpc-1", "AWS::Region": "eu-west-1"}).parameters["Vpc"] == "vpc-1"


def test_no_template_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="no template is given"):
        load([])


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000 + "]" * 100_000], ids=["digits", "levels"])
def test_what_the_json_reader_cannot_take_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=r"t\.json: .*CloudFormation takes no such template"):
        parse('{"Resources": {"A": {"Type": "x", "Properties": {"P": ' + value + "}}}}", "t.json")
