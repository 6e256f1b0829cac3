"""The doctor comes to the nodes with their programs, whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import slurm_cluster
from slurm_cluster import node_bundle

PACKAGE = Path(slurm_cluster.__file__).parent
CARRY = "from slurm_cluster.doctor import payload; print(len(payload.script({'DOCTOR_NODE': 'n1'})))"


def test_the_doctor_runs_from_the_node_bundle_and_can_carry_itself_to_workers(tmp_path: Path) -> None:
    for relative in node_bundle._CONTENT:
        source, target = PACKAGE / relative, tmp_path / PACKAGE.name / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    for argv in (["-m", "slurm_cluster.doctor", "--help"], ["-c", CARRY]):
        done = subprocess.run(
            [sys.executable, "-P", *argv],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
