import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_cluster.rehearsal import ownership, paths
from slurm_cluster.rehearsal.ownership import abandoned, claim, living, owner


@pytest.fixture(autouse=True)
def state_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "STATE_ROOT", tmp_path)
    monkeypatch.setattr(ownership, "STATE_ROOT", tmp_path)
    return tmp_path


def test_a_living_owner_keeps_its_session(state_root: Path) -> None:
    owned = claim()
    assert list(abandoned()) == []
    owned.release()
    assert list(state_root.iterdir()) == []


def test_an_owner_is_known_to_others_while_it_lives() -> None:
    owned = claim()
    assert (owner(owned.paths), living()) == (os.getpid(), {owned.paths.session: os.getpid()})
    owned.release()
    assert (owner(owned.paths), living()) == (None, {})


def test_two_sessions_at_once_have_two_ids() -> None:
    first, second = claim(), claim()
    assert first.paths.session != second.paths.session
    first.release()
    second.release()


def test_a_killed_owner_abandons_its_session_even_if_its_child_lives(state_root: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time; from pathlib import Path\n"
            "from slurm_cluster.rehearsal import ownership, paths\n"
            "paths.STATE_ROOT = ownership.STATE_ROOT = Path(sys.argv[1])\n"
            "owned = ownership.claim()\n"
            "child = subprocess.Popen(['sleep', '60'])\n"
            "print(owned.paths.session, child.pid, flush=True)\n"
            "time.sleep(60)",
            str(state_root),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    session, child = process.stdout.readline().split()
    try:
        assert list(abandoned()) == []
        assert living() == {session: process.pid}
        process.kill()
        process.wait()
        assert living() == {}
        (owned,) = abandoned()
        assert owned.paths.session == session
        assert list(abandoned()) == [], "its finder owns it now"
        assert owner(owned.paths) is None, "who removes what it left is not to be told to end"
        owned.release()
        assert not list(state_root.iterdir())
    finally:
        os.kill(int(child), 9)
        process.stdout.close()


def test_other_files_are_nobodys_session(state_root: Path) -> None:
    (state_root / "readme.lock").touch()
    assert list(abandoned()) == []
