"""A rollback, and what AWS does not answer, cost neither the stack nor the verdict."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from slurm_cluster.runtime.functions.smoke_test import cloud as cloud_module
from slurm_cluster.runtime.functions.smoke_test import index, report
from slurm_cluster.runtime.functions.smoke_test import watch as watch_module
from slurm_cluster.runtime.functions.smoke_test.watch import Finding, Watch
from tests.runtime.cloudformation_double import CloudFormation
from tests.runtime.function_doubles import Clouds, Context, ends_with, evidence_of, failed_finding, request_of
from tests.runtime.gate_doubles import PASSED


def test_a_report_that_cannot_be_written_in_time_does_not_cost_the_verdict(
    cloudformation: CloudFormation, cloud: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(cloud_module, "Cloud", lambda: cloud)
    for name, value in (("ON_UPDATE", "free"), ("BUDGET_SECONDS", "1800"), ("LOG_GROUP", "the-log-group")):
        monkeypatch.setenv(name, value)
    ends_with(monkeypatch, failed_finding())

    def write(*_: Any) -> str:
        time.sleep(1)
        return "stream"

    monkeypatch.setattr(report, "write", write)
    index.on_event(request_of(cloudformation), Context(index.LAST_WORD_SECONDS + 0.2))
    (sent,) = cloudformation.answers
    assert sent["Status"] == "FAILED"
    assert sent["Reason"].startswith("srun-io-blocked: srun-io: cpu-static-1 cannot open TCP 1024. Add the rule. ")
    assert "the-log-group" in sent["Reason"]


def test_a_rollback_is_not_held_up(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(monkeypatch, failed_finding())
    index.on_event(request_of(cloudformation, "Update"), Context())
    cloud.rolling_back = True
    index.on_event(request_of(cloudformation, "Update"), Context())
    # a first create has nothing to go back to
    index.on_event(request_of(cloudformation), Context())
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
    ends_with(monkeypatch, failed_finding())
    cloud.rolling_back, cloud.outages = True, list(outages)
    index.on_event(request_of(cloudformation, "Update"), Context())
    (sent,) = cloudformation.answers
    assert (sent["Status"], cloud.outages) == ("SUCCESS", [])
    assert len(waited) == len(outages) - 1, "it was asked at once at the beginning and at the end"


def test_what_was_known_of_a_rollback_is_not_asked_again_and_handed_over(
    cloudformation: CloudFormation, cloud: Clouds, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.rolling_back = True
    ends_with(monkeypatch, None)
    index.on_event(request_of(cloudformation, "Update"), Context())
    ((_, handed),) = cloud.invoked
    cloud.outages = [UNREACHED] * 99
    ends_with(monkeypatch, failed_finding())
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
    ends_with(monkeypatch, failed_finding())
    cloud.outages = [outage] * 9999
    index.on_event(request_of(cloudformation, "Update"), Context(900))
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
        return Finding(evidence=evidence_of(PASSED))

    monkeypatch.setattr(watch_module.Watch, "run", run)
    monkeypatch.setenv("ON_UPDATE", "all")
    cloud.rolling_back = rolling_back
    index.on_event(request_of(cloudformation, kind), Context())
    assert seen == [tested]
