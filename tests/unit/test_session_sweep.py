import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_cluster.rehearsal import paths, sweep
from slurm_cluster.rehearsal.ownership import SESSION_VARIABLE
from slurm_cluster.rehearsal.paths import SessionPaths


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionPaths:
    """A session of which nothing can be in the kernel, as its id is none that a session gets."""
    monkeypatch.setattr(paths, "STATE_ROOT", tmp_path)
    monkeypatch.setattr(paths, "_SESSION", re.compile("test"))
    return SessionPaths("test")


def test_processes_are_known_by_their_environment_and_are_killed(session: SessionPaths) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    own = subprocess.Popen(sleep, env={**os.environ, SESSION_VARIABLE: "test"})
    other = subprocess.Popen(sleep, env={**os.environ, SESSION_VARIABLE: "test2"})
    session.root.mkdir()
    try:
        found = sweep.find(session)
        assert [line for line in found if line.startswith("process ")] == [f"process {own.pid}: {' '.join(sleep)}"]
        assert f"directory {session.root}" in found
        assert sweep.remove(session) == []
        assert own.wait(5) == -9
        assert other.poll() is None
        assert not session.root.exists()
    finally:
        other.kill()
        other.wait()
