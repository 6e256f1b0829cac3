"""The one file that knows ministack's private names notices when one has moved; the process ends with its parent."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_cluster.rehearsal.cloud import server
from slurm_cluster.rehearsal.cloud.environment import REQUIREMENTS, ministack_python
from slurm_cluster.rehearsal.paths import cache_dir

_CLOUD = Path(server.__file__).parent
_ADAPTER = _CLOUD / "adapter.py"
_PROJECT = _CLOUD.parents[2]


@pytest.fixture(scope="module")
def python() -> Path:
    return ministack_python(cache_dir())


def _run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in ministack's environment, where ``adapter`` is the adapter and ``module(name)`` imports."""
    prepared = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('adapter', {str(_ADAPTER)!r})\n"
        "adapter = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(adapter)\n"
        "from importlib import import_module as module\n"
    )
    return subprocess.run([str(python), "-P", "-c", prepared + code], capture_output=True, text=True, check=False)


def test_the_adapter_fits_the_pinned_ministack(python: Path) -> None:
    done = subprocess.run([str(python), "-P", str(_ADAPTER), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert f"ministack=={answer['ministack']}\n" in REQUIREMENTS.read_text()
    assert answer["private_names"] > 40


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("del module('ministack.services.ec2')._ACTION_MAP", "ministack.services.ec2._ACTION_MAP is missing"),
        ("module('ministack.services.ec2')._volumes = ()", "ministack.services.ec2._volumes is a tuple, expected a"),
        (
            "module('ministack.core.iam_evaluator').enforce = lambda key, action: None",
            "ministack.core.iam_evaluator.enforce takes ('key', 'action'), expected ('access_key_id',",
        ),
        ("adapter.VERSION = '9.9.9'", "ministack is 1.5.33, this adapter was written for 9.9.9"),
    ],
)
def test_a_private_name_that_moved_ends_the_start_by_its_name(python: Path, change: str, problem: str) -> None:
    done = _run(python, f"{change}\nsys.argv = ['adapter', '--port', '1']\nsys.exit(adapter.main())")
    assert done.returncode == 1
    assert problem in done.stderr


def test_every_private_name_in_use_is_checked() -> None:
    """Every attribute with a leading underscore of a ministack module is one of PRIVATE_NAMES."""
    source = ast.parse(_ADAPTER.read_text())
    modules = {"app", "ec2", "ssm", "iam", "provisioners", "stacks", "evaluator", "iam_actions", "responses"}
    used = {
        node.attr
        for node in ast.walk(source)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr in modules
    }
    checked = {
        node.value
        for node in ast.walk(source)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    }
    assert len(used) > 25
    assert used <= checked, f"not in PRIVATE_NAMES: {sorted(used - checked)}"


def test_no_other_file_imports_ministack() -> None:
    importing = [
        path.name
        for path in _PROJECT.joinpath("slurm_cluster").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(name.split(".")[0] == "ministack" for name in (getattr(node, "module", None) or "", *_names(node)))
    ]
    assert importing == []  # the adapter loads it by name, after its environment is set


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names]


def test_the_process_listens_on_loopback_and_ends_when_its_parent_is_killed(tmp_path: Path, python: Path) -> None:
    code = (
        "import time, sys\n"
        "from pathlib import Path\n"
        "from slurm_cluster.rehearsal.cloud.server import Cloud\n"
        f"cloud = Cloud(Path({str(tmp_path)!r}), Path({str(tmp_path / 'nodes')!r}), cache=Path({str(cache_dir())!r}))\n"
        "cloud.start()\n"
        "print(cloud.port, cloud._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(_PROJECT)}
    )
    assert parent.stdout is not None
    port, process = (int(word) for word in parent.stdout.readline().split())
    assert _listening(port) == {"0100007F"}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{process}").exists() and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "ministack outlives its parent"
        time.sleep(0.05)
    parent.stdout.close()


def _listening(port: int) -> set[str]:
    """Return the local addresses, as /proc/net/tcp has them, of the listeners on a port."""
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return {row[1].partition(":")[0] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}
