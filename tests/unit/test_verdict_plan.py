"""Which probes are run where, and when there are enough."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.doctor import command_line as doctor_command_line
from slurm_cluster.doctor import examination
from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.model.node_files import COMMAND
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Evidence, Machine
from slurm_cluster.runtime.functions.smoke_test import investigation, watch
from slurm_cluster.runtime.node import command_line
from slurm_cluster.runtime.probe_plan import answer, gate_call, listen_ports, plan, script, status_call, stuck
from tests.unit.verdict_cases import ADDRESSES, FIRST, HEAD_HOST, SECOND, Case, gate_result, never_registered


def unanswered(case: Case) -> Evidence:
    return replace(case.evidence(), answers={f"status:{node}": {"status": s} for node, s in case.statuses.items()})


def many(number: int) -> dict[str, Machine]:
    names = [HEAD, *(f"cpu-static-{n}" for n in range(1, number + 1))]
    return {name: Machine(instance_id=f"i-{name}", state="running", agent="Online") for name in names}


def test_first_everybody_tells_of_itself_then_all_meet_then_it_is_enough() -> None:
    case = Case()
    evidence = unanswered(case)
    first = plan(evidence)
    assert [(call.id, call.argv) for call in first] == [
        *((f"facts:{node}", ("slurm-cluster", "probe")) for node in (HEAD, FIRST, SECOND)),
        ("doctor:head", ("slurm-doctor", "--json", FIRST, SECOND)),
    ]
    evidence = evidence.with_answers({call.id: case.facts[call.node] for call in first})
    second = plan(evidence)
    assert [call.id for call in second] == [f"meet:{node}" for node in (HEAD, FIRST, SECOND)]
    evidence = evidence.with_answers({call.id: case.meetings[call.node] for call in second})
    assert plan(evidence) == []


def test_while_the_gate_may_still_test_no_job_of_the_doctor_takes_a_node() -> None:
    case = Case()
    case.gate = None
    assert [call.id for call in plan(unanswered(case))] == [f"facts:{node}" for node in (HEAD, FIRST, SECOND)]
    case.gate = {UNANSWERED: "TimedOut"}
    assert "doctor:head" in [call.id for call in plan(unanswered(case))]


def test_two_rounds_of_probes_fit_into_the_time_that_is_kept_for_them() -> None:
    case = Case()
    first = plan(unanswered(case))
    second = plan(unanswered(case).with_answers({call.id: case.facts[call.node] for call in first}))
    rounds = [max(call.seconds for call in calls) + investigation._DELIVERY_SECONDS for calls in (first, second)]
    assert sum(rounds) < watch.DIAGNOSIS_SECONDS
    assert min(call.seconds for call in first if call.id == "doctor:head") > examination.BUDGET_SECONDS


def test_machines_meet_each_other_on_daemons_ports_and_on_those_of_srun() -> None:
    case = Case()
    answers = {**{f"facts:{node}": found for node, found in case.facts.items()}, "doctor:head": {}}
    evidence = replace(case.evidence(), answers=answers)
    head, first, _ = (" ".join(call.argv) for call in plan(evidence))
    assert "--listen 1024 33279 65535 --watch 6817 --connect 10.0.0.11:6818 10.0.0.11:1024" in head
    assert head.endswith("--resolve cpu-static-1 ip-10-0-0-11 cpu-static-2 ip-10-0-0-12")
    assert "--watch 6818 --connect 10.0.0.5:6817 10.0.0.5:1024" in first
    assert "10.0.0.12:6818 10.0.0.12:1024 10.0.0.12:33279 10.0.0.12:65535" in first
    assert first.endswith(f"--credential MUNGE:AwQF: --resolve {HEAD_HOST}")


def test_machines_that_gave_no_answer_are_asked_once_and_not_met() -> None:
    case = Case()
    answers: dict[str, Any] = {"doctor:head": {}, **{f"facts:{node}": case.facts[node] for node in ADDRESSES}}
    answers[f"facts:{SECOND}"] = {UNANSWERED: "TimedOut"}
    calls = plan(replace(case.evidence(), answers=answers))
    assert [call.node for call in calls] == [HEAD, FIRST]
    assert all(ADDRESSES[SECOND] not in " ".join(call.argv) for call in calls)


def test_those_in_question_are_probed_first_with_one_for_comparison() -> None:
    evidence = replace(unanswered(Case()), machines=many(9), gate=never_registered("cpu-static-7"))
    *facts, doctor = plan(evidence)
    assert [call.node for call in facts] == [HEAD, "cpu-static-7", "cpu-static-1"]
    assert doctor.argv == ("slurm-doctor", "--json", "cpu-static-7", "cpu-static-1")
    evidence = replace(evidence, gate=None, answers={"status:cpu-static-8": {"status": {"state": "failed"}}})
    assert [call.node for call in plan(evidence)] == [HEAD, "cpu-static-8", "cpu-static-1"]
    evidence = replace(evidence, gate=None, answers={})
    assert len(plan(evidence)) == 1 + probe_plan.MOST_WORKERS


def test_what_cannot_be_reached_is_not_asked() -> None:
    case = Case()
    case.machines[SECOND] = replace(case.machines[SECOND], agent="ConnectionLost")
    assert [call.id for call in plan(unanswered(case))] == [f"facts:{HEAD}", f"facts:{FIRST}", "doctor:head"]
    case.machines[HEAD] = replace(case.machines[HEAD], agent="")
    assert plan(unanswered(case)) == []


@pytest.mark.parametrize(("stage", "asked"), [("bootstrap", []), ("apply", ["facts:head"])])
def test_where_the_head_itself_failed_no_worker_is_probed(stage: str, asked: list[str]) -> None:
    case = Case()
    case.gate = gate_result(stage, failure={"step": "x", "reason": "y"})
    evidence = unanswered(case)
    assert [call.id for call in plan(evidence)] == asked
    assert plan(evidence.with_answers(dict.fromkeys(asked, case.facts[HEAD]))) == []


@pytest.mark.parametrize(
    ("srun", "ports"),
    [
        (PortRange(1024, 65535), (1024, 33279, 65535)),
        (PortRange(61000, 63000), (61000, 62000, 63000)),
        (PortRange(6817, 6819), (6819,)),
        (PortRange(61000, 61000), (61000,)),
    ],
)
def test_ports_that_stand_for_the_srun_range(srun: PortRange, ports: tuple[int, ...]) -> None:
    assert listen_ports(SlurmPorts(srun=srun)) == ports
    assert PortRange.parse(str(srun)) == srun


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"state": "failed", "step": "packages", "seconds": 1}, True),
        ({"state": "running", "step": "head", "seconds": 61}, True),
        ({"state": "running", "step": "head", "seconds": 10}, False),
        ({"state": "running", "step": "packages", "seconds": 500}, False),
        ({"state": "ready", "step": "slurmd", "seconds": 500}, False),
        ({"state": "none", "step": "", "seconds": 0}, False),
        ({}, False),
    ],
)
def test_waiting_for_the_head_is_looked_into_after_a_minute(status: dict[str, object], expected: bool) -> None:
    assert stuck({"status": status}) is expected
    assert stuck({UNANSWERED: "TimedOut"}) is False
    assert stuck({UNANSWERED: "Failed: no slurm-cluster yet: slurm-cluster: FAILED step=cloud-init reason=x"}) is True


def test_a_script_quotes_its_arguments_and_says_why_there_are_no_programs(tmp_path: Path) -> None:
    call = gate_call("a b';", phase="create", on_update="free", wait=60)
    assert call.seconds > 2 * 60
    program, log = tmp_path / "slurm-cluster", tmp_path / "log"
    text = script(call).replace(str(COMMAND), str(program)).replace("/var/log/cloud-init-output.log", str(log))
    log.write_text("x\nslurm-cluster: FAILED step=user-data:bundle reason=no key\ny\n")
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (127, "")
    assert "slurm-cluster: FAILED step=user-data:bundle reason=no key" in done.stderr
    program.symlink_to("/bin/echo")
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "gate --request-id a b'; --phase create --on-update free --wait 60\n"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("status: running", " yet: \n"),
        ("status: error", " yet: slurm-cluster: FAILED step=cloud-init reason=user data did not run: status: error"),
        ("status: done", " yet: slurm-cluster: FAILED step=cloud-init reason=user data did not run: status: done"),
    ],
)
def test_user_data_that_never_ran_is_told_from_one_that_still_runs(said: str, expected: str, tmp_path: Path) -> None:
    program = tmp_path / "cloud-init"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    text = script(status_call(FIRST)).replace(str(COMMAND), str(tmp_path / "none"))
    text = text.replace("/var/log/cloud-init-output.log", str(tmp_path / "log"))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 127
    assert expected in done.stderr


def test_every_planned_command_is_one_of_the_nodes_programs() -> None:
    case = Case()
    evidence = unanswered(case)
    calls = [gate_call("r", phase="update", on_update="all", wait=9), status_call(FIRST), *plan(evidence)]
    calls += plan(evidence.with_answers({call.id: case.facts[call.node] for call in plan(evidence)}))
    parsers = {"slurm-cluster": command_line._parser(), "slurm-doctor": doctor_command_line._parser()}
    for call in calls:
        options = parsers[call.argv[0]].parse_args(call.argv[1:])
        assert options.json if call.id == "doctor:head" else options.command in ("gate", "probe")
        assert f"/usr/local/sbin/{call.argv[0]} " in script(call)
        assert re.fullmatch(r"[a-z]+(:[a-z0-9-]+)?", call.id)


@pytest.mark.parametrize("stdout", ["", "[]", "no json", '{"a": '])
def test_an_answer_is_an_object_or_says_why_there_is_none(stdout: str) -> None:
    assert answer('{"a": 1}', "Success") == {"a": 1}
    assert answer(stdout, " TimedOut: \n") == {UNANSWERED: "TimedOut:"}
    assert answer(stdout, "") == {UNANSWERED: "no output"}
