"""Copies of the app with one fault each, whose patience is shorter, to see how a deployment of them ends."""

from __future__ import annotations

import shutil
from pathlib import Path

PROJECT = Path(__file__).parents[2]

_APP = """\
import aws_cdk as cdk
import default_app
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from slurm_cluster import user_data
from slurm_cluster.model.flows import Role

app = cdk.App(analytics_reporting=False)
stack = default_app.build(app)
cluster = stack.node.find_child("Cluster")


def before_user_data(node, script):
    '''Have a worker run a script as root before its user data.'''
    text = user_data.render(
        parameter_path=cluster.foundation.desired_state.path, role=Role.WORKER, node_name=node
    )
    spoiled = cdk.Fn.base64("#!/bin/bash\\n" + script + "\\n" + text)
    cluster.foundation.workers[node].instance.add_property_override("UserData", spoiled)


{fault}
app.synth()
"""

_PATIENCE = {
    "runtime/functions/smoke_test/watch.py": (
        ("AGENT_SECONDS = 300", "AGENT_SECONDS = 45"),
        ("PATIENCE_SECONDS = 120", "PATIENCE_SECONDS = 30"),
        ("SETTLE_SECONDS = 30", "SETTLE_SECONDS = 10"),
    ),
    "runtime/probe_plan.py": (
        ("WINDOW_SECONDS = 20", "WINDOW_SECONDS = 9"),
        ("STUCK_SECONDS = 60", "STUCK_SECONDS = 15"),
    ),
    "runtime/node/smoke_test.py": (("LIMIT_SECONDS = 60", "LIMIT_SECONDS = 15"),),
}
"""What waits for slow machines, and here for none."""


def app_copy(directory: Path, *, patient: bool = True) -> Path:
    """Copy the app and the package into ``directory``; without patience it gives machines up sooner."""
    shutil.copytree(
        PROJECT / "slurm_cluster", directory / "slurm_cluster", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("app.py", "cdk.json"):
        shutil.copy(PROJECT / name, directory)
    for name, changes in ({} if patient else _PATIENCE).items():
        file = directory / "slurm_cluster" / name
        text = file.read_text()
        for usual, short in changes:
            assert f"{usual}\n" in text, f"{name} has no line {usual!r}"
            text = text.replace(f"{usual}\n", f"{short}\n")
        file.write_text(text)
    return directory


def spoiled_app(directory: Path, fault: str) -> Path:
    """Make an app in ``directory``.

    Args:
        directory: does not exist.
        fault: Python statements about ``cluster``, ``stack`` and ``app``; ``before_user_data`` is there as well.
    """
    app_copy(directory, patient=False)
    (directory / "app.py").rename(directory / "default_app.py")
    (directory / "app.py").write_text(_APP.format(fault=fault))
    return directory
