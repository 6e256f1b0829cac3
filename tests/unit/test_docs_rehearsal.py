"""docs/rehearsal.md names every command and option of the rehearsal, and none that is not there."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from slurm_cluster.rehearsal import cli
from slurm_cluster.rehearsal.image.recipe import AGENT_KEY_FILE
from slurm_cluster.rehearsal.paths import CACHE_VARIABLE

TEXT = (Path(__file__).parents[2] / "docs" / "rehearsal.md").read_text()


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = cli._parser()._actions
    (found,) = (action.choices for action in actions if isinstance(action, argparse._SubParsersAction))
    return dict(found)


def options() -> Iterator[str]:
    for parser in commands().values():
        for action in parser._actions:
            yield from (option for option in action.option_strings if option.startswith("--") and option != "--help")


def test_every_command_and_option_is_told() -> None:
    assert [name for name in commands() if f"`{name}" not in TEXT and f"rehearsal {name}" not in TEXT] == []
    assert [option for option in options() if option not in TEXT] == []


def test_no_other_option_is_told() -> None:
    theirs = {"--latest", "--instance-id"}  # of the AWS CLI
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - set(options()) == theirs


def test_names_are_those_of_the_code() -> None:
    assert AGENT_KEY_FILE in TEXT
    assert CACHE_VARIABLE in TEXT
    assert f"{cli._DEFAULT_HOURS:g} by default" in TEXT
