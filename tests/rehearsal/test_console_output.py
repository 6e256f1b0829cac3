"""The console of a node, as GetConsoleOutput tells it."""

from __future__ import annotations

import base64
import time

import pytest

from slurm_cluster.rehearsal.session import Rehearsal

pytestmark = pytest.mark.rehearsal

LINE = "slurm-cluster test: step=packages reason=no mirror, 42 %, \u00fc"


def console(rehearsal: Rehearsal, instance_id: str) -> str:
    answer = rehearsal.cloud.client("ec2").get_console_output(InstanceId=instance_id, Latest=True)
    assert answer["InstanceId"] == instance_id
    output: str = answer["Output"]
    try:
        return base64.b64decode(output, validate=True).decode()
    except ValueError:
        return output  # boto3 has decoded it


def test_what_a_node_writes_to_its_console_is_told_of_that_node_alone(rehearsal: Rehearsal) -> None:
    head, worker = rehearsal.nodes["head"], rehearsal.nodes["cpu-static-1"]
    wrote = head.exec(["tee", "/dev/console"], input=f"{LINE}\n")
    assert wrote.returncode == 0, wrote.stderr
    deadline = time.monotonic() + 10
    while LINE not in console(rehearsal, head.instance_id):
        assert time.monotonic() < deadline, console(rehearsal, head.instance_id)[-2000:]
        time.sleep(0.2)
    told = console(rehearsal, worker.instance_id)
    assert LINE not in told
    assert "cloud-init" in told.lower(), "its boot"
