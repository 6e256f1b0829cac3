"""Fixtures of the smoke test's functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_cluster.runtime.functions import answer
from slurm_cluster.runtime.functions.smoke_test import cloud as cloud_module
from slurm_cluster.runtime.functions.smoke_test import report
from tests.runtime.cloudformation_double import CloudFormation, listening
from tests.runtime.function_doubles import Clouds


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    with listening() as server:
        yield server


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Clouds:
    clouds = Clouds()
    monkeypatch.setattr(cloud_module, "Cloud", lambda: clouds)
    monkeypatch.setattr("threading.Timer", _no_timer)  # tests that need it put the real one back
    for name, value in (("ON_UPDATE", "free"), ("BUDGET_SECONDS", "1800"), ("LOG_GROUP", "the-log-group")):
        monkeypatch.setenv(name, value)
    return clouds


def _no_timer(*_: Any) -> Any:
    return SimpleNamespace(start=lambda: None, cancel=lambda: None, daemon=True)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written and sent, in its order."""
    happened: list[str] = []
    send = answer.send

    def write(log_group: str, request_id: str, content: Any) -> str:
        assert json.loads(json.dumps(content))["request_id"] == request_id == "r-1"
        happened.append("report")
        return "the-stream"

    def sent(*arguments: Any, **options: Any) -> None:
        happened.append("answer")
        send(*arguments, **options)

    monkeypatch.setattr(report, "write", write)
    monkeypatch.setattr(answer, "send", sent)
    return happened
