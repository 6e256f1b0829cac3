"""cdk-nag and cfn-lint over synthesized apps: nothing found, and nothing acknowledged that is not found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import aws_cdk as cdk
import cdk_nag
import pytest
from aws_cdk import aws_ec2 as ec2
from cfnlint.api import lint
from cfnlint.config import ManualArgs

import app as default_app
from slurm_cluster import OperatingSystem, SlurmCluster

NewApp = Callable[..., cdk.App]


class _Recorder:
    """Stands in for the Validations of a construct and keeps what is acknowledged from reaching it."""

    def __init__(self, kept: list[tuple[str, str]], path: str) -> None:
        self._kept = kept
        self._path = path

    def acknowledge(self, *acknowledgments: cdk.Acknowledgment) -> None:
        # the report has CloudFormation's own rules without the name of their plug-in
        self._kept.extend((self._path, item.id.removeprefix("CloudFormation-Validate::")) for item in acknowledgments)
        assert all(len(item.reason or "") > 40 for item in acknowledgments)


def _in_an_environment(app: cdk.App) -> None:
    """A cluster of every kind of option, in a stack with account and Region."""
    stack = cdk.Stack(app, "Stack", env=cdk.Environment(account="111122223333", region="eu-west-1"))
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["eu-west-1a"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
    )
    cdk.Annotations.of(vpc).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId", "no route is added")
    cluster = SlurmCluster(stack, "Cluster", vpc=vpc, operating_system=OperatingSystem.ubuntu_26_04())
    cluster.add_partition("arm", instance_type=ec2.InstanceType("c7g.large"), static_nodes=1)


def _add_packs(app: cdk.App) -> None:
    packs = (cdk_nag.AwsSolutionsChecks, cdk_nag.NIST80053R5Checks, cdk_nag.HIPAASecurityChecks)
    cdk.Validations.of(app).add_plugins(*(pack(app) for pack in packs))


def _default(app: cdk.App) -> None:
    default_app.build(app)


@pytest.mark.parametrize("define", [_default, _in_an_environment])
def test_acknowledged_is_exactly_what_cdk_nag_finds(
    define: Callable[[cdk.App], None], new_app: NewApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app()
    acknowledged: list[tuple[str, str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            cdk.Validations, "of", staticmethod(lambda construct: _Recorder(acknowledged, construct.node.path))
        )
        define(app)
    _add_packs(app)
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    report = json.loads(Path(app.outdir, "validation-report.json").read_text())
    found = {
        (place["constructPath"], violation["ruleName"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for place in violation["violatingConstructs"]
    }
    assert found
    for path, rule in found:
        assert any(rule == known and f"{path}/".startswith(f"{above}/") for above, known in acknowledged), (path, rule)
    for above, known in acknowledged:
        assert any(rule == known and f"{path}/".startswith(f"{above}/") for path, rule in found), (above, known)


@pytest.mark.parametrize("define", [_default, _in_an_environment])
def test_cdk_nag_and_cdk_find_nothing_else(define: Callable[[cdk.App], None], new_app: NewApp) -> None:
    app = new_app()
    define(app)
    _add_packs(app)
    app.synth()  # raises where a rule fails
    report = json.loads(Path(app.outdir, "validation-report.json").read_text())
    assert [plugin for plugin in report["pluginReports"] if plugin["violations"]] == []


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (_default, []),
        # a subnet of yours brings its zone, in which the state volume must be
        (_in_an_environment, ["W3010 Avoid hardcoding availability zones 'eu-west-1a'"]),
    ],
)
def test_cfn_lint_finds_nothing(define: Callable[[cdk.App], None], expected: list[str], new_app: NewApp) -> None:
    app = new_app()
    define(app)
    (stack,) = app.synth().stacks
    found = lint(Path(stack.template_full_path).read_text(), config=ManualArgs(regions=["eu-west-1", "us-east-1"]))
    assert [f"{match.rule.id} {match.message}" for match in found if match.rule.id[0] in "EW"] == expected
