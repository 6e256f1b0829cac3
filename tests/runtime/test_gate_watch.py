"""The smoke test's function follows a cluster: it ends as soon as something is known, and never before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slurm_cluster.runtime.fault import Code
from slurm_cluster.runtime.functions.smoke_test import watch as watch_module
from slurm_cluster.runtime.functions.smoke_test.cloud import Outcome
from slurm_cluster.runtime.functions.smoke_test.investigation import last_failure
from slurm_cluster.runtime.functions.smoke_test.request import Progress
from slurm_cluster.runtime.functions.smoke_test.watch import Finding
from tests.runtime.gate_doubles import PASSED, READY, Bench, FakeNode

REPORTED_WITHIN = 180.0
"""Seconds from when a failure can be seen to its report."""

FAILED_LINE = "slurm-cluster: FAILED step=packages reason=slurmd cannot be installed"


def _code(finding: Finding) -> Code:
    assert finding.verdict is not None
    return finding.verdict.code


def test_a_cluster_that_passes() -> None:
    bench = Bench()
    finding = bench.run()
    assert finding.verdict is None
    assert finding.data() == {
        "Hosts": "cpu-static-1=ip-10-0-0-5,cpu-static-2=ip-10-0-0-6",
        "Output": PASSED["output"],
    }
    assert bench.took() < 20
    assert " gate --request-id r-1 --phase create --on-update free --wait $((1560 - n))\n" in bench.script()


def test_a_boot_that_takes_its_time() -> None:
    bench = Bench()
    for number, node in enumerate(bench.nodes.values()):
        node.agent, node.status = "", None
        bench.clock.after(200 + 10 * number, lambda node=node: setattr(node, "agent", "Online"))  # type: ignore[misc]
        bench.clock.after(240 + 10 * number, lambda node=node: setattr(node, "status", READY))  # type: ignore[misc]
    bench.cloud.gate = (PASSED, 90)
    assert bench.run().verdict is None
    assert bench.took() < 320


def test_the_same_request_delivered_twice_is_tested_once() -> None:
    bench = Bench()
    first = bench.run()
    bench.progress = Progress(started=bench.clock.now)
    assert bench.run().data() == first.data()
    assert bench.cloud.gates == ["r-1"]


def test_a_command_that_is_not_known_at_once() -> None:
    bench = Bench()
    bench.cloud.unknown_for = 25
    assert bench.run().verdict is None


def test_a_command_that_never_becomes_known_is_reported() -> None:
    bench = Bench()
    bench.cloud.unknown_for = 10_000
    finding = bench.run()
    assert _code(finding) is Code.UNKNOWN
    assert "does not know the command" in str(finding.verdict)
    assert bench.took() < REPORTED_WITHIN


def test_an_invocation_hands_over_and_the_next_one_goes_on() -> None:
    bench = Bench()
    bench.cloud.gate = (PASSED, 700)
    assert bench.watch().run(bench.began + 600) is None
    told = Progress(**bench.progress.to_dict())
    assert told.command
    bench.progress = told
    assert bench.run(600).verdict is None
    assert len([1 for script, _ in bench.cloud.commands.values() if " gate " in script]) == 1
    assert bench.took() < 710


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_a_head_that_stops(state: str) -> None:
    bench = Bench()
    bench.nodes["i-h"].agent = ""
    seen = bench.clock.after(100, lambda: setattr(bench.nodes["i-h"], "state", state))
    finding = bench.run()
    assert _code(finding) is Code.INSTANCE_NOT_RUNNING
    assert state in str(finding.verdict)
    assert bench.clock.now - seen < REPORTED_WITHIN


def test_a_failed_boot_of_the_head_is_read_from_its_console() -> None:
    bench = Bench()
    bench.nodes["i-h"].agent = ""
    seen = bench.clock.after(60, lambda: setattr(bench.nodes["i-h"], "console", f"boot\n{FAILED_LINE}\n"))
    finding = bench.run()
    assert (_code(finding), finding.verdict and finding.verdict.node) == (Code.BOOTSTRAP_FAILED, "head")
    assert "slurmd cannot be installed" in str(finding.verdict)
    assert bench.clock.now - seen < REPORTED_WITHIN


def test_a_failed_boot_of_a_worker_is_read_from_its_console_while_the_head_waits() -> None:
    bench = Bench()
    bench.cloud.gate = None
    bench.nodes["i-2"].agent = ""
    seen = bench.clock.after(60, lambda: setattr(bench.nodes["i-2"], "console", FAILED_LINE))
    finding = bench.run()
    assert (_code(finding), finding.verdict and finding.verdict.node) == (Code.BOOTSTRAP_FAILED, "cpu-static-2")
    assert bench.clock.now - seen < REPORTED_WITHIN
    # the gate on the head waits for that worker: it must not go on into a rollback
    assert bench.cloud.cancelled == [bench.progress.command]


def test_a_failed_boot_of_a_worker_is_asked_for_where_its_agent_answers() -> None:
    bench = Bench()
    bench.cloud.gate = None
    # of an earlier boot that was overcome: the agent's answer counts
    bench.nodes["i-1"].console = FAILED_LINE
    failed = {"state": "failed", "step": "munge", "seconds": 0, "reason": "the secret cannot be read"}
    seen = bench.clock.after(120, lambda: setattr(bench.nodes["i-2"], "status", failed))
    bench.nodes["i-2"].status = {"state": "running", "step": "packages", "seconds": 5, "reason": None}
    finding = bench.run()
    assert (_code(finding), finding.verdict and finding.verdict.node) == (Code.BOOTSTRAP_FAILED, "cpu-static-2")
    assert "the secret cannot be read" in str(finding.verdict)
    assert bench.clock.now - seen < REPORTED_WITHIN


def test_a_failed_gate_is_explained_at_once() -> None:
    bench = Bench()
    reason = "no instance type c9.large"
    failed = {**PASSED, "passed": False, "stage": "apply", "failure": {"step": "apply", "reason": reason}}
    bench.cloud.gate = (failed, 30)
    finding = bench.run()
    assert _code(finding) is Code.APPLY_FAILED
    assert reason in str(finding.verdict)
    assert bench.took() < REPORTED_WITHIN


def test_a_head_that_restarts_is_asked_again() -> None:
    bench = Bench()
    bench.cloud.gate = ("", 20)
    bench.clock.after(30, lambda: setattr(bench.cloud, "gate", (PASSED, 20)))
    bench.clock.after(30, bench.cloud._kept.clear)
    assert bench.run().verdict is None
    assert bench.progress.sends == 2


def test_a_gate_that_prints_nothing_is_no_success() -> None:
    bench = Bench()
    bench.cloud.gate = ("Killed", 5)
    finding = bench.run()
    assert _code(finding) is Code.UNKNOWN
    assert bench.progress.sends == watch_module.MOST_SENDS
    assert bench.took() < REPORTED_WITHIN


def test_an_exit_status_alone_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    outcome = bench.cloud.outcome

    def hollow(command: str, instance_id: str) -> Outcome | None:
        found = outcome(command, instance_id)
        return replace(found, stdout='{"stage": "done"}') if found and "passed" in found.stdout else found

    monkeypatch.setattr(bench.cloud, "outcome", hollow)
    assert bench.run().verdict is not None


@pytest.mark.parametrize("instance", ["i-h", "i-2"])
def test_an_agent_that_never_comes(instance: str) -> None:
    bench = Bench()
    bench.cloud.gate = None
    bench.nodes[instance].agent = ""
    finding = bench.run()
    assert _code(finding) is Code.AGENT_NEVER_ONLINE
    assert instance in str(finding.verdict)
    # the first boot may have to install it
    assert watch_module.AGENT_SECONDS - 10 <= bench.took() < watch_module.AGENT_SECONDS + REPORTED_WITHIN


def test_a_worker_that_waits_for_the_head_is_looked_into_only_when_the_head_is_ready() -> None:
    bench = Bench()
    bench.cloud.gate = (PASSED, 400)
    waiting = {"state": "running", "step": "head", "seconds": 200, "reason": None}
    bench.nodes["i-1"].status = dict(waiting)
    bench.nodes["i-h"].status = {"state": "running", "step": "packages", "seconds": 100, "reason": None}
    bench.clock.after(300, lambda: setattr(bench.nodes["i-h"], "status", READY))
    bench.clock.after(320, lambda: setattr(bench.nodes["i-1"], "status", READY))
    assert bench.run().verdict is None
    assert not [script for script, _ in bench.cloud.commands.values() if " probe\n" in script]


def test_the_budget_ends_with_a_verdict() -> None:
    bench = Bench()
    bench.cloud.gate = None
    finding = bench.run()
    assert finding.verdict is not None
    assert bench.settings.budget_seconds - 230 < bench.took() < bench.settings.budget_seconds
    assert bench.cloud.cancelled


def test_an_update_that_tests_free_nodes_is_not_held_up_by_a_worker_stopped_long_ago() -> None:
    bench = Bench("Update")
    bench.cloud.gate = (PASSED, 200)
    bench.nodes["i-2"] = FakeNode(state="stopped", launched=bench.began - 86_400)
    assert bench.run().verdict is None
    assert " --phase update --on-update free " in bench.script()


@pytest.mark.parametrize(("kind", "on_update"), [("Create", "free"), ("Update", "all")])
def test_a_test_of_all_workers_needs_all_workers(kind: str, on_update: str) -> None:
    bench = Bench(kind, on_update)
    bench.cloud.gate = (PASSED, 200)
    bench.nodes["i-2"] = FakeNode(state="stopped", launched=bench.began - 86_400)
    assert _code(bench.run()) is Code.INSTANCE_NOT_RUNNING


def test_a_worker_that_an_update_adds_must_come() -> None:
    bench = Bench("Update")
    bench.cloud.gate = None
    bench.nodes["i-1"].launched = bench.began - 86_400
    bench.nodes["i-2"].agent = ""
    finding = bench.run()
    assert _code(finding) is Code.AGENT_NEVER_ONLINE
    assert bench.took() < watch_module.AGENT_SECONDS + REPORTED_WITHIN


@pytest.mark.parametrize(("on_update", "asked"), [("free", "free"), ("off", "free"), ("all", "all")])
def test_a_test_that_is_added_to_a_cluster_in_use_is_that_of_an_update(on_update: str, asked: str) -> None:
    bench = Bench("Create", on_update)
    for node in bench.nodes.values():
        node.launched = bench.began - 86_400
    if asked == "free":
        bench.nodes["i-2"] = FakeNode(state="stopped", launched=bench.began - 86_400)
    script = bench.script_of_a_run()
    assert f" --phase update --on-update {asked} " in script
    assert "--apply-only" not in script


def test_an_update_without_a_test_only_applies() -> None:
    bench = Bench("Update", "off")
    bench.nodes["i-1"] = FakeNode(state="terminated")
    bench.cloud.gate = ({**PASSED, "nodes": {}, "output": ""}, 30)
    finding = bench.run()
    assert finding.data()["Hosts"] == "not tested"
    assert bench.script().rstrip().endswith("--apply-only")
    assert "--apply-only" not in Bench("Create", "off").script_of_a_run()


def test_a_cluster_without_workers_here_only_has_to_serve() -> None:
    bench = Bench()
    bench.request = replace(bench.request, instances={"head": "i-h"})
    bench.cloud.gate = ({**PASSED, "nodes": {}, "output": ""}, 30)
    assert bench.run().verdict is None
    assert bench.script().rstrip().endswith("--apply-only")


def test_a_refusal_by_iam_is_fatal_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()

    def refuse(*_: Any) -> Any:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "SendCommand")

    monkeypatch.setattr(bench.cloud, "send", refuse)
    with pytest.raises(ClientError, match="AccessDeniedException"):
        bench.run()
    assert bench.took() < 20


def test_only_the_last_boot_of_a_console_counts() -> None:
    boot = "[    0.000000] Linux version 6.12.0 (debian)\n"
    assert last_failure(f"{boot}{FAILED_LINE}\n{boot}fine\n") == ""
    assert last_failure(f"{boot}fine\n{boot}x {FAILED_LINE}\n") == FAILED_LINE
    assert last_failure(FAILED_LINE) == FAILED_LINE
