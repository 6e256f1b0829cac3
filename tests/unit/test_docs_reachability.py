"""docs/reachability.md: its template gives its output and its picture, and it names what the code has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from scripts import reachability_page
from slurm_cluster.reachability import command_line, live

TEXT = reachability_page.PAGE.read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slurm.yaml").write_text(reachability_page.template(TEXT))


def test_page_is_not_stale() -> None:
    assert reachability_page.page(TEXT) == TEXT
    assert reachability_page.drawing(TEXT) == reachability_page.PICTURE.read_text()


def test_output_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    command, shown = BLOCKS[0].split("\n", 1)
    assert command == "$ python -m slurm_cluster.reachability slurm.yaml"
    assert command_line.main(["slurm.yaml"]) == 1
    assert shown == capsys.readouterr().out


def test_commands_on_the_template_run_and_the_picture_is_theirs() -> None:
    lines = [line for block in BLOCKS for line in block.splitlines() if "slurm.yaml --format" in line]
    assert len(lines) == 3
    for line in lines:
        assert command_line.main(shlex.split(line)[4:]) == 1
    assert Path("reachability.svg").read_text() == reachability_page.PICTURE.read_text()


def test_every_option_is_told_and_no_other() -> None:
    known = {option for action in command_line._parser()._actions for option in action.option_strings}
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT))
    assert told == known - {"-h", "--help"}


def test_permissions_are_those_of_the_code() -> None:
    assert live.__doc__
    needed = {word for word in live.__doc__.split() if word.startswith(("ec2:", "cloudformation:"))}
    assert set(re.findall(r"^(?:ec2|cloudformation):\w+$", TEXT, re.MULTILINE)) == needed
