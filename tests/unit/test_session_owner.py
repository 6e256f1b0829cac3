"""What the owner of a session does: the plan's verb, reports at every end, what is kept and until when."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal import owner
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.interrupts import Interrupted
from slurm_cluster.rehearsal.owner import Plan, Verb, perform
from slurm_cluster.rehearsal.progress import Progress, Span
from slurm_cluster.rehearsal.record import State
from slurm_cluster.rehearsal.report import Report, SmokeTest

HEAD = {"instance_id": "i-1", "private_ip": "10.0.0.4"}


class FakeRehearsal:
    """A deployed app with one head, without anything behind it."""

    def __init__(self, *, heads: list[str], passes: bool, standing: bool) -> None:
        self.heads = heads
        self.standing = standing
        self.progress = Progress(lambda line: None)
        self.did: list[str] = []
        self.rollback: bool | None = None
        self._passes = passes

    def smoke_test(self, head: str) -> SmokeTest:
        self.did.append(f"smoke test {head}")
        return SmokeTest(passed=self._passes, nodes={}, checks=(), output="cpu-static-1 ip-10-0-0-5\n")

    def destroy(self) -> None:
        self.did.append("destroy")
        self.progress.record(Span("cdk destroy", 1, 2))

    def mark(self, state: State) -> None:
        self.did.append(f"mark {state}")

    def raise_failure(self) -> None:
        pass

    def report(self, failure: str | None = None) -> Report:
        return Report(
            app="/app",
            context={},
            image=ImageKind.BAKED,
            session="ab12",
            began=datetime(2030, 1, 1, tzinfo=UTC),
            seconds=1,
            failure=failure,
            outputs={},
            nodes={} if "destroy" in self.did or not self.heads else {"head": HEAD},
            smoke_tests={},
            spans=tuple(self.progress.spans()),
            refused=(),
            differences=(),
        )


class Fakes:
    """Takes the place of ``Rehearsal`` in the owner."""

    def __init__(self, fake: FakeRehearsal, deploy_error: Exception | None = None) -> None:
        self._fake, self._error = fake, deploy_error

    @contextmanager
    def deployed(
        self, app_dir: Path, *, rollback: bool, on_failure: Callable[[Any, Exception], None], **_: object
    ) -> Iterator[FakeRehearsal]:
        self._fake.rollback = rollback
        try:
            if self._error:
                raise self._error
            yield self._fake
        except Exception as error:
            on_failure(self._fake, error)
            raise
        finally:
            self._fake.did.append("close")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(
        verb=Verb.RUN,
        app_dir=tmp_path,
        context={"cluster_name": "lab"},
        image=ImageKind.BAKED,
        keep_on_failure=False,
        json=tmp_path / "report.json",
        timeline=tmp_path / "timeline.svg",
        hours=1,
    )


def fake(
    monkeypatch: pytest.MonkeyPatch,
    *,
    passes: bool = True,
    standing: bool = True,
    deploy_error: Exception | None = None,
    heads: tuple[str, ...] = ("head",),
) -> FakeRehearsal:
    made = FakeRehearsal(heads=list(heads), passes=passes, standing=standing)
    monkeypatch.setattr(owner, "Rehearsal", Fakes(made, deploy_error))

    def sleep(_: float) -> None:
        made.did.append("hold")
        raise Interrupted(15)

    monkeypatch.setattr(time, "sleep", sleep)
    return made


def read(plan: Plan) -> dict[str, Any]:
    assert plan.json
    value: dict[str, Any] = json.loads(plan.json.read_text())
    return value


def test_a_plan_reaches_another_process_as_it_is(plan: Plan) -> None:
    for one in (plan, replace(plan, json=None, timeline=None, verb=Verb.UP, image=ImageKind.STOCK, hours=0.5)):
        assert Plan.from_text(one.to_text()) == one


def test_run_destroys_and_reports(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made, said = fake(monkeypatch), list[str]()
    perform(plan, said.append)
    assert made.did == ["smoke test head", "destroy", "close"]
    assert said[-1] == "passed; nothing is left"
    assert "  cpu-static-1 ip-10-0-0-5" in said
    value = read(plan)
    assert value["passed"]
    assert value["nodes"] == {"head": {"instance_id": "i-1", "private_ip": "10.0.0.4"}}
    assert [span["what"] for span in value["timeline"]] == ["cdk destroy"]
    assert plan.timeline
    assert "cdk destroy" in plan.timeline.read_text()


def test_an_app_without_a_cluster_is_deployed_and_destroyed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made, said = fake(monkeypatch, heads=()), list[str]()
    perform(plan, said.append)
    assert made.did == ["destroy", "close"]
    assert "the app has no head node of a cluster: no smoke test was run" in said


def test_each_cluster_is_tested(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake(monkeypatch, heads=("head", "head@i-2"))
    perform(plan, lambda line: None)
    assert made.did[:2] == ["smoke test head", "smoke test head@i-2"]


@pytest.mark.parametrize("error", [None, RehearsalError("cdk deploy exited with 1")])
def test_a_failure_is_reported_and_nothing_kept(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    made = fake(monkeypatch, passes=False, deploy_error=error)
    with pytest.raises(RehearsalError):
        perform(plan, lambda line: None)
    assert made.did[-1] == "close"
    assert "hold" not in made.did
    assert read(plan)["passed"] is False
    assert read(plan)["failure"] == (str(error) if error else "the smoke test did not pass on head")


def test_what_failed_is_kept_until_it_is_told_to_end(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made, said, outcomes = fake(monkeypatch, passes=False), list[str](), list[int]()
    with pytest.raises(RehearsalError):
        perform(replace(plan, keep_on_failure=True), said.append, outcomes.append)
    assert made.did == ["smoke test head", "mark failed", "hold", "close"]
    assert outcomes == [1]
    assert f"  {sys.executable} -m slurm_cluster.rehearsal shell --session ab12 NODE" in said


@pytest.mark.parametrize("keep", [False, True])
def test_what_is_to_be_kept_is_not_rolled_back(plan: Plan, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    made = fake(monkeypatch)
    perform(replace(plan, keep_on_failure=keep), lambda line: None, lambda code: None)
    assert made.rollback is not keep


def test_a_session_that_is_kept_without_machines_says_so(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    fake(monkeypatch, heads=(), deploy_error=RehearsalError("no such type"))
    with pytest.raises(RehearsalError):
        perform(replace(plan, keep_on_failure=True), said.append, lambda code: None)
    assert "session ab12 stays without a machine, with its AWS APIs, for 1 hours at most" in "\n".join(said)
    assert not [line for line in said if "rehearsal shell" in line or "rehearsal exec" in line]


def test_what_has_nothing_to_look_into_is_not_kept(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made, outcomes = fake(monkeypatch, standing=False, deploy_error=RehearsalError("no image")), list[int]()
    with pytest.raises(RehearsalError):
        perform(replace(plan, keep_on_failure=True), lambda line: None, outcomes.append)
    assert made.did == ["close"]
    assert outcomes == []


def test_up_stays_up_until_it_is_told_to_end(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made, outcomes = fake(monkeypatch), list[int]()
    perform(replace(plan, verb=Verb.UP), lambda line: None, outcomes.append)
    assert made.did == ["hold", "close"]
    assert outcomes == [0]
    assert read(plan)["passed"]


def test_up_ends_by_itself_after_its_hours(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake(monkeypatch)
    perform(replace(plan, verb=Verb.UP, hours=1e-12), lambda line: None, lambda code: None)
    assert made.did[-1] == "close"
    assert made.did.count("hold") <= 1


def test_a_cluster_that_breaks_while_it_is_up_ends_the_session(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fake(monkeypatch)

    def broken() -> None:
        raise RehearsalError("ministack has ended")

    monkeypatch.setattr(made, "raise_failure", broken)
    with pytest.raises(RehearsalError, match="ministack has ended"):
        perform(replace(plan, verb=Verb.UP), lambda line: None, lambda code: None)
    assert read(plan)["failure"] == "ministack has ended"
