"""The project of four files that the README tells a new user to make."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SECTION = "### Test it before it costs anything"
_FILE = re.compile(r"^`(?P<name>[\w.]+)`[^\n]*\n(?:[^\n]+\n)*\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def _section() -> str:
    return (ROOT / "README.md").read_text().split(_SECTION)[1].split("\n## ")[0]


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {match["name"]: match["text"] for match in _FILE.finditer(_section())}


def commands() -> list[str]:
    """Return the command lines that run its tests."""
    (block,) = _CONSOLE.finditer(_section())
    return [line.removeprefix("$ ") for line in block["text"].splitlines()]


def write(folder: Path) -> None:
    """Make the project."""
    folder.mkdir()
    for name, text in files().items():
        (folder / name).write_text(text)
