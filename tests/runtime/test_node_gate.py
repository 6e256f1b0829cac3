"""The gate: where it stops, whom it tests, and that a request is worked on once."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.model.spec import PartitionSpec
from slurm_cluster.runtime.node import gate, smoke_test
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.errors import NodeError
from tests.runtime.node_doubles import Clock, Programs

TABLE = "scontrol --oneliner show nodes"
RUNUSER = "runuser --user=admin -- env -i PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C USER=admin HOME=/"
SRUN = f"{RUNUSER} timeout --kill-after=10 60 srun"
SALLOC = f"{RUNUSER} timeout --kill-after=10 60 salloc"
BOOT = "0b00"
REFUSAL = "srun: error: Unable to allocate resources: Requested nodes are busy"


def table(*states: str, addresses: Mapping[int, str] | None = None) -> str:
    known = addresses or {}
    return "".join(
        f"NodeName=cpu-static-{n} NodeAddr={known.get(n, f'10.0.0.1{n}')} NodeHostName=ip-10-0-0-1{n} State={state}"
        f" Weight=1 Reason=why {n}\n"
        for n, state in enumerate(states, 1)
    )


def answer_of(argv: list[str]) -> str:
    """Return what tasks print on the nodes that a command asks for."""
    names = next(word for word in argv if word.startswith("--nodelist=")).partition("=")[2].split(",")
    tasks = "".join(f"{name} ip-10-0-0-1{name[-1]}\n" for name in names)
    return f"outer ip-10-0-0-1{names[0][-1]}\n{tasks}" if "salloc" in argv else tasks


def refused(*_: object) -> CommandError:
    return CommandError(REFUSAL)


class Head:
    """A head whose programs answer as told."""

    def __init__(self, directory: Path, answers: Mapping[str, Any], *, nodes: int = 3) -> None:
        self.run = Programs({TABLE: table(*["IDLE+CLOUD"] * nodes), SRUN: answer_of, SALLOC: answer_of, **answers})
        self.nodes = nodes
        self.clock = Clock()
        self.applied: list[float] = []
        self.addresses = {f"cpu-static-{n}": f"10.0.0.1{n}" for n in range(1, nodes + 1)}
        self.status = directory / "status.json"
        self.write_status("ready")

    def write_status(self, state: str, step: str = "slurmctld", reason: str | None = None, boot: str = BOOT) -> None:
        self.status.write_text(
            json.dumps({"boot_id": boot, "state": state, "step": step, "reason": reason, "steps": []})
        )

    def apply(self) -> dict[str, Any]:
        self.applied.append(self.clock.now)
        return {"changed": False}

    def partitions(self) -> Iterable[PartitionSpec]:
        return [PartitionSpec(name="cpu", instance_type="c7g.large", static_nodes=self.nodes, default=True)]

    def pass_gate(self, *, free_only: bool = False, **more: Any) -> dict[str, Any]:
        cluster = gate.Cluster(
            run=self.run,
            job_user=lambda: "admin",
            apply=more.pop("apply", self.apply),
            partitions=self.partitions,
            addresses=lambda: self.addresses,
        )
        return gate.Gate(
            cluster,
            free_only=free_only,
            wait_seconds=300,
            status_file=self.status,
            boot_id=BOOT,
            sleep=more.pop("sleep", self.clock.sleep),
            clock=self.clock,
            apply_only=more.pop("apply_only", False),
        ).pass_through()


def test_every_static_worker_is_tested_on_create(tmp_path: Path) -> None:
    head = Head(tmp_path, {})
    result = head.pass_gate()
    assert (result["passed"], result["stage"], result["failure"]) == (True, "done", None)
    assert result["tested"] == ["cpu-static-1", "cpu-static-2", "cpu-static-3"]
    assert result["nodes"] == {f"cpu-static-{n}": f"ip-10-0-0-1{n}" for n in (1, 2, 3)}
    assert [check["name"] for check in result["checks"]] == ["srun:cpu", "srun-in-job:cpu"]
    assert result["output"].splitlines()[0] == "cpu-static-1 ip-10-0-0-11"
    assert "--immediate" not in "".join(head.run.calls)


def test_a_failed_bootstrap_ends_it_at_once(tmp_path: Path) -> None:
    head = Head(tmp_path, {})
    head.write_status("failed", "munge", "read secret: AccessDenied")
    result = head.pass_gate()
    assert (result["stage"], result["failure"]) == (
        "bootstrap",
        {"step": "munge", "reason": "read secret: AccessDenied"},
    )
    assert (head.clock.now, head.applied, head.run.calls) == (0, [], [])


def test_bootstrap_of_an_earlier_boot_is_waited_over(tmp_path: Path) -> None:
    head = Head(tmp_path, {})
    head.write_status("failed", "munge", "yesterday", boot="another")

    def sleep(seconds: float) -> None:
        head.clock.sleep(seconds)
        if head.clock.now == 7:
            head.write_status("ready")

    assert head.pass_gate(sleep=sleep)["passed"]
    assert head.applied == [7]


def test_a_bootstrap_that_does_not_end_is_named_by_its_step(tmp_path: Path) -> None:
    head = Head(tmp_path, {})
    head.write_status("running", "packages")
    result = head.pass_gate()
    assert (result["stage"], result["failure"]["step"]) == ("bootstrap", "packages")
    assert "300 seconds" in result["failure"]["reason"]


def test_what_apply_says_ends_it(tmp_path: Path) -> None:
    head = Head(tmp_path, {})

    def apply() -> dict[str, Any]:
        raise NodeError("the rendered Slurm configuration is not valid: x")

    result = head.pass_gate(apply=apply)
    assert (result["stage"], result["failure"]["step"]) == ("apply", "apply")
    assert "not valid: x" in result["failure"]["reason"]
    assert head.run.calls == []


def test_a_worker_that_never_registers_is_named_with_what_slurmctld_knows(tmp_path: Path) -> None:
    never = table("IDLE+CLOUD", "IDLE+CLOUD+POWERED_DOWN", "IDLE+CLOUD", addresses={2: "cpu-static-2"})
    for free_only in (False, True):
        result = Head(tmp_path, {TABLE: never}).pass_gate(free_only=free_only)
        assert (result["passed"], result["stage"]) == (False, "workers")
        assert list(result["table"]) == ["cpu-static-2"]
        assert result["table"]["cpu-static-2"]["instance_address"] == "10.0.0.12"
        assert "1 of 3 static workers are not ready: cpu-static-2 is IDLE+CLOUD+POWERED_DOWN" in str(result["failure"])


def test_a_worker_registered_from_a_former_instance_has_not_come(tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table("IDLE+CLOUD", "IDLE+CLOUD", "IDLE+CLOUD", addresses={3: "10.0.0.99"})})
    result = head.pass_gate(free_only=True)
    assert result["stage"] == "workers"
    assert "registered from 10.0.0.99 and not from its instance 10.0.0.13" in result["failure"]["reason"]
    head = Head(tmp_path, {TABLE: table("IDLE+CLOUD", "IDLE+CLOUD", "IDLE+CLOUD", addresses={3: "10.0.0.99"})})
    head.addresses = {}
    assert head.pass_gate(free_only=True)["passed"], "EC2 did not say where the instances are"


def test_a_registration_that_is_refused_is_not_waited_for(tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table("IDLE+CLOUD", "IDLE+CLOUD+INVALID_REG", "IDLE+CLOUD")})
    result = head.pass_gate()
    assert (result["stage"], head.clock.now) == ("workers", 0)
    assert "why 2" in result["failure"]["reason"]


@pytest.mark.parametrize("state", ["DOWN+CLOUD+NOT_RESPONDING", "IDLE+CLOUD+DRAIN"])
def test_a_worker_that_had_come_and_stopped_gets_two_minutes(state: str, tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table("IDLE+CLOUD", state, "IDLE+CLOUD")})
    result = head.pass_gate()
    assert (result["stage"], 120 < head.clock.now < 130) == ("workers", True)


def test_one_that_comes_back_in_time_is_tested(tmp_path: Path) -> None:
    away = table("IDLE+CLOUD", "IDLE+CLOUD+NOT_RESPONDING", "IDLE+CLOUD")
    assert Head(tmp_path, {TABLE: [*[away] * 100, table(*["IDLE+CLOUD"] * 3)]}).pass_gate()["passed"]


def test_an_update_tests_free_nodes_counts_busy_ones_and_names_the_rest(tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table("MIXED+CLOUD", "IDLE+CLOUD", "IDLE+CLOUD+DRAIN")})
    result = head.pass_gate(free_only=True)
    assert result["passed"]
    assert (result["tested"], result["busy"]) == (["cpu-static-2"], ["cpu-static-1"])
    assert result["skipped"] == {"cpu-static-3": "cpu-static-3 is IDLE+CLOUD+DRAIN (why 3)"}
    assert sorted(result["nodes"]) == ["cpu-static-1", "cpu-static-2"]
    assert (head.clock.now, head.run.called(SALLOC)) == (0, [])
    assert "--immediate=10" in head.run.called(SRUN)[0]


def test_with_every_node_busy_an_update_needs_no_test(tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table(*["ALLOCATED+CLOUD"] * 3)})
    result = head.pass_gate(free_only=True)
    assert (result["passed"], result["tested"], len(result["busy"])) == (True, [], 3)
    assert head.run.called("runuser") == []


@pytest.mark.parametrize("state", ["DOWN+CLOUD+NOT_RESPONDING", "ALLOCATED+CLOUD+NOT_RESPONDING"])
def test_an_update_with_no_node_that_answers_proves_nothing(state: str, tmp_path: Path) -> None:
    result = Head(tmp_path, {TABLE: table(*[state] * 3)}).pass_gate(free_only=True)
    assert (result["passed"], result["stage"]) == (False, "smoke-test")
    assert "no static worker could be tested" in result["failure"]["reason"]


def test_all_waits_for_users(tmp_path: Path) -> None:
    busy = table("ALLOCATED+CLOUD", "IDLE+CLOUD", "IDLE+CLOUD")
    head = Head(tmp_path, {TABLE: [*[busy] * 200, table(*["IDLE+CLOUD"] * 3)]})
    result = head.pass_gate()
    assert (result["passed"], len(result["tested"]), head.clock.now) == (True, 3, 200)


def test_what_bootstrap_took_is_not_waited_again_for_the_workers(tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table("ALLOCATED+CLOUD", "IDLE+CLOUD", "IDLE+CLOUD")})
    head.write_status("running")

    def sleep(seconds: float) -> None:
        head.clock.sleep(seconds)
        if head.clock.now == 200:
            head.write_status("ready")

    result = head.pass_gate(sleep=sleep)
    assert "1 of 3 static workers are not ready: cpu-static-1 is ALLOCATED+CLOUD" in result["failure"]["reason"]
    assert head.clock.now <= 302


def test_a_node_that_a_user_takes_before_the_test_is_looked_at_again(tmp_path: Path) -> None:
    idle, taken = table(*["IDLE+CLOUD"] * 3), table("ALLOCATED+CLOUD", "IDLE+CLOUD", "IDLE+CLOUD")
    head = Head(tmp_path, {TABLE: [idle, idle, taken], SRUN: [refused, answer_of]})
    result = head.pass_gate(free_only=True)
    assert result["passed"], result
    assert (result["tested"], result["busy"]) == (["cpu-static-2", "cpu-static-3"], ["cpu-static-1"])
    assert [check["passed"] for check in result["checks"]] == [True, True]


def test_nodes_that_are_never_to_be_had_are_named_and_not_failed(tmp_path: Path) -> None:
    head = Head(tmp_path, {SRUN: refused}, nodes=1)
    result = head.pass_gate(free_only=True)
    assert (result["passed"], len(head.run.called(SRUN))) == (False, 3)
    assert "no static worker could be tested, and none runs jobs: cpu-static-1" in result["failure"]["reason"]
    assert REFUSAL in result["failure"]["reason"]


def test_the_first_launch_that_fails_ends_it(tmp_path: Path) -> None:
    for free_only in (False, True):
        head = Head(tmp_path, {SRUN: "cpu-static-1 ip-10-0-0-11\ncpu-static-3 ip-10-0-0-13\n"})
        result = head.pass_gate(free_only=free_only)
        assert (result["passed"], result["stage"], result["failure"]["step"]) == (False, "smoke-test", "srun:cpu")
        assert result["checks"][-1]["nodes"] == list(result["table"]) == ["cpu-static-2"]
        assert (result["tested"], head.run.called(SALLOC)) == ([], [])


def test_no_static_workers_are_no_proof(tmp_path: Path) -> None:
    result = Head(tmp_path, {}, nodes=0).pass_gate()
    assert (result["passed"], "no static workers" in result["failure"]["reason"]) == (False, True)


def test_where_nothing_is_to_be_proven_it_is_enough_to_apply(tmp_path: Path) -> None:
    head = Head(tmp_path, {TABLE: table("DOWN+CLOUD")}, nodes=1)
    result = head.pass_gate(apply_only=True)
    assert (result["passed"], result["stage"], result["nodes"]) == (True, "done", {})
    assert len(head.applied) == 1
    head.write_status("failed", "munge", "no key")
    assert not head.pass_gate(apply_only=True)["passed"]


@pytest.mark.parametrize("size", [1, 5000])
def test_the_printed_result_is_short_enough_for_run_command(size: int, tmp_path: Path) -> None:
    result = Head(tmp_path, {}).pass_gate()
    result["output"] = "ü\n" * size * 10
    result["checks"] = [{"name": "srun:cpu", "passed": False, "detail": '"' * size, "nodes": ["n"] * size}] * 30
    result["nodes"] = {f"n{n}": "ip-10-0-0-1" for n in range(size)}
    line = gate.text(result)
    assert len(line) <= 20_000
    shown = json.loads(line)
    assert (set(shown), shown["passed"], shown["stage"]) == (set(result), True, "done")
    if size == 1:
        assert shown["nodes"] == result["nodes"]


def test_what_failed_is_printed_however_much_did_not(tmp_path: Path) -> None:
    result = Head(tmp_path, {}).pass_gate()
    passed = [{"name": f"srun:p{n}", "passed": True, "detail": "d" * 1000, "nodes": []} for n in range(40)]
    failed = {"name": "srun:last", "passed": False, "detail": "why", "nodes": ["last-static-1"]}
    result |= {"checks": [*passed, failed], "failure": {"step": "srun:last", "reason": "é" * 790 + "the cause"}}
    result["skipped"] = {f"n{n}": "ü" * 1000 for n in range(500)}
    line = gate.text(result)
    assert len(line) <= 20_000
    shown = json.loads(line)
    assert failed in shown["checks"]
    assert shown["failure"]["reason"].endswith("the cause")


def test_a_request_is_worked_on_once_also_by_two_at_the_same_time(tmp_path: Path) -> None:
    worked: list[str] = []
    answers: list[dict[str, Any] | None] = []

    def ask(request_id: str) -> None:
        with gate.request(request_id, directory=tmp_path) as request:
            result = request.result
            if result is None:
                worked.append(request_id)
                time.sleep(0.05)
                request.keep({"passed": True, "id": request_id})
            answers.append(request.result)

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("a", "a", "b", "a")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(worked) == ["a", "b"]
    assert len(answers) == 4
    assert all(answers)


def test_results_are_kept_by_any_id_and_not_for_ever(tmp_path: Path) -> None:
    for name in ["../../etc/passwd", *(f"request-{n}" for n in range(30))]:
        with gate.request(name, directory=tmp_path) as request:
            request.keep({"id": name})
            assert request.result == {"id": name}
    kept = list(tmp_path.glob("*.json"))
    assert len(kept) == 20
    assert {path.parent for path in kept} == {tmp_path}
    assert (tmp_path / "request-29.json").exists()


def test_a_result_that_was_cut_off_is_work_to_do_again(tmp_path: Path) -> None:
    with gate.request("a", directory=tmp_path) as request:
        assert request.result is None


def test_of_many_workers_only_those_that_differ_are_told() -> None:
    names = [f"cpu-static-{number}" for number in range(1, 129)]

    def told(printed: list[str]) -> str:
        lines = "".join(f"{name} ip-{name}\n" for name in printed)
        tester = smoke_test.Tester(
            lambda argv, **_: subprocess.CompletedProcess(argv, 1, lines, "srun: error: the cause"), "admin"
        )
        tester.hosts = {name: f"ip-{name}" for name in names}
        tester.launch("cpu", names)
        return tester.checks[0].detail.removeprefix("exit status 1; of 128 expected ")

    cause = "; srun: error: the cause"
    assert told(names[:-1]) == "cpu-static-128 ip-cpu-static-128 did not come; got the other 127" + cause
    assert told([]).endswith(" and 120 more did not come; got no output" + cause)
    assert told(names) == "none did not come; got the other 128" + cause
