"""docs/fault_matrix.md: which verdicts a live cluster with each fault got."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.runtime.verdict import Code

PAGE = Path(__file__).parents[2] / "docs" / "fault_matrix.md"
FIRST_MARK, OTHER_MARK = "●", "○"

_INTRODUCTION = """\
# Faults and verdicts

Each fault was made on a live cluster of a head and three workers, named by who was asked within 90 seconds, and mended;
then jobs ran on every worker again. Some were there together, each on a machine or in a flow of its own.
`pytest tests/rehearsal/test_fault_matrix.py --write-fault-matrix` does it anew and writes this page; with `-k` it does
some of it, and the rows of the others stay.

| fault | asked | verdict | about |
|---|---|---|---|
"""
_TABLE = """
The same as a confusion table: {first} is the verdict that was given first of the fault's machine, {other} one that was
given besides. A column is the verdict of that number; those that blame the network are the first ones.

{legend}

"""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What was said of a fault.

    Args:
        asked: who said it.
        node: the machine that the first verdict names.
        codes: verdicts, in their order.
    """

    asked: str
    node: str
    codes: tuple[Code, ...]


def page(said: Mapping[str, Said], columns: Sequence[Code]) -> str:
    """Return the page.

    Args:
        said: by the fault's name.
        columns: verdicts in the order of their columns.
    """
    numbers = {code: number for number, code in enumerate(columns, 1)}
    rows = [
        f"| {name} | {item.asked} | `{item.codes[0]}` | {item.node or 'the cluster'} |" for name, item in said.items()
    ]
    legend = ", ".join(f"{number} `{code}`" for code, number in numbers.items())
    table = [
        f"| fault | {' | '.join(map(str, numbers.values()))} |",
        f"|---|{'---|' * len(numbers)}",
        *(f"| {name} | {' | '.join(_mark(item, code) for code in numbers)} |" for name, item in said.items()),
    ]
    text = _TABLE.format(first=FIRST_MARK, other=OTHER_MARK, legend=legend)
    return _INTRODUCTION + "\n".join(rows) + "\n" + text + "\n".join(table) + "\n"


def read(text: str) -> dict[str, Said]:
    """Return what a page says, by the fault's name."""
    columns = [Code(code) for code in re.findall(r"\d+ `([a-z-]+)`", text)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    marks = {row[0]: row[1:] for row in rows if len(row) == len(columns) + 1 and row[0] != "fault"}
    found = {}
    for name, asked, first, node in (row for row in rows if len(row) == 4 and row[0] in marks):
        others = (code for code, mark in zip(columns, marks[name], strict=True) if mark == OTHER_MARK)
        codes = (Code(first.strip("`")), *others)
        found[name] = Said(asked=asked, node="" if node == "the cluster" else node, codes=codes)
    return found


def _mark(said: Said, code: Code) -> str:
    if code == said.codes[0]:
        return FIRST_MARK
    return OTHER_MARK if code in said.codes else " "
