"""The command that starts an owner: shows what it says, ends with its outcome, and leaves it alive."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_cluster.rehearsal import detached
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.owner import Plan, Verb

PLAN = Plan(
    verb=Verb.UP,
    app_dir=Path("/app"),
    context={},
    image=ImageKind.BAKED,
    keep_on_failure=False,
    json=None,
    timeline=None,
    hours=1,
)
HEAD = "import os, pathlib, signal, sys, time\nplan, outcome = sys.argv[1], int(sys.argv[2])\n"


@pytest.fixture
def perform_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, str]]:
    """Perform the plan by a program in the owner's place; return the exit status and what was shown."""

    def perform(program: str) -> tuple[int, str]:
        (tmp_path / "stand_in.py").write_text(HEAD + program)
        monkeypatch.setattr(detached, "owner", SimpleNamespace(__name__="stand_in"))
        monkeypatch.setattr(detached, "_PACKAGE_ROOT", tmp_path)
        shown: list[str] = []
        return detached.perform(PLAN, shown.append), "".join(shown)

    return perform


def test_an_owner_that_ends_is_shown_to_its_last_line_with_its_status(
    perform_with: Callable[[str], tuple[int, str]],
) -> None:
    code, shown = perform_with("print('one'); print(plan, file=sys.stderr); print('last'); sys.exit(3)")
    assert code == 3
    assert shown.splitlines()[::2] == ["one", "last"]
    assert Plan.from_text(shown.splitlines()[1]) == PLAN


@pytest.mark.parametrize("told", [0, 1])
def test_an_owner_that_lives_on_is_left_alone_in_a_session_of_its_own(
    perform_with: Callable[[str], tuple[int, str]], tmp_path: Path, told: int
) -> None:
    code, shown = perform_with(
        f"""print(os.getpid(), flush=True)
os.write(outcome, b"{told}\\n")
os.close(outcome)
while not pathlib.Path("end").exists():
    time.sleep(0.05)
print("nobody reads this any more", flush=True)
pathlib.Path("ended").touch()
"""
    )
    assert code == told
    pid = int(shown)
    assert os.getsid(pid) == pid
    (tmp_path / "end").touch()
    deadline = time.monotonic() + 20
    while not (tmp_path / "ended").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.waitpid(pid, 0)


def test_a_killed_owner_is_a_failure(perform_with: Callable[[str], tuple[int, str]]) -> None:
    code, shown = perform_with("print('begun', flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    assert (code, shown) == (137, "begun\nrehearsal killed by signal 9; the next one removes what it left\n")


def test_ctrl_c_is_for_the_owner(perform_with: Callable[[str], tuple[int, str]], tmp_path: Path) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 20
        while not (tmp_path / "waiting").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    code, shown = perform_with(
        """def stop(*_):
    print("removed", flush=True)
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
pathlib.Path("waiting").touch()
time.sleep(20)
"""
    )
    assert (code, shown) == (130, "removed\n")
    assert signal.getsignal(signal.SIGINT) is before
