"""Every request gets exactly one answer from the smoke test's functions, small enough to be taken."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from slurm_cluster.runtime.evidence import Evidence
from slurm_cluster.runtime.fault import Code, Verdict
from slurm_cluster.runtime.functions import answer
from slurm_cluster.runtime.functions.smoke_test import cloud as cloud_module
from slurm_cluster.runtime.functions.smoke_test import index, report
from slurm_cluster.runtime.functions.smoke_test import watch as watch_module
from slurm_cluster.runtime.functions.smoke_test.watch import Finding, Watch
from tests.runtime.cloudformation_double import CloudFormation, listening
from tests.runtime.gate_doubles import PASSED

HUGE = "\U0001f600\n\x1b" * 33_000 + "é" * 1_000
"""More than 100 KB, none of its characters short in JSON."""


class Context:
    """What Lambda passes to a handler."""

    log_stream_name = "2026/11/30/[$LATEST]0123"
    invoked_function_arn = "arn:aws:lambda:eu-west-1:111122223333:function:test"

    def __init__(self, seconds: float = 900) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


class Clouds:
    """In place of AWS: remembers what it is asked to go on with."""

    def __init__(self) -> None:
        self.rolling_back = False
        self.outages: list[Exception] = []
        """What the next questions about the stack end with."""
        self.asked = 0
        self.invoked: list[tuple[str, Any]] = []

    def is_rolling_back(self, stack_id: str) -> bool:
        self.asked += 1
        if self.outages:
            raise self.outages.pop(0)
        return self.rolling_back

    def go_on(self, function: str, event: Any) -> None:
        self.invoked.append((function, event))


@pytest.fixture
def cloudformation() -> Iterator[CloudFormation]:
    with listening() as server:
        yield server


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Clouds:
    clouds = Clouds()
    monkeypatch.setattr(cloud_module, "Cloud", lambda: clouds)
    monkeypatch.setattr("threading.Timer", _no_timer)  # tests that need it put the real one back
    for name, value in (("ON_UPDATE", "free"), ("BUDGET_SECONDS", "1800"), ("LOG_GROUP", "the-log-group")):
        monkeypatch.setenv(name, value)
    return clouds


def _no_timer(*_: Any) -> Any:
    return SimpleNamespace(start=lambda: None, cancel=lambda: None, daemon=True)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written and sent, in its order."""
    happened: list[str] = []
    send = answer.send

    def write(log_group: str, request_id: str, content: Any) -> str:
        assert json.loads(json.dumps(content))["request_id"] == request_id == "r-1"
        happened.append("report")
        return "the-stream"

    def sent(*arguments: Any, **options: Any) -> None:
        happened.append("answer")
        send(*arguments, **options)

    monkeypatch.setattr(report, "write", write)
    monkeypatch.setattr(answer, "send", sent)
    return happened


def _event(cloudformation: CloudFormation, kind: str = "Create", **more: Any) -> dict[str, Any]:
    return {
        "RequestType": kind,
        "ResponseURL": cloudformation.url,
        "StackId": "arn:aws:cloudformation:eu-west-1:111122223333:stack/s/guid",
        "RequestId": "r-1",
        "LogicalResourceId": "SmokeTest",
        "ResourceProperties": {
            "HeadInstanceId": "i-h",
            "NodeNames": ["cpu-static-1"],
            "WorkerInstanceIds": ["i-1"],
            "HeadGroupId": "sg-h",
            "WorkerGroupId": "sg-w",
            "SrunPorts": "1024-65535",
        },
        **({} if kind == "Create" else {"PhysicalResourceId": index.FIRST_PHYSICAL_ID}),
        **more,
    }


def _ends(monkeypatch: pytest.MonkeyPatch, result: Finding | BaseException | None) -> None:
    def run(self: Watch, until: float) -> Finding | None:
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(watch_module.Watch, "run", run)


def _evidence(gate: Any = None) -> Evidence:
    return Evidence(machines={}, groups={}, gate=gate)


