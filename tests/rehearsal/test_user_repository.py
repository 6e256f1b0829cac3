"""What README tells a new user to do, done: four files, one installation, and a job on rehearsed nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import readme_repository

_OF_THIS_RUN = ("PYTHONPATH", "PYTEST_", "VIRTUAL_ENV", "JSII_NODE", "SLURM_CLUSTER_NO_SKIP")
"""Environment variables that a new user has not."""


def clone(target: Path) -> None:
    """Copy what git would, and what it does not know yet."""
    root = readme_repository.ROOT
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, target / name)


@pytest.mark.rehearsal
def test_a_project_made_from_the_readme_alone_passes(tmp_path: Path) -> None:
    clone(tmp_path / "slurm_cluster")
    project = tmp_path / "project"
    readme_repository.write(project)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THIS_RUN)}
    printed = ""
    for command in readme_repository.commands():
        done = subprocess.run(
            ["bash", "-c", command], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed = done.stdout
    assert "2 passed" in printed
    assert "1 snapshot passed" in printed
