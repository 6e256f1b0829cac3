"""The Python environment of ministack and the way the CDK CLI is run."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from slurm_cluster.rehearsal.cloud import cdk_cli, cdk_tool, environment
from slurm_cluster.rehearsal.cloud.cdk_cli import CdkCli
from slurm_cluster.rehearsal.cloud.cdk_tool import CdkError
from slurm_cluster.rehearsal.cloud.server import Cloud


def _requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    monkeypatch.setattr(environment, "REQUIREMENTS", path)


def test_an_environment_is_made_once_and_replaces_what_a_killed_build_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path, monkeypatch, "# nothing\n")
    cache, told = tmp_path / "cache", list[str]()
    left = cache / "ministack.building" / "half"
    left.mkdir(parents=True)
    python = environment.ministack_python(cache, told.append)
    assert python.exists()
    assert not left.exists()
    assert environment.ministack_python(cache, told.append) == python
    assert len(told) == 1


def test_an_environment_that_cannot_be_made_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path, monkeypatch, f"{tmp_path}/absent.whl\n")
    with pytest.raises(RuntimeError, match=r"absent\.whl"):
        environment.ministack_python(tmp_path / "cache")
    assert list((tmp_path / "cache").glob("ministack-*")) == []


class Stage:
    """A directory with a script in the place of the CDK CLI, and a CLI for it."""

    def __init__(self, tmp_path: Path, script: str) -> None:
        self.lines: list[str] = []
        app = tmp_path / "app"
        place = app / "node_modules" / "aws-cdk" / "bin" / "cdk"
        place.parent.mkdir(parents=True)
        place.write_text(script)
        (app / "app.py").touch()
        cloud = Cloud(tmp_path, tmp_path / "nodes", cache=tmp_path)
        cloud.port = 1234
        context = {"partitions": [{"name": "cpu"}], "key": "text"}
        self.cli = CdkCli(cloud, app, tmp_path / "cdk", context=context, on_line=self.lines.append)


def test_the_cli_sees_the_emulated_account_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "production")
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "123456789012")
    stage = Stage(tmp_path, "console.log(process.argv.join(' ')); console.log(JSON.stringify(process.env))")
    assert stage.cli.deploy() == {}
    arguments, variables = stage.lines
    assert '--context partitions=[{"name": "cpu"}] --context key=text' in arguments
    assert "production" not in variables
    assert "123456789012" not in variables
    assert '"AWS_ENDPOINT_URL":"http://localhost:1234"' in variables
    assert f'"HOME":"{tmp_path}/cdk/home"' in variables


def test_a_failure_carries_the_end_of_the_output(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "for (let i = 0; i < 100; i++) console.log('line ' + i); process.exit(7)")
    with pytest.raises(CdkError) as caught:
        stage.cli.destroy()
    assert str(caught.value).startswith("cdk destroy exited with 7:\nline 40\n")
    assert str(caught.value).endswith("line 99")


def test_a_deploy_is_rolled_back_unless_what_failed_is_to_stay(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "console.log(process.argv.join(' '))")
    stage.cli.deploy()
    stage.cli.deploy(rollback=False)
    assert ["--no-rollback" in line.split() for line in stage.lines] == [False, True]


def test_a_cli_that_takes_too_long_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdk_cli, "_DEPLOY_SECONDS", 1)
    stage = Stage(
        tmp_path,
        "const child = require('child_process').spawn('sleep', ['60'], {stdio: 'inherit'});"
        "console.log(child.pid); setTimeout(() => {}, 60000)",
    )
    started = time.monotonic()
    with pytest.raises(CdkError, match="took longer than 1 s"):
        stage.cli.deploy()
    assert time.monotonic() - started < 10
    deadline = time.monotonic() + 5
    while _alive(int(stage.lines[0])):
        assert time.monotonic() < deadline, "the CLI's child lives on"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def without_the_projects_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdk_tool, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))


def test_a_missing_cli_is_installed_into_the_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_projects_own(tmp_path, monkeypatch)
    told = list[str]()
    cache = tmp_path / "cache"
    script = cdk_tool.cdk_script(tmp_path, cache, told.append)
    command = [str(cdk_tool.node_executable()), str(script), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.startswith(cdk_tool.CDK_VERSION)
    assert cdk_tool.cdk_script(tmp_path, cache, told.append) == script
    assert told == [f"installing the CDK CLI {cdk_tool.CDK_VERSION}"]


def test_a_cli_that_cannot_be_installed_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_projects_own(tmp_path, monkeypatch)
    monkeypatch.setattr(cdk_tool, "CDK_VERSION", "0.0.0-none")
    with pytest.raises(CdkError, match="could not be installed"):
        cdk_tool.cdk_script(tmp_path, tmp_path / "cache")
    assert list((tmp_path / "cache").glob("aws-cdk-*")) == []


def test_the_installed_cli_is_the_one_that_the_project_uses() -> None:
    package = json.loads((Path(__file__).parents[2] / "package.json").read_text())
    assert package["devDependencies"]["aws-cdk"] == cdk_tool.CDK_VERSION


def test_the_command_of_an_app_is_that_of_its_cdk_json_or_its_app_py(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"neither cdk\.json nor app\.py"):
        cdk_tool.app_command(tmp_path)
    (tmp_path / "app.py").touch()
    assert cdk_tool.app_command(tmp_path) == "python3 app.py"
    (tmp_path / "cdk.json").write_text('{"app": "python3 -m mine"}')
    assert cdk_tool.app_command(tmp_path) == "python3 -m mine"
