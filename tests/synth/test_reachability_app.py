"""The proof of what this package synthesizes, and the CDK code of a missing rule."""

from __future__ import annotations

import copy
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import cloudformation_include as include

from slurm_cluster.model.flows import PortRange, SlurmPorts, cluster_flows, rules
from slurm_cluster.reachability import MissingRule, Proof, Status, load, prove

Template = dict[str, Any]

EXAMPLES = sorted(path.parent for path in Path("examples").glob("*/app.py"))
NARROW = {"composed_by_hand": SlurmPorts(srun=PortRange(61000, 63999))}
"""Ports of the examples that choose them."""

TEMPLATES = Path("tests/unit/reachability_templates")


def assert_proven(proof: Proof) -> None:
    assert {item.flow.id: item.status for item in proof.flows} == dict.fromkeys(
        (flow.id for flow in cluster_flows(SlurmPorts())), Status.OPEN
    )
    assert [item.assumed for item in proof.flows] == [()] * len(proof.flows)
    assert [(use.rule.text, use.wider) for use in proof.wider] == []


def test_the_default_app_is_proven_and_each_of_its_rules_is_needed(default_template: Template) -> None:
    proof = prove(load({"SlurmCluster.template.json": default_template}))
    assert_proven(proof)
    used = [tuple(flow.id for flow in use.flows) for use in proof.rules if use.rule.direction == "ingress"]
    assert sorted(used) == sorted(tuple(flow.id for flow in rule.flows) for rule in rules(cluster_flows(SlurmPorts())))


@pytest.mark.parametrize("rule", rules(cluster_flows(SlurmPorts())), ids=lambda rule: rule.flows[0].id)
def test_without_one_of_its_rules_exactly_that_rules_flows_close(default_template: Template, rule: Any) -> None:
    template = copy.deepcopy(default_template)
    name = "".join(word.capitalize() for word in rule.flows[0].id.split("-"))
    (logical_id,) = (item for item in template["Resources"] if item.startswith(f"ClusterFoundationSecurity{name}"))
    del template["Resources"][logical_id]
    closed = {item.flow.id for item in prove(load({"spoiled": template})).closed}
    # the srun range holds the daemons' ports as long as it is not narrowed
    held = {"controller-rpc", "node-rpc"}
    assert closed == {flow.id for flow in rule.flows} - held


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_every_example_is_proven(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = cdk.App
    monkeypatch.setattr(cdk, "App", lambda **options: make(outdir=str(tmp_path), analytics_reporting=False, **options))
    runpy.run_path(str(folder / "app.py"), run_name="__main__")
    templates = load(sorted(tmp_path.glob("*.template.json")))
    assert_proven(prove(templates, ports=NARROW.get(folder.name, SlurmPorts())))


@pytest.mark.parametrize("name", ["origin_story.json", "stateless.yaml", "cdk_v2.template.json"])
def test_the_cdk_code_makes_the_same_resource_as_the_cloudformation_code(name: str, tmp_path: Path) -> None:
    proof = prove(load(TEMPLATES / name))
    missing = {rule.logical_id: rule for item in proof.closed for rule in item.missing}
    assert missing
    app = cdk.App(outdir=str(tmp_path), analytics_reporting=False)
    stack = _Mended(app, TEMPLATES / name, missing.values())
    template = app.synth().get_stack_by_name(stack.stack_name).template
    assert {name: template["Resources"][name] for name in missing} == {
        name: rule.resource() for name, rule in missing.items()
    }
    assert not prove(load({"mended": template})).closed


class _Mended(cdk.Stack):
    """A template with what it lacked."""

    def __init__(self, scope: cdk.App, template: Path, missing: Any) -> None:
        plain = cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
        super().__init__(scope, "Mended", synthesizer=plain)
        include.CfnInclude(self, "Template", template_file=str(template))
        for rule in missing:
            self._add(rule)

    def _add(self, rule: MissingRule) -> None:
        run: Callable[..., None] = exec
        run(rule.cdk(), {"cdk": cdk, "ec2": ec2, "self": self})
