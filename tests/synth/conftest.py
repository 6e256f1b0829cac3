"""Synthesis of apps as ``cdk synth`` would run them: with the context of cdk.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

import app as default_app

Template = dict[str, Any]
NewApp = Callable[..., cdk.App]

CONTEXT: Mapping[str, Any] = json.loads(Path("cdk.json").read_text())["context"]


@pytest.fixture(scope="session")
def new_app(tmp_path_factory: pytest.TempPathFactory) -> NewApp:
    """Make apps with the context of cdk.json; keyword arguments change its keys."""

    def make(**context: Any) -> cdk.App:
        return cdk.App(
            context={**CONTEXT, **context},
            outdir=str(tmp_path_factory.mktemp("cdk.out")),
            analytics_reporting=False,
        )

    return make


@pytest.fixture(scope="session")
def template_of() -> Callable[[cdk.Stack], Template]:
    """Synthesize a stack's app and return the stack's template."""

    def synthesize(stack: cdk.Stack) -> Template:
        root = stack.node.root
        assert isinstance(root, cdk.App)
        found: Template = root.synth().get_stack_by_name(stack.stack_name).template
        return found

    return synthesize


@pytest.fixture(scope="session")
def default_template(new_app: NewApp, template_of: Callable[[cdk.Stack], Template]) -> Template:
    """The template of app.py as it is."""
    return template_of(default_app.build(new_app()))


@pytest.fixture(scope="session")
def resources() -> Callable[[Template, str], dict[str, Any]]:
    """Return the resources of one type by logical id."""

    def select(template: Template, resource_type: str) -> dict[str, Any]:
        return {name: item for name, item in template["Resources"].items() if item["Type"] == resource_type}

    return select


@pytest.fixture(scope="session")
def without_hashes() -> Callable[[Any], Any]:
    """Replace asset hashes, which every edit of a node program changes."""

    def replace(value: Any) -> Any:
        return json.loads(re.sub(r"[0-9a-f]{64}", "<asset>", json.dumps(value)))

    return replace
