"""The Python environment of ministack: its own, because ministack pins botocore."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("ministack-requirements.txt")
_BUILD_SECONDS = 600


def ministack_python(cache: Path, log: Callable[[str], None] = lambda line: None) -> Path:
    """Return the Python interpreter that has ministack; make its environment when there is none yet.

    The environment is keyed by its requirements and the interpreter, and appears in the cache only when it is whole.

    Args:
        cache: directory that rehearsals share.
        log: told when an environment has to be made, which needs the package index.

    Raises:
        RuntimeError: the packages could not be installed; the message ends with pip's.
    """
    key = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    home = cache / f"ministack-{key}"
    python = home / "bin" / "python"
    if python.exists():
        return python
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "ministack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not python.exists():
            log("making the Python environment of ministack")
            draft = cache / "ministack.building"
            shutil.rmtree(draft, ignore_errors=True)  # what a killed build left; nobody else builds now
            _run([sys.executable, "-m", "venv", str(draft)])
            _run(
                [
                    *(str(draft / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"),
                    *("--disable-pip-version-check", "--requirement", str(REQUIREMENTS)),
                ]
            )
            draft.rename(home)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:] or done.stdout[-2000:]}")
