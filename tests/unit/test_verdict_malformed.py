"""An answer that is not what was asked for, as of programs of another release, takes nothing from the others."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Evidence
from slurm_cluster.runtime.verdict import Code, diagnose, findings, readable
from tests.unit.verdict_cases import (
    FIRST,
    NARROW,
    SECOND,
    STOPPED_UNIT,
    Case,
    differing_key,
    gate_result,
    never_registered,
    srun_failed,
)

CASES = 1000
FAILURE = {"step": "a", "reason": "r"}
GATES: list[Callable[[], dict[str, Any] | None]] = [
    *(lambda: None, srun_failed, never_registered, lambda: {UNANSWERED: "x"}),
    *(lambda: gate_result("apply", failure=FAILURE), lambda: gate_result("bootstrap", failure=FAILURE)),
]
JUNK: list[Any] = [None, 0, -1, 1.5, "", "x", "a+b", [], {}, [None], {"error": "late"}, {UNANSWERED: "x"}, True, [1, 2]]
FULL = {"mount": "/", "path": "/x", "available": 0, "size": 2**30, "inodes": 10, "inodes_free": 0}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(item, (*path, key))


def _case(rng: random.Random) -> Case:
    case = Case(rng.choice((None, NARROW)))
    case.gate = rng.choice(GATES)()
    mount = {"mount": "/m", "device": "d", "kind": "k", "why": "w"}
    case.facts[rng.choice((HEAD, FIRST))] |= {
        "disks": [dict(FULL)],
        "hung": [mount],
        "read_only": [mount],
        "srun_ports": {"free": 1, "enough": 4, "size": 10, "range": "1-2"},
        "ssm_agent": dict(STOPPED_UNIT),
        "skew": 100.0,
    }
    if rng.random() < 0.3:
        case.facts[FIRST]["slurm"] = dict(STOPPED_UNIT)
    if rng.random() < 0.3:
        differing_key(case)
    if rng.random() < 0.3:
        case.drop(FIRST, HEAD)
    if rng.random() < 0.3:
        case.statuses[FIRST] = {"state": "running", "step": "head", "reason": None, "seconds": 99, "trouble": "t"}
    return case


def _damage(value: Any, rng: random.Random) -> None:
    places = [place for place in _places(value) if len(place) > 1]
    if not places:
        return
    *way, last = rng.choice(places)
    for key in way:
        value = value[key]
    if rng.random() < 0.3:
        del value[last]
    else:
        value[last] = copy.deepcopy(rng.choice(JUNK))


def test_no_damage_to_answers_keeps_a_verdict_from_being_given() -> None:
    rng = random.Random(5)  # noqa: S311 - the same cases each time
    for _ in range(CASES):
        told = json.loads(json.dumps(_case(rng).evidence().to_dict()))
        for _ in range(rng.choice((1, 1, 2))):
            _damage(told[rng.choice(("answers", "answers", "gate"))], rng)
        evidence = Evidence.from_dict(told)
        assert diagnose(evidence).reason
        probe_plan.plan(readable(evidence))
        assert all(probe_plan.stuck(answer) in (True, False) for answer in evidence.answers.values())


@pytest.mark.parametrize("munge", ["active", {"state": "up"}, []])
def test_the_others_are_judged_and_the_odd_answer_is_told(munge: Any) -> None:
    case = Case()
    case.facts[FIRST]["slurm"] = STOPPED_UNIT
    case.facts[SECOND]["slurm"] = STOPPED_UNIT
    case.facts[SECOND]["munge"] = munge or {"of": "another release"}
    evidence = case.evidence()
    assert [(item.code, item.node) for item in findings(evidence)] == [(Code.SLURMD_DOWN, FIRST)]
    (said,) = readable(evidence).answers[f"facts:{SECOND}"].values()
    assert said.startswith("its answer is not understood: {'node': 'cpu-static-2'")
    assert all(
        readable(evidence).answers[key] == evidence.answers[key] for key in evidence.answers if SECOND not in key
    )


def test_a_gate_that_says_what_nobody_understands_is_shown_as_it_is() -> None:
    case = Case()
    case.gate = {"passed": False, "stage": "apply", "failure": "no"}
    found = diagnose(case.evidence())
    assert found.code is Code.UNKNOWN
    assert "its answer is not understood: {'passed': False, 'stage': 'apply', 'failure': 'no'}" in found.sentence


def test_whole_evidence_is_left_as_it_is() -> None:
    evidence = Case().evidence()
    assert readable(evidence) is evidence
