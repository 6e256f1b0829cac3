"""docs/fault_matrix.md has the faults that are tested, each with the verdict that its test wants."""

from __future__ import annotations

import re

from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from slurm_cluster.runtime.verdict import Code
from tests.rehearsal.confusion_table import FIRST_MARK, OTHER_MARK, PAGE, Said, page
from tests.rehearsal.fault_matrix import FAULTS, ROUNDS

TEXT = PAGE.read_text()
COLUMNS = {int(number): code for number, code in re.findall(r"(\d+) `([a-z-]+)`", TEXT)}


def _rows() -> dict[str, list[str]]:
    wanted = len(COLUMNS) + 1
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in cells if len(row) == wanted and row[0] != "fault"}


def test_the_page_is_that_of_the_table_of_faults() -> None:
    expected = {
        fault.name: Said(
            asked=one.asked, node=fault.node, codes=(fault.code, *(Code(code) for code in _others(fault.name)))
        )
        for one in ROUNDS
        for fault in one.faults
    }
    assert page(expected, [Code(code) for code in COLUMNS.values()]) == TEXT, (
        "run pytest tests/rehearsal/test_fault_matrix.py --write-fault-matrix"
    )


def _others(name: str) -> list[str]:
    return [COLUMNS[number] for number, mark in enumerate(_rows()[name], 1) if mark == OTHER_MARK]


def test_nothing_is_said_besides_but_what_the_table_allows() -> None:
    for fault in FAULTS:
        assert set(_others(fault.name)) <= set(fault.besides)


def test_each_fault_has_one_verdict() -> None:
    for name, marks in _rows().items():
        assert marks.count(FIRST_MARK) == 1, name
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_every_flow_is_closed_once() -> None:
    flows = {flow.id for flow in cluster_flows(SlurmPorts())} - {"mpi"}  # those of the message tree and of srun are it
    assert {fault.name for fault in FAULTS} >= {f"{flow} closed" for flow in flows}
