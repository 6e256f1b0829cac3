"""Every example is a project with a test, and cdk-nag and cfn-lint find nothing in what it takes from the package."""

from __future__ import annotations

import json
import runpy
from contextlib import suppress
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest
from cfnlint.api import lint
from cfnlint.config import ManualArgs

EXAMPLES = sorted(path.parent for path in Path("examples").glob("*/app.py"))


def test_every_example_is_a_project_with_a_test_and_a_snapshot() -> None:
    assert EXAMPLES
    assert [path.name for path in Path("examples").iterdir() if path not in EXAMPLES and path.name[0] not in "._"] == []
    for folder in EXAMPLES:
        assert json.loads((folder / "cdk.json").read_text()) == {"app": "python3 app.py"}
        (test,) = folder.glob("test_*.py")
        assert list((folder / "__snapshots__" / test.stem).iterdir())


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_nothing_is_found_in_an_example(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[cdk.App] = []
    templates: list[Path] = []
    synth, make = cdk.App.synth, cdk.App

    def new_app(**options: Any) -> cdk.App:
        app = make(outdir=str(tmp_path / "cdk.out"), analytics_reporting=False, **options)
        packs = (cdk_nag.AwsSolutionsChecks, cdk_nag.NIST80053R5Checks, cdk_nag.HIPAASecurityChecks)
        cdk.Validations.of(app).add_plugins(*(pack(app) for pack in packs))
        apps.append(app)
        return app

    def checked(self: cdk.App, **options: Any) -> None:
        with suppress(RuntimeError):  # where the example's own resources break a rule
            synth(self, **options)
        templates.extend(Path(self.outdir).glob("*.template.json"))

    monkeypatch.setattr(cdk, "App", new_app)
    monkeypatch.setattr(make, "synth", checked)
    runpy.run_path(str(folder / "app.py"), run_name="__main__")

    (app,) = apps
    ours = [item.node.path for item in app.node.find_all() if type(item).__module__.startswith("slurm_cluster.")]
    assert ours
    report = json.loads((tmp_path / "cdk.out" / "validation-report.json").read_text())
    found = [
        (violation["ruleName"], place["constructPath"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for place in violation["violatingConstructs"]
    ]
    assert [item for item in found if any(f"{item[1]}/".startswith(f"{path}/") for path in ours)] == []
    assert templates
    for template in templates:
        # CDK's own functions depend on their role by name and by reference
        config = ManualArgs(regions=["eu-west-1", "us-east-1"], ignore_checks=["W3005"])
        matches = lint(template.read_text(), config=config)
        assert [f"{match.rule.id} {match.message}" for match in matches if match.rule.id[0] in "EW"] == []
