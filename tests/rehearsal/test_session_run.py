"""The whole rehearsal from its command line, and what is left after every way in which it can end."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.rehearsal.session_process import PROJECT, SessionProcess, session_process

pytestmark = pytest.mark.rehearsal

BOOTED = r"head +bootstrap: "


def children(pid: int, program: str) -> list[int]:
    """Return the child processes of ``pid`` whose command line contains ``program``."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if program in Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode():
                found.append(int(child))
    return found


def fails(run: SessionProcess, *, seconds: float) -> str:
    """Wait for a run that fails by itself; return its output when nothing is left of it."""
    assert run.wait(seconds=seconds) == 1, run.output
    assert run.left() == []
    return run.output


def app_with(tmp_path: Path, program: str) -> Path:
    """Make an app of this project's whose program is ``program``; the rehearsal alone looks at its nodes."""
    (tmp_path / "app").mkdir()
    cdk_json = json.loads((PROJECT / "cdk.json").read_text())
    cdk_json["context"]["smoke_test"] = False
    (tmp_path / "app" / "cdk.json").write_text(json.dumps(cdk_json))
    (tmp_path / "app" / "app.py").write_text(program)
    return tmp_path / "app"


def test_a_run_prints_what_srun_printed_and_leaves_nothing(tmp_path: Path) -> None:
    with session_process(tmp_path / "log") as run:
        assert run.wait(seconds=300) == 0, run.output
        answered = dict(re.findall(r"^  (cpu-static-\d) (ip-\S+)$", run.output, re.MULTILINE))
        assert set(answered) == {"cpu-static-1", "cpu-static-2"}
        assert len(set(answered.values())) == 2
        for what in ("cdk deploy", "head: boot", "cpu-static-1: bootstrap", "smoke test: srun:cpu", "cdk destroy"):
            assert re.search(rf"^ +[0-9.]+s +[0-9.]+s  {what}$", run.output, re.MULTILINE), f"{what}\n{run.output}"
        assert "reported otherwise" not in run.output
        assert "not rehearsed:" in run.output
        assert run.output.splitlines()[-1] == "passed; nothing is left"
        assert run.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with session_process(tmp_path / "log") as run:
        run.wait_for(BOOTED, seconds=180)
        run.process.send_signal(number)
        assert run.wait(seconds=60) == 128 + number, run.output
        assert f"stopped by {number.name}" in run.output
        assert run.left() == []


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    with session_process(tmp_path / "killed") as killed:
        killed.wait_for(BOOTED, seconds=180)
        killed.process.kill()
        killed.wait(seconds=10)
        assert any(line.startswith("mount ") for line in killed.left()), "it removed its machines itself"
    broken = app_with(tmp_path, "raise SystemExit('this app has a mistake')\n")
    with session_process(tmp_path / "next", broken) as following:
        output = fails(following, seconds=60)
    assert f"session {killed.paths.session} was killed: removing what it left" in output
    assert killed.left() == []
    assert "this app has a mistake" in output
    assert "cdk deploy exited with 1" in output


def test_a_failed_bootstrap_is_named_with_node_step_and_reason(tmp_path: Path) -> None:
    app = app_with(
        tmp_path,
        f"""import runpy, sys
sys.path.insert(0, {str(PROJECT)!r})
import aws_cdk as cdk
from aws_cdk import aws_ssm as ssm
import jsii

class Spoil:
    pass

@jsii.implements(cdk.IAspect)
class EmptyClusterParameter:
    def visit(self, node):
        if isinstance(node, ssm.CfnParameter) and node.node.path.endswith("/Cluster/Resource"):
            node.value = "{{}}"

synth = cdk.App.synth
def spoiled(self, **options):
    cdk.Aspects.of(self).add(EmptyClusterParameter())
    return synth(self, **options)
cdk.App.synth = spoiled
runpy.run_path({str(PROJECT / "app.py")!r}, run_name="__main__")
""",
    )
    with session_process(tmp_path / "log", app) as run:
        output = fails(run, seconds=240)
    assert re.search(r"bootstrap failed in step cluster: .*expected exactly", output)
    assert "last lines of /var/log/cloud-init-output.log" in output


def test_a_killed_machine_fails_the_run_by_name(tmp_path: Path) -> None:
    with session_process(tmp_path / "log") as run:
        run.wait_for(BOOTED, seconds=180)
        os.kill(children(run.process.pid, "systemd-nspawn")[0], signal.SIGKILL)
        output = fails(run, seconds=120)
    assert re.search(r"rehearsal failed: \S+: the systemd-nspawn of i-[0-9a-f]+ was killed", output)


def test_a_killed_api_fails_the_run(tmp_path: Path) -> None:
    with session_process(tmp_path / "log") as run:
        run.wait_for("emulated AWS answers", seconds=60)
        os.kill(children(run.process.pid, "adapter.py")[0], signal.SIGKILL)
        output = fails(run, seconds=120)
    assert "ministack) has ended" in output


def test_a_killed_cdk_fails_the_run(tmp_path: Path) -> None:
    with session_process(tmp_path / "log") as run:
        run.wait_for("cdk +deploy", seconds=60)
        cdk = children(run.process.pid, "aws-cdk/bin/cdk deploy")
        os.kill(cdk[0], signal.SIGKILL)
        output = fails(run, seconds=120)
    assert "cdk deploy exited with -9" in output
