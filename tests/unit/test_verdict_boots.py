"""Verdicts on machines that did not come: failed boots, agents, a gate without a result."""

from __future__ import annotations

from dataclasses import replace

from slurm_cluster.model.node_files import READY_LINE
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, console_failure, parse_failure, without_middle
from slurm_cluster.runtime.verdict import Code, findings
from tests.unit.verdict_cases import FIRST, SECOND, STOPPED_UNIT, Case, differing_key, gate_result, srun_failed, verdict

WAITING = {"state": "failed", "step": "head", "reason": "slurmctld does not answer this node: authentication error"}


def test_a_boot_that_failed_while_waiting_for_the_head_is_put_down_to_what_kept_it() -> None:
    case = Case()
    case.gate = None
    case.statuses[FIRST] = WAITING
    case.facts[FIRST]["status"] = WAITING
    assert verdict(lambda _: None, case).code is Code.BOOTSTRAP_FAILED, "nothing explains it"
    assert "step head: slurmctld does not answer this node" in verdict(lambda _: None, case).sentence
    assert verdict(differing_key, case).code is Code.MUNGE_KEY_DIFFERS
    assert verdict(lambda case: case.drop(FIRST, HEAD, 6817), case).code is Code.CONTROLLER_RPC_BLOCKED


def test_a_worker_whose_slurmd_is_not_due_yet_is_not_called_down() -> None:
    case = Case()
    case.gate = None
    case.facts[FIRST].update(
        status={"state": "running", "step": "head", "reason": None, "seconds": 70}, slurm=STOPPED_UNIT
    )
    case.connection(HEAD, FIRST, 6818, "refused")
    assert Code.SLURMD_DOWN not in {found.code for found in findings(case.evidence())}


def test_a_bootstrap_that_tries_again_says_what_it_met_and_may_yet_succeed() -> None:
    case = Case()
    case.gate = None
    trouble = "could not install slurmd yet: Could not get lock. It is held by process 7 (apt)"
    case.statuses[FIRST] = {"state": "running", "step": "packages", "reason": None, "trouble": trouble, "seconds": 70}
    del case.facts[FIRST]
    found = verdict(lambda _: None, case)
    assert (found.code, found.node, found.certain) == (Code.BOOTSTRAP_WAITS, FIRST, False)
    assert "in step packages for 70 seconds" in found.sentence
    assert "held by process 7 (apt)" in found.sentence


def test_the_heads_bootstrap_fails_the_gate_at_once() -> None:
    case = Case()
    case.facts.clear()
    case.meetings.clear()
    case.gate = gate_result("bootstrap", failure={"step": "state-volume", "reason": "volume vol-1 is in another zone."})
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.BOOTSTRAP_FAILED, HEAD)
    assert "step state-volume: volume vol-1 is in another zone. " in found.reason


def test_what_apply_says_is_the_reason() -> None:
    case = Case()
    case.gate = gate_result(
        "apply", failure={"step": "apply", "reason": "the rendered Slurm configuration is not valid"}
    )
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.APPLY_FAILED, HEAD)
    assert "not valid" in found.sentence
    case.facts[HEAD]["munge"] = STOPPED_UNIT
    assert verdict(lambda _: None, case).code is Code.MUNGE_DOWN, "what made it fail"


def test_a_worker_that_somebody_stopped_is_not_why_the_head_failed() -> None:
    case = Case()
    case.gate = gate_result("apply", failure={"step": "apply", "reason": "x"})
    case.machines[FIRST] = replace(case.machines[FIRST], state="stopped", agent="ConnectionLost")
    case.facts = {HEAD: case.facts[HEAD]}
    case.meetings.clear()
    assert verdict(lambda _: None, case).code is Code.APPLY_FAILED


CONSOLE = (
    "[  9.1] cloud-init[500]: hello\r\n[ 10.2] slurm-cluster: FAILED step=user-data:bundle reason=no such key\r\nlogin:"
)


