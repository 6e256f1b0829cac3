"""A stack that waits for the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from slurm_cluster.testing import Rehearse, normalised, synthesize

APP = Path(__file__).parent


@pytest.fixture(scope="module")
def templates() -> dict[str, Any]:
    return synthesize(APP)


@pytest.mark.parametrize("stack", ["Research", "Jobs"])
def test_template(stack: str, templates: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    assert normalised(templates[stack]) == snapshot(extension_class=JSONSnapshotExtension)


def test_a_job_that_the_function_submits_runs_on_both_workers(rehearse: Rehearse) -> None:
    cluster = rehearse(APP)
    function = cluster.outputs["Jobs"]["SubmitFunction"]
    order = json.dumps({"command": "srun hostname", "nodes": 2})
    answer = cluster.cloud.client("lambda").invoke(FunctionName=function, Payload=order)
    body = answer["Payload"].read().decode()
    assert "FunctionError" not in answer, body
    job = json.loads(body)["job"]
    wait = f"while squeue --noheader --jobs={job} | grep -q .; do sleep 0.2; done; scontrol show job {job}"
    ended = cluster.run_command("head", wait)
    assert "JobState=COMPLETED" in ended.stdout, ended
    (first,) = re.findall(r"BatchHost=(\S+)", ended.stdout)
    # home directories are those of each node
    printed = cluster.run_command(first, f"cat ~admin/slurm-{job}.out")
    assert len(set(printed.stdout.split())) == 2, printed.stdout
