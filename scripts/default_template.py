"""The template that app.py synthesizes from cdk.json as it stands."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import aws_cdk as cdk

import app as default_app

_CDK_JSON = Path(__file__).parents[1] / "cdk.json"


def default_context() -> dict[str, Any]:
    """Return cdk.json's context."""
    context: dict[str, Any] = json.loads(_CDK_JSON.read_text())["context"]
    return context


def default_template() -> dict[str, Any]:
    """Synthesize and return it."""
    with tempfile.TemporaryDirectory() as outdir:
        app = cdk.App(context=default_context(), outdir=outdir, analytics_reporting=False)
        stack = default_app.build(app)
        template: dict[str, Any] = app.synth().get_stack_by_name(stack.stack_name).template
    return template
