"""Templates that are odd, hostile or damaged end in an answer or in an error that says what is wrong with them."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.reachability import documents
from slurm_cluster.reachability.command_line import main
from slurm_cluster.reachability.errors import InputError

TEMPLATES = Path(__file__).parent / "reachability_templates"
CASES = 400
GROUP = "Resources:\n  Group:\n    Type: AWS::EC2::SecurityGroup\n    Properties: {GroupDescription: g, Tags: *a9}\n"
MANY = "".join(f"  a{number}: &a{number} [{','.join([f'*a{number - 1}'] * 9)}]\n" for number in range(1, 10))
JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, "", "x", "65536", "tcp", "999.1.1.1/99", "::/200", [], {}, [None], {"Ref": "No"}),
    *(
        {"Ref": 3},
        {"Ref": ["a"]},
        {"Fn::GetAtt": ["a"]},
        {"Fn::GetAtt": "a.b.c"},
        {"Fn::Sub": "${x"},
        {"Fn::Sub": [1, 2]},
    ),
    *({"Fn::If": ["a"]}, {"Fn::Join": ["", {"Ref": "x"}]}, {"Fn::Split": [1, 2]}, {"Fn::Select": ["9", [1]]}),
    *({"Fn::FindInMap": ["a", "b", "c"]}, {"Fn::ImportValue": {}}, {"Fn::Sub": {"a": "b"}}, {"Fn::Join": 3}),
    *({"a": {"b": [{"c": None}]}}, {"Fn::Transform": {"Name": "x"}}),
]


def test_a_short_text_that_is_large_by_its_aliases_is_refused_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match="holds more than 500000 values"):
        documents.parse(f"Metadata:\n  a0: &a0 [x]\n{MANY}{GROUP}", "laughs.yaml")
    assert time.monotonic() - began < 5


def test_a_template_with_aliases_of_usual_use_is_read() -> None:
    few = "Metadata:\n  a9: &a9 [{Key: a, Value: b}]\n"
    assert documents.parse(few + GROUP, "few.yaml")["Resources"]["Group"]["Properties"]["Tags"][0]["Key"] == "a"


@pytest.mark.parametrize("levels", [150, 5000])
@pytest.mark.parametrize(
    "text", ['{"Resources": {"G": {"Type": "T", "Properties": {"a": %s1%s}}}}', "Resources: %s1%s"]
)
def test_a_template_that_nests_too_deeply_is_refused(text: str, levels: int) -> None:
    with pytest.raises(InputError, match=r"nest more than 100 levels deep|recursion|maximum nesting depth"):
        documents.parse(text % ("[" * levels, "]" * levels), "deep")


def test_values_may_nest_as_deeply_as_they_may_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = "!Join ['', [" * 30 + "sg-0" + "]]" * 30
    rule = f"Properties: {{IpProtocol: tcp, FromPort: 1, ToPort: 2, GroupId: {value}}}"
    file = tmp_path / "deep.yaml"
    file.write_text(f"Resources:\n  Rule:\n    Type: AWS::EC2::SecurityGroupIngress\n    {rule}\n")
    assert main([str(file)]) == 2
    assert "cannot tell which is the head node" in capsys.readouterr().err


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(item, (*path, key))


def _damaged(document: Any, rng: random.Random) -> Any:
    damaged = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = [place for place in _places(damaged) if len(place) > 2]
        if places:
            *way, last = rng.choice(places)
            holder = damaged
            for key in way:
                holder = holder[key]
            if rng.random() < 0.25:
                del holder[last]
            else:
                holder[last] = copy.deepcopy(rng.choice(JUNK))
    return damaged


def test_no_damage_to_a_template_ends_in_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(7)  # noqa: S311 - the same cases each time
    files = sorted(path for path in TEMPLATES.rglob("*") if path.suffix in (".json", ".yaml"))
    whole = [documents.read(path) for path in files]
    file = tmp_path / "damaged.json"
    statuses = set()
    for _ in range(CASES):
        file.write_text(json.dumps(_damaged(rng.choice(whole), rng)))
        statuses.add(main([str(file), "--format", rng.choice(("table", "json", "sarif", "svg"))]))
        capsys.readouterr()
    assert statuses == {0, 1, 2}


@pytest.mark.parametrize(
    "resources",
    [
        {"Stack": {"Properties": {"TemplateURL": {"Fn::Sub": 1.5}}}},
        {"Stack": {"Properties": {"TemplateURL": {"Fn::Sub": []}}}},
        {"Stack": {"Properties": {"TemplateURL": {"Fn::Join": ["", 3]}}}},
        {"Stack": {"Properties": {"TemplateURL": "x", "Parameters": {"A": {"Ref": {"B": ["C"]}}}}}},
    ],
)
def test_a_nested_stack_that_names_no_template_is_one_that_is_not_known(resources: Any, tmp_path: Path) -> None:
    found = {"Stack": {"Type": "AWS::CloudFormation::Stack", **resources["Stack"]}}
    file = tmp_path / "outer.json"
    outputs = {"A": {"Value": "a", "Export": None}, "B": {"Value": "b", "Export": {"Name": ["x"]}}}
    file.write_text(json.dumps({"Resources": found, "Outputs": outputs}))
    assert main([str(file)]) == 2
