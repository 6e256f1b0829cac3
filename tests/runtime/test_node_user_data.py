"""User data: frozen text, small, valid bash, and what it does on a machine."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_cluster import user_data
from slurm_cluster.model.flows import Role

GOLDEN = Path(__file__).with_name("golden")
WORST_PATH = f"/slurm-cluster/{'s' * 128}/{'a' * 56}"
"""200 characters; a stack's name ends at 128."""

FAKE_BOTO3 = """
import json, os, shutil
class Client:
    def get_parameter(self, Name):
        assert Name == "/slurm-cluster/stack/0f0f0f0f/bundle", Name
        return {"Parameter": {"Value": json.dumps({"bucket": "assets", "key": "dir/abc123.zip"})}}
    def download_file(self, bucket, key, target):
        if os.environ.get("NO_BUNDLE"):
            raise OSError("no route to\\nassets")
        assert (bucket, key) == ("assets", "dir/abc123.zip")
        shutil.copyfile(os.environ["BUNDLE"], target)
def client(service, region_name):
    assert region_name == "eu-central-1", region_name
    return Client()
"""

PROGRAM = """
import json, pathlib, sys
pathlib.Path(sys.argv[0]).parents[3].with_name("ran").write_text(json.dumps(sys.argv[1:]))
"""


def worst(role: Role = Role.WORKER) -> str:
    name = f"{'p' * 25}-static-99999" if role is Role.WORKER else None
    return user_data.render(parameter_path=WORST_PATH, role=role, node_name=name)


@pytest.mark.parametrize("role", list(Role))
def test_text_is_frozen(role: Role) -> None:
    """Changing it would stop and start every running node; a change is a deliberate one to golden/."""
    name = "cpu-static-1" if role is Role.WORKER else None
    text = user_data.render(parameter_path="/slurm-cluster/stack/0f0f0f0f", role=role, node_name=name)
    path = GOLDEN / f"user-data-{role.value}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("role", list(Role))
def test_it_is_under_4_kb_with_the_longest_values(role: Role) -> None:
    assert len(worst(role).encode()) < 4096


