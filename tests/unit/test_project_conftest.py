"""What conftest.py does with tests that cannot run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_without_its_tool():
    pytest.skip("the tool is not here")

@pytest.fixture(scope="session")
def booted():
    raise AssertionError("booted on a machine that cannot")

@pytest.mark.rehearsal
def test_on_nodes(booted):
    pass
"""


def run_where_no_node_can_boot(folder: Path, *, no_skip: str) -> str:
    shutil.copy(ROOT / "conftest.py", folder)
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "--rootdir", "."]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "SLURM_CLUSTER_NO_SKIP": no_skip,
        "SLURM_CLUSTER_REHEARSAL_CACHE": "/proc/has/no/room",
    }
    return subprocess.run(
        [*command, "-c", os.devnull, "."], cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_rehearsals_are_skipped_by_name_before_anything_boots(tmp_path: Path) -> None:
    printed = run_where_no_node_can_boot(tmp_path, no_skip="0")
    assert "2 skipped" in printed
    assert "this machine cannot rehearse: " in printed
    assert "/proc has 0.0 GB free" in printed


def test_a_skipped_test_fails_where_every_test_must_run(tmp_path: Path) -> None:
    printed = run_where_no_node_can_boot(tmp_path, no_skip="1")
    # a skip during set-up counts as an error, and either makes pytest exit with 1
    assert "1 failed, " in printed
    assert "1 error" in printed
    assert "allows no skipped test" in printed
    assert "the tool is not here" in printed
