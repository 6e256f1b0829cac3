"""The constructs one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from slurm_cluster.testing import normalised, synthesize

APP = Path(__file__).parent


@pytest.fixture(scope="module")
def templates() -> dict[str, Any]:
    return synthesize(APP)


def test_template(templates: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    assert normalised(templates["ByHand"]) == snapshot(extension_class=JSONSnapshotExtension)


def test_one_range_of_ports_is_in_the_rules_and_in_what_slurm_is_told(templates: dict[str, Any]) -> None:
    text = json.dumps(templates["ByHand"])
    rules = [
        item["Properties"]
        for item in json.loads(text)["Resources"].values()
        if item["Type"] == "AWS::EC2::SecurityGroupIngress"
    ]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in rules].count((61000, 63999)) == 2
    assert json.dumps('"srun":{"first":61000,"last":63999}')[1:-1] in text
