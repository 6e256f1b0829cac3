"""What a snapshot of a template leaves out, and what it must not."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.testing import normalised, synthesize

FIRST, SECOND = "0" * 63 + "a", "1" * 64
APP = """
import aws_cdk as cdk
app = cdk.App()
for name in ("One", "Two"):
    stack = cdk.Stack(app, name)
    cdk.CfnParameter(stack, "Said", default=app.node.try_get_context("said") or "nothing")
stage = cdk.Stage(app, "Stage")
cdk.CfnParameter(cdk.Stack(stage, "Inner"), "Deep", default="yes")
app.synth()
"""


def template(asset: str = FIRST, *, script: str = "#!/bin/sh", port: int = 6817) -> dict[str, Any]:
    return {
        "Parameters": {"BootstrapVersion": {"Default": "/cdk-bootstrap/hnb659fds/version"}},
        "Rules": {"CheckBootstrapVersion": {"Assertions": []}},
        "Conditions": {"CDKMetadataAvailable": {}},
        "Resources": {
            "CDKMetadata": {"Type": "AWS::CDK::Metadata", "Properties": {"Analytics": asset}},
            "Node": {
                "Type": "AWS::EC2::Instance",
                "Properties": {"UserData": {"Fn::Base64": script}, "ImageId": "ami-1"},
                "Metadata": {"aws:cdk:path": "Stack/Node/Resource"},
            },
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {"Code": {"S3Key": f"{asset}.zip"}},
                "Metadata": {"aws:asset:path": f"asset.{asset}", "mine": "kept"},
            },
            "Rule": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": {"FromPort": port}},
            "Test": {"Type": "Custom::SlurmSmokeTest", "Properties": {"Version": asset[:16], "OnUpdate": "free"}},
        },
    }


def test_what_changes_by_itself_makes_no_difference() -> None:
    assert normalised(template(FIRST)) == normalised(template(SECOND))


def test_what_the_cdk_adds_is_left_out_and_what_is_yours_stays() -> None:
    found = normalised(template())
    assert set(found) == {"Resources"}
    assert set(found["Resources"]) == {"Node", "Function", "Rule", "Test"}
    assert "Metadata" not in found["Resources"]["Node"]
    assert found["Resources"]["Function"]["Metadata"] == {"mine": "kept"}
    assert found["Resources"]["Function"]["Properties"]["Code"]["S3Key"] == "<asset>.zip"
    assert found["Resources"]["Test"]["Properties"] == {"Version": "<version>", "OnUpdate": "free"}


def test_every_change_of_yours_makes_a_difference() -> None:
    plain = normalised(template())
    assert normalised(template(port=6818)) != plain
    assert normalised(template(script="#!/bin/bash")) != plain
    renamed = template()
    renamed["Resources"]["Other"] = renamed["Resources"].pop("Rule")
    assert normalised(renamed) != plain


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (f"{SECOND}.zip", False),
        (f"https://s3.eu-west-1.amazonaws.com/assets/{SECOND}.json", False),
        (f"1.dkr.ecr.eu-west-1.amazonaws.com/cdk-hnb659fds-container-assets-1:{SECOND}", False),
        (f"public.ecr.aws/some/image@sha256:{SECOND}", True),
        (SECOND, True),
    ],
)
def test_a_digest_of_yours_is_no_asset(written: str, kept: bool) -> None:
    given = template()
    given["Resources"]["Rule"]["Properties"]["Description"] = written
    found = normalised(given)["Resources"]["Rule"]["Properties"]["Description"]
    assert found == (written if kept else written.replace(SECOND, "<asset>"))


def test_the_given_template_is_left_as_it_is() -> None:
    given = template()
    before = copy.deepcopy(given)
    normalised(given)
    assert given == before


def test_an_app_is_synthesized_as_the_cdk_does(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    found = synthesize(tmp_path)
    assert set(found) == {"One", "Two", "Stage-Inner"}
    assert found["One"]["Parameters"]["Said"]["Default"] == "nothing"
    (tmp_path / "main.py").write_text(APP)
    (tmp_path / "app.py").unlink()
    (tmp_path / "cdk.json").write_text('{"app": "python3 main.py", "context": {"said": "by cdk.json"}}')
    assert synthesize(tmp_path)["Two"]["Parameters"]["Said"]["Default"] == "by cdk.json"
    given = synthesize(tmp_path, context={"said": "by the test"})
    assert given["Two"]["Parameters"]["Said"]["Default"] == "by the test"


def test_an_app_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('no partition was named')")
    with pytest.raises(RuntimeError, match=r"exited with 1:\nno partition was named"):
        synthesize(tmp_path)
    (tmp_path / "app.py").write_text(APP.replace("app.synth()", ""))
    with pytest.raises(RuntimeError, match=r"let it call app\.synth\(\)"):
        synthesize(tmp_path)