def _failed(sentence: str = "srun-io: cpu-static-1 cannot open TCP 1024.") -> Finding:
    verdict = Verdict(code=Code.SRUN_IO_BLOCKED, node="cpu-static-1", sentence=sentence, change="Add the rule.")
    return Finding(evidence=_evidence(), verdict=verdict)


def test_success_tells_the_hosts(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _ends(monkeypatch, Finding(evidence=_evidence(PASSED)))
    index.on_event(_event(cloudformation), Context())
    (sent,) = cloudformation.answers
    assert sent["Status"] == "SUCCESS"
    assert sent["PhysicalResourceId"] == index.FIRST_PHYSICAL_ID
    assert sent["Data"]["Hosts"] == "cpu-static-1=ip-10-0-0-5,cpu-static-2=ip-10-0-0-6"
    assert order == ["answer"]


def test_failure_tells_why_after_the_report_is_written(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _ends(monkeypatch, _failed())
    index.on_event(_event(cloudformation), Context())
    (sent,) = cloudformation.answers
    assert sent["Status"] == "FAILED"
    assert sent["Reason"] == (
        "srun-io-blocked: srun-io: cpu-static-1 cannot open TCP 1024. Add the rule. "
        "Report: log group the-log-group, stream the-stream"
    )
    assert sent["PhysicalResourceId"] == index.FIRST_PHYSICAL_ID
    assert order == ["report", "answer"]


@pytest.mark.parametrize(
    "result",
    [
        _failed(HUGE),
        Finding(evidence=_evidence({**PASSED, "output": HUGE, "nodes": {f"cpu-static-{n}": HUGE for n in range(9)}})),
        RuntimeError(HUGE),
    ],
    ids=["verdict", "output", "exception"],
)
def test_no_answer_reaches_4_kb(
    result: Any, cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(HUGE.encode()) > 100_000
    _ends(monkeypatch, result)
    index.on_event(_event(cloudformation), Context())
    assert len(cloudformation.answers) == 1
    assert 500 < cloudformation.sizes[0] < answer.LIMIT


@pytest.mark.parametrize("physical_id", ["made by another release", "", index.FIRST_PHYSICAL_ID])
def test_delete_succeeds_whatever_was_before_and_again(
    physical_id: str, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_module, "Cloud", lambda: pytest.fail("AWS was asked"))
    event = _event(cloudformation, "Delete", PhysicalResourceId=physical_id, ResourceProperties={})
    for _ in range(2):
        index.on_event(event, Context())
    assert [sent["Status"] for sent in cloudformation.answers] == ["SUCCESS"] * 2
    assert cloudformation.answers[0]["PhysicalResourceId"] == (physical_id or index.FIRST_PHYSICAL_ID)


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "AccessDeniedException", "Message": "ssm:SendCommand"}}, "SendCommand"),
        KeyError("HeadInstanceId"),
        MemoryError(),
    ],
)
def test_every_failure_of_the_function_itself_is_answered(
    error: Exception, cloudformation: CloudFormation, cloud: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ends(monkeypatch, error)
    index.on_event(_event(cloudformation), Context())
    (sent,) = cloudformation.answers
    assert sent["Status"] == "FAILED"
    assert type(error).__name__ in sent["Reason"]
    assert "log group the-log-group, stream 2026/11/30/[$LATEST]0123" in sent["Reason"]


@pytest.mark.parametrize("properties", [{}, {"NodeNames": ["a"], "WorkerInstanceIds": []}])
def test_a_malformed_request_is_answered(properties: Any, cloudformation: CloudFormation, cloud: Clouds) -> None:
    index.on_event(_event(cloudformation, ResourceProperties=properties), Context())
    assert cloudformation.answers[0]["Status"] == "FAILED"


def test_an_invocation_that_ends_hands_over_and_does_not_answer(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _ends(monkeypatch, None)
    event = _event(cloudformation)
    index.on_event(event, Context())
    assert cloudformation.answers == []
    ((function, handed),) = cloud.invoked
    assert function == Context.invoked_function_arn
    assert handed[index.REQUEST] == event
    started = handed[index.PROGRESS]["started"]
    # what was handed over survives JSON, and the clock of the budget goes on
    _ends(monkeypatch, _failed())
    seen: list[Watch] = []
    run = watch_module.Watch.run

    def noted(self: Watch, until: float) -> Finding | None:
        seen.append(self)
        return run(self, until)

    monkeypatch.setattr(watch_module.Watch, "run", noted)
    index.on_event(json.loads(json.dumps(handed)), Context())
    assert seen[0].progress.started == started
    assert cloudformation.answers[0]["Status"] == "FAILED"


def test_an_invocation_that_cannot_hand_over_answers(
    cloudformation: CloudFormation, cloud: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ends(monkeypatch, None)

    def refuse(*_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Invoke")

    monkeypatch.setattr(cloud, "go_on", refuse)
    index.on_event(_event(cloudformation), Context())
    assert "AccessDeniedException" in cloudformation.answers[0]["Reason"]


@pytest.mark.parametrize(
    ("invocation", "budget"), [(index.LAST_WORD_SECONDS + 0.2, 1800), (900, index.LAST_WORD_SECONDS + 0.2)]
)
def test_it_answers_before_its_own_end_whatever_it_is_doing(
    invocation: float, budget: float, cloudformation: CloudFormation, cloud: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(cloud_module, "Cloud", lambda: cloud)
    monkeypatch.setenv("LOG_GROUP", "the-log-group")
    monkeypatch.setenv("ON_UPDATE", "free")
    monkeypatch.setenv("BUDGET_SECONDS", str(budget))

    def hang(self: Watch, until: float) -> Finding:
        time.sleep(1)
        return _failed()

    monkeypatch.setattr(watch_module.Watch, "run", hang)
    monkeypatch.setattr(report, "write", lambda *_: "stream")
    index.on_event(_event(cloudformation), Context(invocation))
    # and not a second time when it comes to its end after all
    (sent,) = cloudformation.answers
    assert sent["Reason"] == "the smoke test did not come to an end in time"


def test_a_report_that_cannot_be_written_in_time_does_not_cost_the_verdict(
    cloudformation: CloudFormation, cloud: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(cloud_module, "Cloud", lambda: cloud)
    for name, value in (("ON_UPDATE", "free"), ("BUDGET_SECONDS", "1800"), ("LOG_GROUP", "the-log-group")):
        monkeypatch.setenv(name, value)
    _ends(monkeypatch, _failed())

    def write(*_: Any) -> str:
        time.sleep(1)
        return "stream"

    monkeypatch.setattr(report, "write", write)
    index.on_event(_event(cloudformation), Context(index.LAST_WORD_SECONDS + 0.2))
    (sent,) = cloudformation.answers
    assert sent["Status"] == "FAILED"
    assert sent["Reason"].startswith("srun-io-blocked: srun-io: cpu-static-1 cannot open TCP 1024. Add the rule. ")
    assert "the-log-group" in sent["Reason"]


def test_a_rollback_is_not_held_up(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _ends(monkeypatch, _failed())
    index.on_event(_event(cloudformation, "Update"), Context())
    cloud.rolling_back = True
    index.on_event(_event(cloudformation, "Update"), Context())
    # a first create has nothing to go back to
    index.on_event(_event(cloudformation), Context())
    failed, rolled_back, created = cloudformation.answers
    assert failed["Status"] == created["Status"] == "FAILED"
    assert rolled_back["Status"] == "SUCCESS"
    assert rolled_back["Data"]["Hosts"] == "not proven, the rollback was not held up"
    assert rolled_back["Data"]["Output"].startswith("srun-io-blocked: ")


UNREACHED = EndpointConnectionError(endpoint_url="https://cloudformation")
THROTTLED = ClientError({"Error": {"Code": "Throttling", "Message": "slowly"}}, "DescribeStacks")
REFUSED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeStacks")


@pytest.mark.parametrize("outages", [[UNREACHED], [UNREACHED, THROTTLED] * 20, [ValueError("no JSON")]])
def test_a_rollback_is_not_held_up_by_an_outage_of_cloudformation(
    outages: list[Exception],
    cloudformation: CloudFormation,
    cloud: Clouds,
    order: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    _ends(monkeypatch, _failed())
    cloud.rolling_back, cloud.outages = True, list(outages)
    index.on_event(_event(cloudformation, "Update"), Context())
    (sent,) = cloudformation.answers
    assert (sent["Status"], cloud.outages) == ("SUCCESS", [])
    assert len(waited) == len(outages) - 1, "it was asked at once at the beginning and at the end"


def test_what_was_known_of_a_rollback_is_not_asked_again_and_handed_over(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.rolling_back = True
    _ends(monkeypatch, None)
    index.on_event(_event(cloudformation, "Update"), Context())
    ((_, handed),) = cloud.invoked
    cloud.outages = [UNREACHED] * 99
    _ends(monkeypatch, _failed())
    index.on_event(json.loads(json.dumps(handed)), Context())
    index.on_death({"requestPayload": handed}, Context())
    assert [sent["Status"] for sent in cloudformation.answers] == ["SUCCESS"] * 2
    assert cloud.asked == 1


@pytest.mark.parametrize("outage", [UNREACHED, REFUSED])
def test_an_update_of_which_nobody_knows_whether_it_is_a_rollback_fails(
    outage: Exception, cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr("time.time", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    began = now[0]
    _ends(monkeypatch, _failed())
    cloud.outages = [outage] * 9999
    index.on_event(_event(cloudformation, "Update"), Context(900))
    (sent,) = cloudformation.answers
    assert sent["Status"] == "FAILED"
    assert sent["Reason"].startswith("srun-io-blocked: ")
    # a refusal does not pass
    assert (now[0] - began > 600) == (outage is UNREACHED)
    assert now[0] - began < 900 - index.LAST_WORD_SECONDS


@pytest.mark.parametrize(
    ("kind", "rolling_back", "tested"),
    [("Update", False, "all"), ("Update", True, "free"), ("Create", True, "all")],
)
def test_a_rollback_waits_for_nobodys_job(
    kind: str,
    rolling_back: bool,
    tested: str,
    cloudformation: CloudFormation,
    cloud: Clouds,
    order: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def run(self: Watch, until: float) -> Finding:
        seen.append(self.settings.on_update)
        return Finding(evidence=_evidence(PASSED))

    monkeypatch.setattr(watch_module.Watch, "run", run)
    monkeypatch.setenv("ON_UPDATE", "all")
    cloud.rolling_back = rolling_back
    index.on_event(_event(cloudformation, kind), Context())
    assert seen == [tested]


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_request_whose_invocation_died_is_answered(
    handed_over: bool, cloudformation: CloudFormation, cloud: Clouds
) -> None:
    event = _event(cloudformation)
    payload = {index.REQUEST: event, index.PROGRESS: {"started": 1.0}} if handed_over else event
    death = {
        "requestContext": {"condition": "RetriesExhausted"},
        "requestPayload": payload,
        "responsePayload": {"errorType": "Runtime.ExitError", "errorMessage": "RequestId: x Error: signal: killed"},
    }
    index.on_death(death, Context())
    index.on_death({**death, "requestPayload": _event(cloudformation, "Delete"), "responsePayload": None}, Context())
    index.on_death({**death, "responsePayload": None}, Context())
    died, deleted, unexplained = cloudformation.answers
    assert died["Status"] == "FAILED"
    assert "the function of the smoke test died: RequestId: x Error: signal: killed" in died["Reason"]
    assert deleted["Status"] == "SUCCESS"
    assert "RetriesExhausted" in unexplained["Reason"]


def test_the_url_is_never_logged(
    cloudformation: CloudFormation,
    cloud: Clouds,
    order: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    _ends(monkeypatch, _failed())
    cloudformation.refusals = 1
    with caplog.at_level(logging.DEBUG):
        event = _event(cloudformation)
        index.on_event(event, Context())
        index.on_event({index.REQUEST: event, index.PROGRESS: {"started": 1.0}}, Context())
        index.on_death({"requestPayload": event}, Context())
    assert "not taken" in caplog.text
    assert "Signature=secret" not in caplog.text
    assert "127.0.0.1" not in caplog.text
