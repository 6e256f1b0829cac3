"""On the emulated AWS: a smoke test whose function dies is answered by the other one, and its stack rolls back.

No node boots: the function waits for agents that do not come.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from slurm_cluster.rehearsal.cloud.cdk_cli import CdkCli
from slurm_cluster.rehearsal.cloud.cdk_tool import CdkError
from slurm_cluster.rehearsal.cloud.server import Cloud
from slurm_cluster.rehearsal.paths import cache_dir
from slurm_cluster.runtime.functions.smoke_test import index

_PROJECT = Path(__file__).resolve().parents[2]
_INVOCATION_SECONDS = 6


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path / "cloud", tmp_path / "nodes", cache=cache_dir()) as started:
        yield started


@pytest.fixture
def app_dir(tmp_path: Path) -> Path:
    """The app, its function handing over to a new invocation after seconds in place of minutes."""
    directory = tmp_path / "app"
    shutil.copytree(_PROJECT / "slurm_cluster", directory / "slurm_cluster")
    for name in ("app.py", "cdk.json"):
        shutil.copy(_PROJECT / name, directory)
    source = directory / "slurm_cluster" / "runtime" / "functions" / "smoke_test" / "index.py"
    text = source.read_text()
    usual = f"HAND_OVER_SECONDS = {index.HAND_OVER_SECONDS}\n"
    assert usual in text
    source.write_text(text.replace(usual, f"HAND_OVER_SECONDS = {900 - _INVOCATION_SECONDS}\n"))
    return directory


def _workers(cloud: Cloud) -> set[int]:
    """Return the processes of this cloud that run the smoke test's function."""
    assert cloud._process is not None
    found = set()
    for task in Path(f"/proc/{cloud._process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # threads and processes come and go
            for child in (task / "children").read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
                if re.search(r"ministack-lambda-SlurmCluster-ClusterSmokeTestFunction\S*_worker", command):
                    found.add(int(child))
    return found


def _log(cloud: Cloud) -> str:
    """Return the log of the smoke test's functions."""
    logs = cloud.client("logs")
    groups = [
        group["logGroupName"]
        for page in logs.get_paginator("describe_log_groups").paginate()
        for group in page["logGroups"]
        if "SmokeTest" in group["logGroupName"]
    ]
    return "\n".join(
        event["message"]
        for group in groups
        for page in logs.get_paginator("filter_log_events").paginate(logGroupName=group)
        for event in page["events"]
    )


def test_a_function_that_dies_in_a_later_invocation_is_answered_for(
    cloud: Cloud, app_dir: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    cli = CdkCli(cloud, app_dir, tmp_path / "cdk", on_line=lines.append)
    cli.bootstrap()
    failures: list[CdkError] = []

    def deploy() -> None:
        try:
            cli.deploy()
        except CdkError as error:
            failures.append(error)

    deploying = Thread(target=deploy)
    deploying.start()
    try:
        deadline = time.monotonic() + 240
        while not _workers(cloud):
            assert deploying.is_alive(), lines
            assert time.monotonic() < deadline, lines
            time.sleep(0.2)
        time.sleep(2.5 * _INVOCATION_SECONDS)
        # each of the processes has had an invocation, one of them has it now
        killed_at = time.monotonic()
        for process in _workers(cloud):
            os.kill(process, signal.SIGKILL)
        deploying.join(60)
    finally:
        deploying.join(1)
    assert not deploying.is_alive(), lines
    assert time.monotonic() - killed_at < 60
    (failure,) = failures
    assert "the function of the smoke test died: Worker process died" in str(failure)
    assert "ROLLBACK" in str(failure)
    # more than one invocation, of which only the last died, and no word of the address that takes the answer
    log = _log(cloud)
    assert log.count("START RequestId") > log.count("Worker process died") == 1, log
    assert "cfn-response" not in log
    assert any("CREATE_FAILED" in line and "Custom::SlurmSmokeTest" in line for line in lines), "\n".join(lines)
