"""Sessions that stay: two at once, of an app that is not ours; visited from other processes; kept after a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.rehearsal.session_process import PROJECT, SessionProcess, session_process

pytestmark = pytest.mark.rehearsal

APP = """
import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

app = cdk.App()
stack = cdk.Stack(app, "Plain")
vpc = ec2.Vpc(
    stack, "Vpc", nat_gateways=0, max_azs=1,
    subnet_configuration=[ec2.SubnetConfiguration(name="only", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
)
user_data = ec2.UserData.for_linux()
user_data.add_commands("echo hello > /root/greeting")
ec2.Instance(
    stack, "Web", vpc=vpc, vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
    instance_type=ec2.InstanceType("c7i.large"), require_imdsv2=True, user_data=user_data,
    machine_image=ec2.MachineImage.from_ssm_parameter("/aws/service/debian/release/13/latest/amd64"),
)
app.synth()
"""
WAIT_FOR_USER_DATA = "until [ -s /root/greeting ]; do sleep 0.2; done; cat /root/greeting"


def rehearsal(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command that is quick."""
    command = [sys.executable, "-m", "slurm_cluster.rehearsal", *words]
    return subprocess.run(command, cwd=PROJECT, input=text, capture_output=True, text=True, timeout=150)


def status(session: SessionProcess) -> dict[str, Any]:
    listed = json.loads(rehearsal("status", "--json").stdout)
    found: dict[str, Any] = next(item for item in listed if item["session"] == session.paths.session)
    return found


@pytest.fixture(scope="module")
def app_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("plain")
    (directory / "app.py").write_text(APP)
    return directory


@pytest.fixture(scope="module")
def two(app_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SessionProcess]]:
    """Two sessions of one app, brought up at the same time."""
    logs = tmp_path_factory.mktemp("logs")
    with ExitStack() as stack:
        processes = [stack.enter_context(session_process(logs / name, app_dir, verb="up")) for name in ("one", "two")]
        for process in processes:
            stack.callback(process.down)
        for process in processes:
            assert process.wait(seconds=400) == 0, process.output
        yield processes


def test_two_sessions_have_machines_and_apis_of_their_own(two: list[SessionProcess]) -> None:
    seen = [status(session) for session in two]
    assert [item["state"] for item in seen] == ["up", "up"]
    assert len({item["endpoint"] for item in seen}) == 2
    machines = [item["nodes"] for item in seen]
    assert [[machine["state"] for machine in nodes.values()] for nodes in machines] == [["runs"], ["runs"]]
    assert not set(machines[0]) & set(machines[1]), "instance ids"


def test_a_machine_is_entered_by_its_instance_id_and_its_name_tag(two: list[SessionProcess]) -> None:
    for session in two:
        (instance_id,) = status(session)["nodes"]
        for name in (instance_id, "Plain/Web"):
            words = ("exec", "--session", session.paths.session, name, "--", "sh", "-c", WAIT_FOR_USER_DATA)
            assert rehearsal(*words).stdout == "hello\n"


def test_programs_and_shells_end_with_their_status_and_run_as_who_was_asked_for(two: list[SessionProcess]) -> None:
    at = ("--session", two[0].paths.session)
    assert rehearsal("exec", *at, "Plain/Web", "--", "sh", "-c", "exit 7").returncode == 7
    shell = rehearsal("shell", *at, "--user", "nobody", "Plain/Web", text="id -un\nexit 5\n")
    if shell.returncode == 1:  # nobody has no shell in Debian
        assert "not available" in shell.stdout + shell.stderr
    root = rehearsal("shell", *at, "Plain/Web", text="id -un; echo $HOME; exit 5\n")
    assert (root.stdout, root.returncode) == ("root\n/root\n", 5)
    wrong = rehearsal("exec", *at, "db", "--", "true")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "'db' is no machine of session" in wrong.stderr


def test_which_session_is_asked_for_where_several_live(two: list[SessionProcess]) -> None:
    asked = rehearsal("exec", "Plain/Web", "--", "true")
    assert asked.returncode == 1
    assert all(session.paths.session in asked.stderr for session in two)


def test_down_leaves_nothing_of_one_and_the_other_as_it_is(two: list[SessionProcess]) -> None:
    first, second = two
    assert rehearsal("down", "--session", first.paths.session).returncode == 0
    assert first.left() == []
    (instance_id,) = status(second)["nodes"]
    assert rehearsal("exec", "--session", second.paths.session, instance_id, "--", "true").returncode == 0
    assert rehearsal("down", "--session", second.paths.session).returncode == 0
    assert second.left() == []


def test_what_failed_is_kept_for_a_look_until_down(app_dir: Path, tmp_path: Path) -> None:
    broken = tmp_path / "app"
    broken.mkdir()
    (broken / "app.py").write_text(APP.replace('"c7i.large"', '"no.such-type"'))
    options = ("--keep-on-failure", "--json", str(tmp_path / "report.json"))
    with session_process(tmp_path / "log", broken, *options) as run:
        assert run.wait(seconds=300) == 1, run.output
        try:
            assert status(run)["state"] == "failed"
            assert run.left() != []
            report = json.loads((tmp_path / "report.json").read_text())
            assert report["passed"] is False
            assert "no.such-type" in report["failure"]
            assert [span["failed"] for span in report["timeline"] if span["what"] == "cdk deploy"] == [True]
        finally:
            run.down()
        assert run.left() == []
