"""Every request gets exactly one answer from the smoke test's functions, small enough to be taken."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slurm_cluster.runtime.functions import answer
from slurm_cluster.runtime.functions.smoke_test import cloud as cloud_module
from slurm_cluster.runtime.functions.smoke_test import index, report
from slurm_cluster.runtime.functions.smoke_test import watch as watch_module
from slurm_cluster.runtime.functions.smoke_test.watch import Finding, Watch
from tests.runtime.cloudformation_double import CloudFormation
from tests.runtime.function_doubles import Clouds, Context, ends_with, evidence_of, failed_finding, request_of
from tests.runtime.gate_doubles import PASSED

HUGE = "\U0001f600\n\x1b" * 33_000 + "é" * 1_000
"""More than 100 KB, none of its characters short in JSON."""


def test_success_tells_the_hosts(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(monkeypatch, Finding(evidence=evidence_of(PASSED)))
    index.on_event(request_of(cloudformation), Context())
    (sent,) = cloudformation.answers
    assert sent["Status"] == "SUCCESS"
    assert sent["PhysicalResourceId"] == index.FIRST_PHYSICAL_ID
    assert sent["Data"]["Hosts"] == "cpu-static-1=ip-10-0-0-5,cpu-static-2=ip-10-0-0-6"
    assert order == ["answer"]


def test_failure_tells_why_after_the_report_is_written(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(monkeypatch, failed_finding())
    index.on_event(request_of(cloudformation), Context())
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
        failed_finding(HUGE),
        Finding(evidence=evidence_of({**PASSED, "output": HUGE, "nodes": {f"cpu-static-{n}": HUGE for n in range(9)}})),
        RuntimeError(HUGE),
    ],
    ids=["verdict", "output", "exception"],
)
def test_no_answer_reaches_4_kb(
    result: Any, cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(HUGE.encode()) > 100_000
    ends_with(monkeypatch, result)
    index.on_event(request_of(cloudformation), Context())
    assert len(cloudformation.answers) == 1
    assert 500 < cloudformation.sizes[0] < answer.LIMIT


@pytest.mark.parametrize("physical_id", ["made by another release", "", index.FIRST_PHYSICAL_ID])
def test_delete_succeeds_whatever_was_before_and_again(
    physical_id: str, cloudformation: CloudFormation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_module, "Cloud", lambda: pytest.fail("AWS was asked"))
    event = request_of(cloudformation, "Delete", PhysicalResourceId=physical_id, ResourceProperties={})
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
    ends_with(monkeypatch, error)
    index.on_event(request_of(cloudformation), Context())
    (sent,) = cloudformation.answers
    assert sent["Status"] == "FAILED"
    assert type(error).__name__ in sent["Reason"]
    assert "log group the-log-group, stream 2026/11/30/[$LATEST]0123" in sent["Reason"]


@pytest.mark.parametrize("properties", [{}, {"NodeNames": ["a"], "WorkerInstanceIds": []}])
def test_a_malformed_request_is_answered(properties: Any, cloudformation: CloudFormation, cloud: Clouds) -> None:
    index.on_event(request_of(cloudformation, ResourceProperties=properties), Context())
    assert cloudformation.answers[0]["Status"] == "FAILED"


def test_an_invocation_that_ends_hands_over_and_does_not_answer(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(monkeypatch, None)
    event = request_of(cloudformation)
    index.on_event(event, Context())
    assert cloudformation.answers == []
    ((function, handed),) = cloud.invoked
    assert function == Context.invoked_function_arn
    assert handed[index.REQUEST] == event
    started = handed[index.PROGRESS]["started"]
    # what was handed over survives JSON, and the clock of the budget goes on
    ends_with(monkeypatch, failed_finding())
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
    ends_with(monkeypatch, None)

    def refuse(*_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "Invoke")

    monkeypatch.setattr(cloud, "go_on", refuse)
    index.on_event(request_of(cloudformation), Context())
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
        return failed_finding()

    monkeypatch.setattr(watch_module.Watch, "run", hang)
    monkeypatch.setattr(report, "write", lambda *_: "stream")
    index.on_event(request_of(cloudformation), Context(invocation))
    # and not a second time when it comes to its end after all
    (sent,) = cloudformation.answers
    assert sent["Reason"] == "the smoke test did not come to an end in time"


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_request_whose_invocation_died_is_answered(
    handed_over: bool, cloudformation: CloudFormation, cloud: Clouds
) -> None:
    event = request_of(cloudformation)
    payload = {index.REQUEST: event, index.PROGRESS: {"started": 1.0}} if handed_over else event
    death = {
        "requestContext": {"condition": "RetriesExhausted"},
        "requestPayload": payload,
        "responsePayload": {"errorType": "Runtime.ExitError", "errorMessage": "RequestId: x Error: signal: killed"},
    }
    index.on_death(death, Context())
    index.on_death(
        {**death, "requestPayload": request_of(cloudformation, "Delete"), "responsePayload": None}, Context()
    )
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
    ends_with(monkeypatch, failed_finding())
    cloudformation.refusals = 1
    with caplog.at_level(logging.DEBUG):
        event = request_of(cloudformation)
        index.on_event(event, Context())
        index.on_event({index.REQUEST: event, index.PROGRESS: {"started": 1.0}}, Context())
        index.on_death({"requestPayload": event}, Context())
    assert "not taken" in caplog.text
    assert "Signature=secret" not in caplog.text
    assert "127.0.0.1" not in caplog.text
