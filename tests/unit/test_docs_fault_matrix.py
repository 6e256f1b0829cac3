"""docs/fault_matrix.md has the faults that are tested, each with the verdict that its test wants."""

from __future__ import annotations

import re

from slurm_cluster.model.flows import Role, SlurmPorts, cluster_flows
from slurm_cluster.runtime.node.bootstrap import STEPS
from slurm_cluster.runtime.verdict import Code
from slurm_cluster.user_data import render
from tests.rehearsal.confusion_table import FIRST_MARK, PAGE, Said, page, read
from tests.rehearsal.fault_matrix import FAULTS, ROUNDS

TEXT = PAGE.read_text()
KNOWN = read(TEXT)


def test_the_page_is_that_of_the_table_of_faults() -> None:
    expected = {
        fault.name: Said(asked=one.asked, node=fault.node, codes=(fault.code, *KNOWN[fault.name].codes[1:]))
        for one in ROUNDS
        for fault in one.faults
    }
    columns = [Code(code) for code in re.findall(r"\d+ `([a-z-]+)`", TEXT)]
    assert page(expected, columns) == TEXT, "run pytest tests/rehearsal/test_fault_matrix.py --write-fault-matrix"


def test_nothing_is_said_besides_but_what_the_table_allows() -> None:
    for fault in FAULTS:
        assert set(KNOWN[fault.name].codes[1:]) <= set(fault.besides)


def test_each_fault_has_one_verdict() -> None:
    marks = [line.count(FIRST_MARK) for line in TEXT.splitlines() if FIRST_MARK in line and line[:2] == "| "]
    assert marks == [1] * len(FAULTS)
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_every_step_of_a_boot_fails_once() -> None:
    steps = {name for role in STEPS.values() for name, _ in role} | {"bundle"}
    user_data = render(parameter_path="/p", role=Role.HEAD, node_name=None)
    steps |= {f"user-data:{name}" for name in re.findall(r"^step=(\S+)$", user_data, re.MULTILINE)}
    failing = {found[1] for fault in FAULTS if (found := re.search(r"step ([a-z:-]+): ", fault.words))}
    assert failing - {"cloud-init"} == steps


def test_every_flow_is_closed_once() -> None:
    flows = {flow.id for flow in cluster_flows(SlurmPorts())} - {"mpi"}  # those of the message tree and of srun are it
    assert {fault.name for fault in FAULTS} >= {f"{flow} closed" for flow in flows}