@pytest.mark.parametrize("role", list(Role))
def test_shellcheck_finds_nothing(role: Role, tmp_path: Path) -> None:
    script = tmp_path / "user-data.sh"
    script.write_text(worst(role))
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([checker, "--severity=style", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_cdk_tokens_stay_whole() -> None:
    token = "${Token[AWS.StackName.8]}"  # noqa: S105 - a CDK token, not a secret
    text = user_data.render(parameter_path=f"/slurm-cluster/{token}/0f0f0f0f", role=Role.HEAD, node_name=None)
    assert text.count(f"/slurm-cluster/{token}/0f0f0f0f") == 2


@pytest.mark.parametrize(("role", "name"), [(Role.WORKER, None), (Role.WORKER, ""), (Role.HEAD, "cpu-static-1")])
def test_only_workers_have_node_names(role: Role, name: str | None) -> None:
    with pytest.raises(ValueError, match="a worker has a node name and a head has none"):
        user_data.render(parameter_path="/p", role=role, node_name=name)


@pytest.fixture
def metadata_port() -> Iterator[int]:
    class Service(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer(self.path == "/latest/api/token", "TOKEN")

        def do_GET(self) -> None:
            known = self.headers["X-aws-ec2-metadata-token"] == "TOKEN"
            self._answer(known and self.path == "/latest/meta-data/placement/region", "eu-central-1")

        def _answer(self, fine: bool, text: str) -> None:
            self.send_response(200 if fine else 401)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def machine(root: Path, port: int) -> tuple[Path, dict[str, str]]:
    """Return the script with its paths moved below ``root``, and the environment that stands in for a machine."""
    text = user_data.render(parameter_path="/slurm-cluster/stack/0f0f0f0f", role=Role.WORKER, node_name="cpu-static-1")
    for path in ("/etc/slurm-cluster", "/opt/slurm-cluster", "/usr/local/sbin/slurm-cluster", "/dev/console"):
        text = text.replace(path, f"{root}{path}")
    text = text.replace("http://169.254.169.254", f"http://127.0.0.1:{port}").replace("time.sleep(10)", "pass")
    for directory in ("usr/local/sbin", "dev", "opt", "library"):
        (root / directory).mkdir(parents=True)
    (root / "library" / "boto3.py").write_text(FAKE_BOTO3)
    with zipfile.ZipFile(root / "bundle.zip", "w") as bundle:
        for name in ("slurm_cluster", "slurm_cluster/runtime", "slurm_cluster/runtime/node"):
            bundle.writestr(f"{name}/__init__.py", "")
        bundle.writestr("slurm_cluster/runtime/node/__main__.py", PROGRAM)
    script = root / "user-data.sh"
    script.write_text(text)
    return script, {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(root / "library"),
        "BUNDLE": str(root / "bundle.zip"),
    }


def test_it_unpacks_the_bundle_and_runs_bootstrap(tmp_path: Path, metadata_port: int) -> None:
    script, environment = machine(tmp_path, metadata_port)
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "etc/slurm-cluster/node.json").read_text()) == {
        "parameter_path": "/slurm-cluster/stack/0f0f0f0f",
        "role": "worker",
        "node_name": "cpu-static-1",
    }
    assert (tmp_path / "opt/slurm-cluster/current").readlink() == Path("abc123")
    assert json.loads((tmp_path / "opt/slurm-cluster/ran").read_text()) == ["bootstrap"]
    assert not (tmp_path / "dev/console").exists()


def test_a_failure_is_one_line_on_the_console(tmp_path: Path, metadata_port: int) -> None:
    script, environment = machine(tmp_path, metadata_port)
    done = subprocess.run(
        ["bash", script], env={**environment, "NO_BUNDLE": "1"}, capture_output=True, text=True, check=False
    )
    line = "slurm-cluster: FAILED step=user-data:bundle reason=the node bundle cannot be fetched: no route to assets"
    assert done.returncode == 1
    assert [text.strip() for text in (tmp_path / "dev/console").read_text().splitlines()] == [line]
    assert [text.strip() for text in done.stderr.splitlines()] == [line]


def test_an_unforeseen_failure_names_its_command(tmp_path: Path, metadata_port: int) -> None:
    script, environment = machine(tmp_path, metadata_port)
    (tmp_path / "etc").write_text("a file where a directory must be")
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "step=user-data:start reason=line 10: install -d " in (tmp_path / "dev/console").read_text()


def test_it_installs_boto3_with_patience_where_the_image_has_none(tmp_path: Path, metadata_port: int) -> None:
    script, environment = machine(tmp_path, metadata_port)
    script.write_text(script.read_text().replace("sleep 15", "true"))
    (tmp_path / "library" / "boto3.py").rename(tmp_path / "boto3.py")
    programs = tmp_path / "programs"
    programs.mkdir()
    log = tmp_path / "apt.log"
    # The mirror fails twice; installing puts the library in place.
    (programs / "apt-get").write_text(
        f'#!/bin/bash\necho "$DEBIAN_FRONTEND $*" >> {log}\n'
        f"[ $(wc -l < {log}) -gt 2 ] || exit 100\n"
        f'case "$*" in *install*) mv {tmp_path}/boto3.py {tmp_path}/library/ ;; esac\n'
    )
    for name in ("systemctl", "dpkg"):
        (programs / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {tmp_path}/other.log\n')
    # Without site-packages: a boto3 of the testing machine must not be found.
    (programs / "python3").write_text(f'#!/bin/bash\nexec {sys.executable} -S "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    assert len([call for call in calls if call.endswith(" update")]) == 3
    assert calls[-1].endswith("install --no-install-recommends python3-boto3")
    assert all(call.startswith("noninteractive ") and "DPkg::Lock::Timeout=600" in call for call in calls)
    assert "systemctl stop apt-daily.timer" in (tmp_path / "other.log").read_text()
