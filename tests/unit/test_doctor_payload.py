"""The doctor as one file, and the script that carries it to workers with and without Python."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.doctor import payload
from tests.unit.test_project_imports import imported, is_within

LOOPBACK = "127.0.0.1"
TOOLS = (
    *("sh", "bash", "sed", "awk", "tr", "timeout", "stat", "df", "paste", "sort", "head", "uname", "date", "getent"),
    *("cat", "gzip", "base64", "sleep", "grep", "env"),
)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("carried") / "slurm-doctor.pyz"
    path.write_bytes(payload.application())
    return path


def test_it_is_the_same_file_each_time() -> None:
    assert payload.application() == payload.application()


def test_it_holds_all_that_it_imports_and_nothing_but_the_standard_library() -> None:
    with zipfile.ZipFile(io.BytesIO(payload.archive())) as archive:
        held = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in held}
    root = Path(__file__).parents[2]
    missing = [
        (name, module)
        for name in held
        if name.startswith(("slurm_cluster/doctor", "slurm_cluster/runtime", "slurm_cluster/model"))
        for module in imported(root / name)
        # boto3 is made use of where it is
        if module.split(".")[0] not in {*sys.stdlib_module_names, "boto3", "botocore"}
        and not is_within(module, modules - {"slurm_cluster", "slurm_cluster.runtime", "slurm_cluster.runtime.node"})
        and module not in modules
        # only asked for on machines of this package, which have it and boto3
        and module.rpartition(".")[0] != "slurm_cluster.runtime.node"
        and not module.startswith("slurm_cluster.runtime.node.aws")
    ]
    assert missing == []


def test_its_start_is_readable_to_old_pythons() -> None:
    with zipfile.ZipFile(io.BytesIO(payload.archive())) as archive:
        ast.parse(archive.read("__main__.py").decode(), feature_version=(3, 6))


def test_it_runs_from_its_one_file(application: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", application, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "exit status: 0 healthy; 1 a fault was found; 2" in done.stdout


def test_where_there_is_no_slurm_it_cannot_tell(application: Path, tmp_path: Path) -> None:
    environment = {"PATH": f"{tmp_path}", "SLURM_CONF": str(tmp_path / "slurm.conf")}
    done = subprocess.run(
        [sys.executable, "-I", "-S", application, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(done.stdout)
    assert done.returncode in (1, 2), done.stderr
    assert {fault["code"] for fault in report["faults"]} <= {"slurmctld-down", "munge-down"}


def request(port: int, silent: int) -> dict[str, str]:
    return {
        "DOCTOR_NODE": "n1",
        "DOCTOR_HEAD": LOOPBACK,
        "DOCTOR_SECONDS": "2",
        "DOCTOR_LISTEN": "",
        "DOCTOR_WATCH": "",
        "DOCTOR_RESOLVE": "localhost no-such-name.invalid",
        "DOCTOR_CREDENTIAL": "MUNGE:AwQFAAC:",
        "DOCTOR_SPOOL": "",
        "DOCTOR_CONF": "",
        "DOCTOR_SRUN": "",
        "DOCTOR_LOG": "",
        "DOCTOR_CONNECT": f"{LOOPBACK}:{port} {LOOPBACK}:1 {LOOPBACK}:{silent}",
    }


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """One that accepts, and one that answers no SYN as its queue is full."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.socket() as full:
        full.bind((LOOPBACK, 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield server.getsockname()[1], full.getsockname()[1]
        for one in waiting:
            one.close()


def run(script: str, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    path = folder / "slurm_script"
    path.write_text(script)
    done = subprocess.run(["/bin/sh", path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def outcomes(found: dict[str, Any]) -> list[str]:
    return sorted(item["outcome"] for item in found["meet"]["meeting"]["connections"])


def test_a_worker_answers_by_python(ports: tuple[int, int], tmp_path: Path) -> None:
    folder = str(Path(sys.executable).resolve().parent)
    found = run(payload.script(request(*ports)), tmp_path, {"PATH": f"{folder}:{os.environ['PATH']}"})
    assert outcomes(found) == ["open", "refused", "timeout"]
    assert LOOPBACK in found["meet"]["names"]["localhost"]["addresses"]
    assert found["facts"]["hostname"] == socket.gethostname()
    assert found["facts"]["hung"] == []
    assert isinstance(found["meet"]["meeting"]["watching"], bool)


def test_a_worker_without_python_answers_by_bash_with_the_same_members(ports: tuple[int, int], tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in TOOLS:
        if where := shutil.which(tool):
            (tools / tool).symlink_to(where)
    script = re.sub(r"^PATH=.*$", f"PATH={tools}", payload.script(request(*ports)), count=1, flags=re.MULTILINE)
    found = run(script, tmp_path, {"PATH": str(tools)})
    assert outcomes(found) == ["open", "refused", "timeout"]
    assert LOOPBACK in found["meet"]["names"]["localhost"]["addresses"]
    assert found["meet"]["names"]["no-such-name.invalid"]["addresses"] == []
    assert found["facts"]["hostname"] == os.uname().nodename
    assert found["facts"]["disks"]
    assert {"path", "mount", "available", "size", "inodes_free", "inodes"} == set(found["facts"]["disks"][0])
    assert found["meet"]["meeting"]["watching"] is False
    assert found["meet"]["credential"]["decoded"] is False


def test_the_script_is_short_enough_for_slurm() -> None:
    # max_script_size, slurm.conf(5) SchedulerParameters: 4 megabytes
    assert len(payload.script(request(1, 2))) < 400_000
