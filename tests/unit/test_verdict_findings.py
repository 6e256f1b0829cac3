"""Each verdict from its evidence, and from what looks like it none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from slurm_cluster.model.flows import SlurmPorts
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Evidence
from slurm_cluster.runtime.fault import REASON_LENGTH
from slurm_cluster.runtime.verdict import Code, diagnose, findings
from tests.unit.verdict_cases import (
    ADDRESSES,
    FIRST,
    GROUPS,
    HEAD_HOST,
    NARROW,
    SECOND,
    STOPPED_UNIT,
    Case,
    differing_key,
    gate_result,
    hostname,
    never_registered,
    srun_failed,
    verdict,
)

BLOCKED = {code for code in Code if code.endswith("-blocked")}


def test_where_no_probe_finds_a_fault_the_cause_is_unknown_and_not_the_network() -> None:
    found = diagnose(Case().evidence())
    assert (found.code, found.certain) == (Code.UNKNOWN, False)
    assert "srun:cpu" in found.sentence
    assert "no end after 60 seconds" in found.sentence
    for word in ("network", "blocked", "security group", "TCP"):
        assert word not in found.reason


def test_srun_io_names_ports_both_groups_and_the_rule() -> None:
    case = Case()
    case.drop(SECOND, HEAD)
    found = verdict(lambda case: case.drop(FIRST, HEAD), case)
    assert (found.code, found.node, found.certain) == (Code.SRUN_IO_BLOCKED, FIRST, True)
    assert (
        f"srun-io: {FIRST} cannot open TCP 1024, 33279, 65535 on head: the SYNs left, the head looked for them "
        "and none arrived, while TCP 6817 there answers. The same holds for 1 more pair of nodes."
    ) in found.sentence
    assert found.change.startswith(
        f"Add to security group {GROUPS['head']} (head) the rule: inbound TCP 1024-65535 from security group "
        f"{GROUPS['worker']} (worker)."
    )
    assert found.change in found.reason


def test_a_narrow_srun_range_is_probed_and_named() -> None:
    found = verdict(lambda case: case.drop(FIRST, HEAD), Case(NARROW))
    assert found.code is Code.SRUN_IO_BLOCKED
    assert "TCP 61000, 62000, 63000" in found.sentence
    assert "inbound TCP 61000-63000" in found.change


def test_part_of_the_srun_range_is_enough_to_name_it() -> None:
    found = verdict(lambda case: case.drop(FIRST, HEAD, 1024, 65535))
    assert found.code is Code.SRUN_IO_BLOCKED
    assert "cannot open TCP 1024, 65535 on head" in found.sentence
    assert "while TCP 6817, 33279 there answers" in found.sentence


@pytest.mark.parametrize(
    ("opener", "listener", "ports", "code", "rule", "groups"),
    [
        (FIRST, HEAD, [6817], Code.CONTROLLER_RPC_BLOCKED, "inbound TCP 6817 ", ("head", "worker")),
        (HEAD, FIRST, [6818], Code.NODE_RPC_BLOCKED, "inbound TCP 6818 ", ("worker", "head")),
        (HEAD, FIRST, [], Code.HEAD_TO_WORKER_BLOCKED, "inbound TCP 1024-65535 ", ("worker", "head")),
        (FIRST, SECOND, [], Code.WORKER_TO_WORKER_BLOCKED, "inbound TCP 0-65535 ", ("worker", "worker")),
        (SECOND, FIRST, [6818], Code.WORKER_TO_WORKER_BLOCKED, "inbound TCP 0-65535 ", ("worker", "worker")),
    ],
)
def test_every_pair_of_groups_has_its_verdict(
    opener: str, listener: str, ports: list[int], code: Code, rule: str, groups: tuple[str, str]
) -> None:
    found = verdict(lambda case: case.drop(opener, listener, *ports))
    assert found.code is code
    assert rule in found.change
    assert (
        found.change.index(GROUPS[groups[0]]) < found.change.index("inbound") < found.change.rindex(GROUPS[groups[1]])
    )


def test_the_failed_check_decides_which_of_two_blocked_flows_comes_first() -> None:
    def both(case: Case) -> None:
        case.drop(FIRST, HEAD, 1024)
        case.drop(FIRST, SECOND)

    assert verdict(both).code is Code.SRUN_IO_BLOCKED
    case = Case()
    case.gate = srun_failed("srun-in-job:cpu")
    assert verdict(both, case).code is Code.WORKER_TO_WORKER_BLOCKED
    assert {found.code for found in findings(case.evidence())} == {Code.SRUN_IO_BLOCKED, Code.WORKER_TO_WORKER_BLOCKED}


def _refused_early(case: Case) -> None:
    case.meetings[HEAD]["meeting"].update(listening=[])
    for port in (1024, 33279, 65535):
        case.connection(FIRST, HEAD, port, "refused")


def _nobody_looked(case: Case) -> None:
    case.drop(FIRST, HEAD)
    case.meetings[HEAD]["meeting"].update(watching=False, arrived=[])


def _no_answer_there(case: Case) -> None:
    case.drop(FIRST, HEAD)
    case.meetings[HEAD] = {UNANSWERED: "TimedOut"}


def _refused_by_a_daemon(case: Case, opener: str, listener: str) -> None:
    case.facts[listener]["slurm"] = {"error": "systemctl: no end after 10 seconds"}
    case.connection(opener, listener, case.daemon(listener), "refused", arrived=True)


def _listens_elsewhere(case: Case) -> None:
    case.facts[FIRST]["listening"] = [16818]
    case.connection(HEAD, FIRST, 6818, "refused", arrived=True)


def _silent_srun(case: Case) -> None:
    case.gate = srun_failed()
    case.gate["checks"][0]["detail"] = "exit status 0; expected cpu-static-1 ip-1; got no output; it said nothing"


def _no_answers(case: Case) -> None:
    case.meetings.clear()
    case.facts = {FIRST: {UNANSWERED: "TimedOut"}}


LOOK_ALIKES: dict[str, tuple[Callable[[Case], object], Code]] = {
    "refused, as nobody listened yet": (_refused_early, Code.UNKNOWN),
    "timed out, but the other end was not looking": (_nobody_looked, Code.UNKNOWN),
    "timed out, and the other end gave no answer": (_no_answer_there, Code.UNKNOWN),
    "timed out, but the SYN had arrived": (
        lambda case: case.connection(FIRST, HEAD, 33279, "timeout", arrived=True),
        Code.HOST_FIREWALL,
    ),
    "refused although the probe listened": (
        lambda case: case.connection(FIRST, HEAD, 33279, "refused", arrived=True),
        Code.HOST_FIREWALL,
    ),
    "timed out, and no SYN had left": (
        lambda case: case.connection(FIRST, HEAD, 33279, "timeout", arrived=False, left=False),
        Code.HOST_FIREWALL,
    ),
    "timed out, and nobody saw whether a SYN left": (
        lambda case: case.connection(FIRST, HEAD, 33279, "timeout", arrived=False, left=None),
        Code.UNKNOWN,
    ),
    "no route": (lambda case: case.connection(FIRST, HEAD, 33279, "unreachable", arrived=False), Code.UNKNOWN),
    "prohibited by the host": (
        lambda case: case.connection(FIRST, HEAD, 33279, "unreachable", arrived=True),
        Code.HOST_FIREWALL,
    ),
    "no route at the opener": (
        lambda case: case.connection(FIRST, HEAD, 33279, "unreachable", arrived=False, left=False),
        Code.HOST_FIREWALL,
    ),
    "slurmd refuses": (lambda case: _refused_by_a_daemon(case, HEAD, FIRST), Code.SLURMD_DOWN),
    "slurmctld refuses": (lambda case: _refused_by_a_daemon(case, FIRST, HEAD), Code.SLURMCTLD_DOWN),
    "slurmd runs and a filter refuses": (
        lambda case: case.connection(HEAD, FIRST, 6818, "refused", arrived=True),
        Code.HOST_FIREWALL,
    ),
    "slurmctld runs and a filter refuses": (
        lambda case: case.connection(FIRST, HEAD, 6817, "refused", arrived=True),
        Code.HOST_FIREWALL,
    ),
    "the opener's own filter refuses": (
        lambda case: case.connection(FIRST, HEAD, 6817, "refused", arrived=False, left=False),
        Code.HOST_FIREWALL,
    ),
    "slurmd listens elsewhere": (_listens_elsewhere, Code.DAEMON_PORT_DIFFERS),
    "srun ends well and says nothing": (_silent_srun, Code.SRUN_SILENT),
    "no probe was answered": (_no_answers, Code.UNKNOWN),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_what_looks_like_a_blocked_flow_and_is_none(name: str) -> None:
    change, code = LOOK_ALIKES[name]
    found = verdict(change)
    assert found.code is code
    assert not {item.code for item in findings(_changed(change))} & BLOCKED


def _changed(change: Callable[[Case], object]) -> Evidence:
    case = Case()
    change(case)
    return case.evidence()


LOWER_LAYERS: dict[str, tuple[Callable[[Case], object], Code, str]] = {
    "slurmctld stopped": (lambda case: case.facts[HEAD].update(slurm=STOPPED_UNIT), Code.SLURMCTLD_DOWN, HEAD),
    "slurmctld hangs": (lambda case: case.facts[HEAD].update(controller=False), Code.SLURMCTLD_DOWN, HEAD),
    "slurmd stopped": (lambda case: case.facts[FIRST].update(slurm=STOPPED_UNIT), Code.SLURMD_DOWN, FIRST),
    "munge stopped": (lambda case: case.facts[SECOND].update(munge=STOPPED_UNIT), Code.MUNGE_DOWN, SECOND),
    "another key": (
        differing_key,
        Code.MUNGE_KEY_DIFFERS,
        FIRST,
    ),
    "clock behind": (
        lambda case: case.meetings[FIRST].update(
            credential={"decoded": False, "status": "Rewound credential (16)", "age": -421}
        ),
        Code.CLOCK_DIFFERS,
        FIRST,
    ),
    "clock ahead": (
        lambda case: case.meetings[FIRST].update(
            credential={"decoded": False, "status": "Expired credential (15)", "age": 634}
        ),
        Code.CLOCK_DIFFERS,
        FIRST,
    ),
    "head does not resolve": (
        lambda case: case.meetings[FIRST]["names"].update({HEAD_HOST: {"addresses": [], "problem": "no such name"}}),
        Code.NAME_DOES_NOT_RESOLVE,
        FIRST,
    ),
    "head resolves to another machine": (
        lambda case: case.meetings[FIRST]["names"].update({HEAD_HOST: {"addresses": ["10.9.9.9"], "problem": ""}}),
        Code.NAME_DOES_NOT_RESOLVE,
        FIRST,
    ),
    "worker does not resolve on the head": (
        lambda case: case.meetings[HEAD]["names"].update(
            {hostname(FIRST): {"addresses": [], "problem": "no such name"}}
        ),
        Code.NAME_DOES_NOT_RESOLVE,
        HEAD,
    ),
    "instance stopped": (
        lambda case: case.machines.update({FIRST: replace(case.machines[FIRST], state="stopped", agent="")}),
        Code.INSTANCE_NOT_RUNNING,
        FIRST,
    ),
    "agent never came": (
        lambda case: case.machines.update({FIRST: replace(case.machines[FIRST], agent="")}),
        Code.AGENT_NEVER_ONLINE,
        FIRST,
    ),
    "bootstrap failed": (
        lambda case: case.facts[FIRST].update(
            status={"state": "failed", "step": "packages", "reason": "no route to the mirror", "seconds": 3}
        ),
        Code.BOOTSTRAP_FAILED,
        FIRST,
    ),
}


@pytest.mark.parametrize("name", LOWER_LAYERS)
@pytest.mark.parametrize("blocked_too", [False, True], ids=["alone", "with srun I/O blocked"])
def test_lower_layers_come_first_whatever_else_is_wrong(name: str, blocked_too: bool) -> None:
    change, code, node = LOWER_LAYERS[name]
    case = Case()
    if blocked_too:
        case.drop(FIRST, HEAD)
    found = verdict(change, case)
    assert (found.code, found.node, found.certain) == (code, node, True)
    assert (Code.SRUN_IO_BLOCKED in {item.code for item in findings(case.evidence())}) is blocked_too
    if not blocked_too:
        assert not {item.code for item in findings(case.evidence())} & BLOCKED
        assert "security group" not in found.reason


def test_a_daemon_that_is_down_is_found_once() -> None:
    case = Case()
    case.facts[FIRST]["slurm"] = STOPPED_UNIT
    for opener in (HEAD, SECOND):
        case.connection(opener, FIRST, 6818, "refused")
    (found,) = findings(case.evidence())
    assert "slurmd.service is inactive" in found.sentence


def test_evidence_is_in_the_sentence() -> None:
    assert (
        "slurmd.service is inactive (dead, result success); its journal ends: terminated"
        in verdict(LOWER_LAYERS["slurmd stopped"][0]).sentence
    )
    assert "Error: Invalid credential" in verdict(LOWER_LAYERS["another key"][0]).sentence
    assert "by about 421 seconds" in verdict(LOWER_LAYERS["clock behind"][0]).sentence
    assert (
        f"{HEAD_HOST} does not resolve (no such name); the head has the address {ADDRESSES[HEAD]}"
        in verdict(LOWER_LAYERS["head does not resolve"][0]).sentence
    )
    assert "resolves to 10.9.9.9" in verdict(LOWER_LAYERS["head resolves to another machine"][0]).sentence
    assert "failed in step packages: no route to the mirror" in verdict(LOWER_LAYERS["bootstrap failed"][0]).sentence


def test_a_key_that_no_worker_shares_is_the_heads() -> None:
    def all_fail(case: Case) -> None:
        for node in (FIRST, SECOND):
            case.meetings[node]["credential"] = {"decoded": False, "status": "Invalid credential (14)", "age": None}

    found = verdict(all_fail)
    assert (found.code, found.node) == (Code.MUNGE_KEY_DIFFERS, HEAD)
    assert "on every worker asked" in found.sentence


def test_a_node_that_never_registered_and_nothing_explains_it() -> None:
    case = Case()
    case.gate = never_registered()
    case.facts[FIRST]["log"] = ["slurmd: error: something odd"]
    found = verdict(lambda _: None, case)
    assert (found.code, found.node, found.certain) == (Code.NODE_NEVER_REGISTERED, FIRST, False)
    for text in ("IDLE+CLOUD+POWERED_DOWN", "ready in step slurmd", "something odd"):
        assert text in found.sentence
    assert "security group" not in found.reason


@pytest.mark.parametrize(
    ("state", "change"),
    [("ALLOCATED+CLOUD", "OnUpdate.free()"), ("MIXED+CLOUD", "squeue"), ("IDLE+CLOUD+DRAIN", "state=resume")],
)
def test_a_node_that_serves_others_is_not_said_to_be_missing(state: str, change: str) -> None:
    case = Case()
    case.gate = never_registered(state=state, reason="as somebody said")
    case.gate["table"][FIRST]["address"] = ADDRESSES[FIRST]
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.NODE_NOT_FREE, FIRST)
    assert f"{state}, reason as somebody said" in found.reason
    assert change in found.reason
    case.gate["table"][FIRST]["address"] = "10.0.0.99"  # the jobs are those of its former instance
    assert verdict(lambda _: None, case).code is Code.NODE_NEVER_REGISTERED


def test_a_node_that_slurmctld_refuses() -> None:
    case = Case()
    case.gate = never_registered(state="IDLE+CLOUD+INVALID_REG", reason="Low RealMemory")
    found = verdict(lambda _: None, case)
    assert (found.code, found.node) == (Code.NODE_REFUSED, FIRST)
    assert "Low RealMemory" in found.sentence


def test_a_fact_that_could_not_be_had_is_no_evidence() -> None:
    case = Case()
    for node in ADDRESSES:
        case.facts[node].update(
            {name: {"error": "no end after 10 seconds"} for name in ("munge", "slurm", "log", "status")}
        )
    case.facts[HEAD]["controller"] = {"error": "no end"}
    case.meetings[FIRST]["meeting"] = {"error": "no end"}
    assert verdict(lambda _: None, case).code is Code.UNKNOWN


@pytest.mark.parametrize("text", ["x" * 5000, "ü" * 5000, "a\nb " * 2000])
def test_a_reason_keeps_its_length_and_what_to_change(text: str) -> None:
    case = Case()
    case.gate = gate_result("apply", failure={"step": "apply", "reason": text})
    found = diagnose(case.evidence())
    assert len(found.reason) <= REASON_LENGTH
    assert found.reason.endswith(found.change)
    assert "\n" not in found.reason


def test_evidence_goes_through_json_unchanged() -> None:
    evidence = Case(NARROW).evidence()
    assert Evidence.from_dict(json.loads(json.dumps(evidence.to_dict()))) == evidence
    assert SlurmPorts() != evidence.ports
