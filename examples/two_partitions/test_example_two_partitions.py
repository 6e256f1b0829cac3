"""Two partitions and an alarm."""

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
    assert normalised(templates["Mixed"]) == snapshot(extension_class=JSONSnapshotExtension)


def test_partitions_are_described_to_the_head_and_one_is_the_default(templates: dict[str, Any]) -> None:
    resources = templates["Mixed"]["Resources"].values()
    parameters = [item["Properties"]["Value"] for item in resources if item["Type"] == "AWS::SSM::Parameter"]
    told = [json.loads(value) for value in parameters if isinstance(value, str) and "static_nodes" in value]
    assert {item["name"]: item["default"] for item in told} == {"cpu": True, "memory": False}
