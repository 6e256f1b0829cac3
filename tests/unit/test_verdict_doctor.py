"""What slurm-doctor on the head says becomes part of the smoke test's verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slurm_cluster.doctor.probes import Row
from slurm_cluster.doctor.report import Report
from slurm_cluster.runtime import host_faults, verdict
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Evidence
from slurm_cluster.runtime.probe_plan import DOCTOR_ID
from slurm_cluster.runtime.verdict import Code, Verdict, diagnose, findings
from tests.unit.verdict_cases import ADDRESSES, FIRST, SECOND, STOPPED_UNIT, Case


def fault(code: Code, node: str, layer: int = 0) -> Verdict:
    return Verdict(code=code, node=node, sentence="the doctor's words.", change="mend it", layer=layer)


def asked(*faults: Verdict, case: Case | None = None, **answer: Any) -> Evidence:
    """Return the evidence of a smoke test that failed, with what the doctor printed."""
    rows: list[Row] = []
    report = Report(faults=faults, rows=rows, notes=(), seconds=1).to_dict()
    return (case or Case()).evidence().with_answers({DOCTOR_ID: {**report, **answer}})


def test_what_the_doctor_alone_found_is_the_verdict() -> None:
    found = diagnose(asked(fault(Code.SLURMD_HUNG, SECOND)))
    assert (found.code, found.node, found.sentence) == (Code.SLURMD_HUNG, SECOND, "the doctor's words.")
    assert found.reason.startswith("slurmd-hung: the doctor's words. mend it")


def test_of_the_probes_and_the_doctor_the_more_fundamental_finding_is_first() -> None:
    case = Case()
    case.facts[FIRST]["slurm"] = STOPPED_UNIT
    own = diagnose(case.evidence())
    assert own.code is Code.SLURMD_DOWN
    for layer, first in ((own.layer - 1, Code.CONFIG_DIFFERS), (own.layer + 1, Code.SLURMD_DOWN)):
        assert diagnose(asked(fault(Code.CONFIG_DIFFERS, FIRST, layer), case=case)).code is first


def test_what_both_found_is_said_once_with_the_security_groups_that_the_probes_know() -> None:
    case = Case()
    case.drop(FIRST, HEAD)
    own = findings(case.evidence())
    again = [fault(item.code, item.node, item.layer) for item in own]
    assert findings(asked(*again, case=case)) == own
    assert "sg-0a" in own[0].sentence + own[0].change


def test_a_symptom_that_the_doctor_explains_is_no_finding() -> None:
    case = Case()
    case.facts[FIRST]["slurm"] = STOPPED_UNIT
    found = findings(asked(fault(Code.DAEMON_START_FAILED, FIRST), case=case))
    assert [item.code for item in found if item.node == FIRST] == [Code.DAEMON_START_FAILED]


def test_a_machine_that_is_not_in_question_is_not_why_the_test_failed() -> None:
    evidence = asked(fault(Code.NODE_DOWN, "cpu-static-9"))
    assert diagnose(evidence).code is Code.UNKNOWN
    assert diagnose(asked(fault(Code.SRUN_SILENT, ""))).code is Code.SRUN_SILENT


def test_a_doctor_of_another_release_or_without_an_answer_takes_nothing_from_the_probes() -> None:
    case = Case()
    case.facts[FIRST]["slurm"] = STOPPED_UNIT
    own = findings(case.evidence())
    known = fault(Code.NODE_DOWN, FIRST).to_dict()
    strange: list[Any] = [
        {**known, "code": "of-the-future"},
        {name: value for name, value in known.items() if name != "layer"},
        {},
        "node-down",
        None,
        {**known, "layer": "3"},
        {**known, "sentence": None},
    ]
    answers: list[Any] = [strange, None, "x", {}]
    for faults in answers:
        assert findings(asked(case=case, faults=faults)) == own
    silent = {DOCTOR_ID: {UNANSWERED: "TimedOut"}}
    assert findings(case.evidence().with_answers(silent)) == own
    assert "No answer to a probe came from head" in diagnose(Case().evidence().with_answers(silent)).sentence


def test_layers_are_those_of_the_order() -> None:
    case = Case()
    case.facts[FIRST] |= {
        "disks": [{"mount": "/", "path": "/var/log", "available": 0, "size": 2**30, "inodes": 0, "inodes_free": 0}],
        "slurm": STOPPED_UNIT,
    }
    found = findings(case.evidence())
    assert [item.code for item in found][:2] == [Code.DISK_FULL, Code.SLURMD_DOWN]
    assert found[0].layer == verdict._LAYERS.index(host_faults.disks) < found[1].layer
    assert [Verdict.from_dict(item.to_dict()) for item in found] == found
    assert replace(found[0], layer=0) in list(host_faults.disks(case.evidence()))
    assert set(ADDRESSES) >= {item.node for item in found}
