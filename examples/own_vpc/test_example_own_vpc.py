"""A cluster in a VPC of another stack."""

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


@pytest.mark.parametrize("stack", ["Network", "Research"])
def test_template(stack: str, templates: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    assert normalised(templates[stack]) == snapshot(extension_class=JSONSnapshotExtension)


def test_every_node_is_in_the_chosen_subnet_and_the_network_knows_no_cluster(templates: dict[str, Any]) -> None:
    nodes = [i["Properties"] for i in templates["Research"]["Resources"].values() if i["Type"] == "AWS::EC2::Instance"]
    assert len(nodes) == 3
    assert all("ComputeSubnet1" in json.dumps(node["SubnetId"]) for node in nodes)
    assert "Slurm" not in json.dumps(templates["Network"])
