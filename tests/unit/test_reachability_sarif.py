"""SARIF of a proof: valid by the standard's own schema, and pointing at the lines of the template."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sarif_kit.validate import validation_errors

from slurm_cluster.model.flows import PortRange
from slurm_cluster.reachability import Direction, FoundRule, Proof, RuleUse, sarif
from slurm_cluster.reachability.source_lines import resource_lines
from tests.unit import reachability_proofs
from tests.unit.reachability_proofs import FLOWS, SSH, TEMPLATE

YAML = """\
Parameters:
  HeadGroup:
    Type: String
Resources:
  ComputeGroup:
    Type: AWS::EC2::SecurityGroup
    Properties:
      VpcId: !Ref Vpc

  HeadGroup:   # a parameter has this name as well
    Type: AWS::EC2::SecurityGroup
"""


def log(proof: Proof, text: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sarif.render(proof, None if text is None else {TEMPLATE: text}))
    return found


def results(proof: Proof, text: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log(proof, text)["runs"][0]["results"]
    return found


@pytest.mark.parametrize(
    "proof",
    [
        reachability_proofs.proof(),
        reachability_proofs.proof(closed=[flow.id for flow in FLOWS], wider=[SSH]),
        reachability_proofs.proof(unknown=[flow.id for flow in FLOWS]),
    ],
    ids=["open", "closed", "unknown"],
)
def test_log_is_valid(proof: Proof) -> None:
    assert validation_errors(log(proof, text=YAML)) == []
    assert validation_errors(log(proof)) == []


def test_the_schema_can_fail() -> None:
    broken = log(reachability_proofs.proof(closed=["srun-io"]))
    broken["runs"][0]["results"][0]["level"] = "terrible"
    assert validation_errors(broken)


def test_closed_flow_is_an_error_at_the_group_that_lacks_the_rule() -> None:
    [result] = results(reachability_proofs.proof(closed=["srun-io"]), text=YAML)
    assert (result["ruleId"], result["level"]) == ("srun-io", "error")
    [place] = result["locations"]
    assert place["physicalLocation"] == {"artifactLocation": {"uri": TEMPLATE}, "region": {"startLine": 10}}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "cluster.yaml/HeadGroup"
    assert "No rule of HeadGroup lets TCP 1024-65535 in from ComputeGroup" in result["message"]["text"]
    assert "AWS::EC2::SecurityGroupIngress" in result["message"]["text"]
    assert "ec2.CfnSecurityGroupIngress(" in result["message"]["markdown"]


def test_unknown_flow_is_a_warning_that_says_what_it_needs() -> None:
    [result] = results(reachability_proofs.proof(unknown=["node-rpc"]), text=YAML)
    assert (result["ruleId"], result["level"]) == ("node-rpc", "warning")
    assert "To know: The rules of the imported group ComputeGroup" in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 5}


def test_rule_that_is_too_wide_is_a_note() -> None:
    inline = FoundRule(
        id="ComputeGroup/SecurityGroupIngress/1",
        template=TEMPLATE,
        group="ComputeGroup",
        direction=Direction.INGRESS,
        protocol="tcp",
        ports=PortRange(111, 111),
        peer="10.0.0.0/8",
        text="ComputeGroup lets TCP 111 in from 10.0.0.0/8",
    )
    wider = RuleUse(rule=inline, flows=FLOWS[:1], wider="port 111")
    [result] = results(reachability_proofs.proof(wider=[wider]), text=YAML)
    assert (result["ruleId"], result["level"]) == (sarif.WIDER, "note")
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 5}
    assert "It serves controller-rpc. Not needed: port 111." in result["message"]["text"]


def test_every_result_has_its_rule() -> None:
    run = log(reachability_proofs.proof(closed=["srun-io"], unknown=["mpi"], wider=[SSH]))["runs"][0]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} < set(rules)
    assert "connect io: Connection timed out" in rules["srun-io"]["help"]["text"]


def test_fingerprint_outlives_a_moved_line_and_tells_results_apart() -> None:
    proof = reachability_proofs.proof(closed=["srun-io", "node-rpc"], unknown=["mpi"], wider=[SSH])
    before = [result["partialFingerprints"] for result in results(proof, text=YAML)]
    after = [result["partialFingerprints"] for result in results(proof, text=f"# moved\n{YAML}")]
    assert before == after
    assert len({json.dumps(item) for item in before}) == len(before)


def test_path_becomes_a_uri() -> None:
    assert sarif.artifact_uri("my stacks/cluster.yaml") == "my%20stacks/cluster.yaml"
    assert sarif.artifact_uri("/srv/cluster.yaml") == "file:///srv/cluster.yaml"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (YAML, {"ComputeGroup": 5, "HeadGroup": 10}),
        ('{"Outputs":\n {"A": {}} ,\n "Resources": {\n "A" : {"Type": {"B": 1}} ,\n"B": {}} }', {"A": 4, "B": 5}),
        ('{"Resources": {"A": {}, "B": {}}}', {"A": 1, "B": 1}),
        ('{"Resources": {}}', {}),
        ('{"Resources": {"A": ', {}),
        ("{Resources: {A: {Type: x}}}", {"A": 1}),
        ("a: [", {}),
        ("just words", {}),
    ],
)  # fmt: skip
def test_resources_are_found_in_json_and_yaml(text: str, expected: dict[str, int]) -> None:
    assert resource_lines(text) == expected
