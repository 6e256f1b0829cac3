"""The fixture ``rehearse``: what it deploys when, what it removes, and what it says of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = """
from contextlib import contextmanager
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.session import Rehearsal

class Deployed:
    dead = False
    def __init__(self, name, emit):
        self.name, self.explain = name, lambda: emit("refused: a worker, port 1025")
    def raise_failure(self):
        if self.dead:
            raise RehearsalError("the process of the emulated AWS (ministack) has ended")

@contextmanager
def deployed(app_dir, *, context=None, emit=print):
    print("deploy", app_dir.name, context)
    made, failed = Deployed(app_dir.name, emit), True
    try:
        yield made
        failed = False
    finally:
        print("remove", app_dir.name)
        if made.dead and not failed:
            raise RehearsalError("the teardown did not end by itself")

Rehearsal.deployed = staticmethod(deployed)
"""


def run(folder: Path, test: str, *arguments: str) -> str:
    (folder / "conftest.py").write_text(STAND_IN)
    (folder / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s"]
    return subprocess.run(
        [*command, "--strict-markers", "--rootdir", ".", "-c", os.devnull, *arguments, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def events(printed: str) -> list[str]:
    words = (
        line[line.find(word) :] for line in printed.splitlines() for word in ("deploy ", "remove ") if word in line
    )
    return [word.rstrip(".F") for word in words]


def test_tests_of_one_app_share_it_and_another_app_takes_its_place(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
def test_first(rehearse):
    assert rehearse("one").name == "one"
def test_same(rehearse):
    assert rehearse("one") is rehearse("./one")
def test_other_context(rehearse):
    assert rehearse("one", context={"a": 1}).name == "one"
def test_other_app(rehearse):
    assert rehearse("two").name == "two"
""",
    )
    assert "4 passed" in printed
    assert events(printed) == [
        *("deploy one None", "remove one"),
        *("deploy one {'a': 1}", "remove one"),
        *("deploy two None", "remove two"),
    ]


def test_an_app_whose_emulated_aws_has_died_is_deployed_anew(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        """
def test_first(rehearse):
    rehearse("one").dead = True
def test_second(rehearse):
    assert not rehearse("one").dead
def test_third(rehearse):
    assert rehearse("one") is rehearse("one")
""",
    )
    assert "3 passed" in printed
    assert events(printed) == ["deploy one None", "remove one", "deploy one None", "remove one"]


def test_a_failure_is_told_with_what_the_rehearsal_knows(tmp_path: Path) -> None:
    printed = run(tmp_path, "def test_it(rehearse):\n    assert rehearse('one') is None\n")
    assert "1 failed" in printed
    assert "rehearsal" in printed
    assert "refused: a worker, port 1025" in printed
    assert events(printed)[-1] == "remove one"


@pytest.mark.parametrize(
    ("expression", "told"), [("not rehearsal", "1 passed, 1 deselected"), ("rehearsal", "1 passed")]
)
def test_tests_that_rehearse_are_marked(tmp_path: Path, expression: str, told: str) -> None:
    printed = run(tmp_path, "def test_a(rehearse):\n    rehearse('one')\ndef test_b():\n    pass\n", "-m", expression)
    assert told in printed
    assert ("deploy" in printed) == (expression == "rehearsal")


def test_a_machine_that_cannot_rehearse_fails_the_test_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(rehearse):\n    rehearse('.')\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SLURM_CLUSTER_REHEARSAL_CACHE": "/proc/has/no/room"}
    done = subprocess.run(
        [*command, "--rootdir", ".", "-c", os.devnull, "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "this machine cannot rehearse" in done.stdout
    assert "/proc has 0.0 GB free" in done.stdout


def test_loading_the_plugin_loads_neither_aws_cdk_nor_the_rehearsed_cloud() -> None:
    program = "import sys, slurm_cluster.testing.plugin; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout
    assert {"aws_cdk", "boto3", "slurm_cluster.rehearsal.session"} & set(loaded.split()) == set()
