"""The smallest app."""

from __future__ import annotations

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
    assert normalised(templates["Smallest"]) == snapshot(extension_class=JSONSnapshotExtension)


def test_cluster_and_smoke_test_are_there(templates: dict[str, Any]) -> None:
    kinds = [item["Type"] for item in templates["Smallest"]["Resources"].values()]
    assert kinds.count("AWS::EC2::Instance") == 3
    assert kinds.count("Custom::SlurmSmokeTest") == 1
