"""The command line: what it understands, and what it refuses before anything is begun."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal import cli, detached, owner, visit
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.interrupts import Interrupted
from slurm_cluster.rehearsal.owner import Plan, Verb


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Plan]]:
    """Plans that were performed, here or by a process of their own."""
    seen: list[tuple[str, Plan]] = []

    def here(plan: Plan, say: Callable[[str], None]) -> None:
        seen.append(("here", plan))

    def apart(plan: Plan, show: Callable[[str], None]) -> int:
        seen.append(("detached", plan))
        return 5

    monkeypatch.setattr(owner, "perform", here)
    monkeypatch.setattr(detached, "perform", apart)
    return seen


def test_run_is_done_here_with_absolute_paths(
    performed: list[tuple[str, Plan]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    words = ["run", "--app", "app", "-c", "a=1", "-c", "b=x=y", "--image", "stock", "--json", "r.json"]
    assert cli.main(words) == 0
    ((where, plan),) = performed
    assert where == "here"
    assert (plan.verb, plan.app_dir, plan.json) == (Verb.RUN, tmp_path / "app", tmp_path / "r.json")
    assert (plan.context, plan.image, plan.timeline) == ({"a": "1", "b": "x=y"}, ImageKind.STOCK, None)


@pytest.mark.parametrize("words", [["up"], ["run", "--keep-on-failure"]])
def test_what_may_stay_is_done_by_a_process_of_its_own(performed: list[tuple[str, Plan]], words: list[str]) -> None:
    assert cli.main(words) == 5
    ((where, plan),) = performed
    assert (where, plan.hours) == ("detached", 12)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["run", "-c", "novalue"],
        ["run", "--image", "other"],
        ["up", "--hours", "0"],
        ["up", "--hours", "nan"],
        ["exec", "head"],
        ["exec", "head", "--"],
        ["exec", "head", "--session", "0a1b", "--", "sinfo"],
        ["exec", "head", "-u", "admin", "sinfo"],
        ["shell"],
    ],
)
def test_wrong_arguments_end_with_2(words: list[str], performed: list[tuple[str, Plan]]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert performed == []


@pytest.mark.parametrize("file", ["nosuch/report.json", "."])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_begun(
    file: str, performed: list[tuple[str, Plan]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "--json", file]) == 1
    assert "cannot be written: give a file in a directory that exists" in capsys.readouterr().err
    assert performed == []


def test_the_report_of_an_earlier_run_is_not_left_for_one_that_ends_before_its_own(
    performed: list[tuple[str, Plan]], tmp_path: Path
) -> None:
    for name in ("report.json", "timeline.svg"):
        (tmp_path / name).write_text('{"passed": true}')
    words = ["run", "--json", str(tmp_path / "report.json"), "--timeline", str(tmp_path / "timeline.svg")]
    assert cli.main(words) == 0
    assert list(tmp_path.iterdir()) == []
    assert cli.main(["run", "--json", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(("error", "status"), [(Interrupted(15), 143), (RuntimeError("why"), 1)])
def test_how_it_ended_is_the_exit_status(
    error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(owner, "perform", fail)
    assert cli.main(["run"]) == status
    assert capsys.readouterr().err.startswith("rehearsal ")


@pytest.mark.parametrize(
    ("words", "user", "program"),
    [
        (["exec", "head", "--", "srun", "-N2", "hostname"], "root", ["srun", "-N2", "hostname"]),
        (["exec", "-u", "admin", "head", "sinfo"], "admin", ["sinfo"]),
        (["exec", "head", "--", "echo", "--", "-u"], "root", ["echo", "--", "-u"]),
        (["shell", "head"], "root", []),
    ],
)
def test_the_program_is_everything_after_the_node(
    words: list[str], user: str, program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    class Session:
        def machine(self, node: str) -> argparse.Namespace:
            seen.append(node)
            return argparse.Namespace(pid1=42)

    monkeypatch.setattr(cli, "choose", lambda session: Session())

    def enter(*given: object) -> int:
        seen.extend(given)
        return 9

    monkeypatch.setattr(visit, "enter", enter)
    assert cli.main(words) == 9
    assert seen == ["head", 42, user, program]


@pytest.mark.parametrize(
    ("user", "program", "terminal", "ends"),
    [
        ("root", ["sinfo", "-N"], False, ["sinfo", "-N"]),
        ("admin", ["sinfo"], False, ["runuser", "-u", "admin", "--", "sinfo"]),
        ("admin", [], False, ["runuser", "-l", "admin"]),
        ("root", [], False, ["env", "HOME=/root", "bash", "--login"]),
        (
            "root",
            ["echo", "a b"],
            True,
            ["env", "TERM=xterm", "script", "--quiet", "--return", "--command", "echo 'a b'", "/dev/null"],
        ),
    ],
)
def test_how_a_node_is_entered(
    user: str, program: list[str], terminal: bool, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
        ran.append(argv)
        return subprocess.CompletedProcess(argv, -15)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("TERM", "xterm")
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)
    assert visit.enter(4242, user, program) == 143
    assert ran[0][: ran[0].index("sh")][:2] == ["nsenter", "--target=4242"]
    assert ran[0][-len(ends) :] == ends