def test_a_console_tells_of_a_boot_whose_agent_never_came() -> None:
    line = console_failure(CONSOLE)
    assert line == "slurm-cluster: FAILED step=user-data:bundle reason=no such key"
    assert parse_failure(line) == ("user-data:bundle", "no such key")
    case = Case()
    case.gate = None
    case.facts.clear()
    case.meetings.clear()
    case.machines[HEAD] = replace(case.machines[HEAD], agent="", failure=line)
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.BOOTSTRAP_FAILED, HEAD)
    assert "user-data:bundle: no such key" in found.sentence
    case.final = True
    assert HEAD not in {item.node for item in findings(case.evidence()) if item.code is Code.AGENT_NEVER_ONLINE}


def test_a_console_without_such_a_line_tells_nothing() -> None:
    assert console_failure("Linux version 6.12\nslurm-cluster: fine\n") == ""


def test_a_failure_before_bootstrap_succeeded_is_no_reason_for_an_agent_that_was_lost_later() -> None:
    overcome = f"{CONSOLE}\n[ 95.0] {READY_LINE}\n"
    assert console_failure(overcome) == ""
    case = Case()
    case.gate = None
    case.final = True
    case.facts.clear()
    case.meetings.clear()
    case.machines[HEAD] = replace(case.machines[HEAD], agent="ConnectionLost", failure=console_failure(overcome))
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.AGENT_NEVER_ONLINE, HEAD)
    assert "is ConnectionLost now" in found.sentence
    assert console_failure(f"{overcome}{CONSOLE}").endswith("reason=no such key"), "it failed again"


def test_a_failure_that_the_present_boot_has_overcome_counts_no_more() -> None:
    case = Case()
    case.machines[FIRST] = replace(case.machines[FIRST], failure=console_failure(CONSOLE))
    assert verdict(lambda _: None, case).code is Code.UNKNOWN


def test_an_agent_that_may_still_come_is_no_finding() -> None:
    case = Case()
    case.gate = None
    case.facts.clear()
    case.meetings.clear()
    case.machines = {node: replace(machine, agent="") for node, machine in case.machines.items()}
    assert not verdict(lambda _: None, case).certain
    case.final = True
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.AGENT_NEVER_ONLINE, HEAD)
    assert "has never registered" in found.sentence


def test_an_agent_of_a_node_that_is_not_in_question_does_not_matter() -> None:
    case = Case()
    case.gate = srun_failed(nodes=(FIRST,))
    case.machines[SECOND] = replace(case.machines[SECOND], agent="ConnectionLost")
    assert verdict(lambda _: None, case).code is Code.UNKNOWN


def test_programs_that_user_data_did_not_bring_say_why() -> None:
    case = Case()
    case.gate = {UNANSWERED: "Failed: no slurm-cluster yet: slurm-cluster: FAILED step=user-data:packages reason=x"}
    case.facts.clear()
    case.meetings.clear()
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.BOOTSTRAP_FAILED, HEAD)
    assert "step user-data:packages: x" in found.sentence


def test_a_long_reason_of_user_data_keeps_its_step_and_its_end() -> None:
    line = f"slurm-cluster: FAILED step=user-data:bundle reason={'a warning of a library ' * 100}: AccessDenied"
    why = without_middle(f"Failed, exit status 127: no slurm-cluster yet: {line}", 1000)
    case = Case()
    case.gate = dict(probe_plan.answer("", why))
    case.facts.clear()
    case.meetings.clear()
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.BOOTSTRAP_FAILED, HEAD)
    assert "step user-data:bundle: a warning" in found.reason
    assert ": AccessDenied. " in found.reason


def test_a_gate_that_ends_in_a_traceback_gives_its_last_line() -> None:
    case = Case()
    trace = f"Failed, exit status 1: Traceback (most recent call last):{' File x, line 1, in y' * 60} KeyError: 'cause'"
    case.gate = dict(probe_plan.answer("", trace))
    found = verdict(lambda _: None, case)
    assert found.code is Code.UNKNOWN
    assert "exit status 1: Traceback" in found.reason
    assert "KeyError: 'cause'" in found.reason


def test_a_gate_without_a_result_is_unknown_and_says_so() -> None:
    case = Case()
    case.gate = {UNANSWERED: "TimedOut: no output"}
    found = verdict(lambda _: None, case)
    assert found.code is Code.UNKNOWN
    assert "TimedOut: no output" in found.sentence
