import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.image import ImageKind, replaced
from slurm_cluster.rehearsal.progress import Span
from slurm_cluster.rehearsal.report import (
    NOT_REHEARSED,
    Report,
    SmokeTest,
    limits_lines,
    not_rehearsed,
    smoke_test_lines,
    timeline_lines,
)

RESULT = {
    "passed": False,
    "nodes": {"cpu-static-1": "ip-10-0-64-5"},
    "checks": [
        {"name": "workers-idle", "passed": True, "seconds": 0.25, "detail": "1 workers are idle"},
        {"name": "srun:cpu", "passed": False, "seconds": 60, "detail": "nothing printed"},
        {"name": "srun-in-job:cpu", "passed": None, "seconds": 0, "detail": "the partition has one static worker"},
    ],
    "output": "cpu-static-1 ip-10-0-64-5\n",
}


def test_what_srun_printed_and_each_check() -> None:
    assert list(smoke_test_lines(SmokeTest.from_dict(RESULT))) == [
        "srun printed (node name, host name):",
        "  cpu-static-1 ip-10-0-64-5",
        "check workers-idle: passed in 0.2 s",
        "check srun:cpu: FAILED after 60.0 s: nothing printed",
        "check srun-in-job:cpu: does not apply: the partition has one static worker",
    ]


def test_the_timeline_tells_begin_and_duration() -> None:
    assert list(timeline_lines([Span("cdk deploy", 3.5, 14.6)]))[1:] == ["           3.5s   11.1s  cdk deploy"]


@pytest.mark.parametrize("kind", list(ImageKind))
def test_the_limits_name_everything_and_differences_only_if_any(kind: ImageKind) -> None:
    said = list(limits_lines(kind, []))
    assert [line.strip() for line in said if line.startswith("  ")] == [
        *replaced(kind, cgroups.version()),
        *not_rehearsed(kind),
    ]
    assert not any("reported otherwise" in line for line in said)
    assert list(limits_lines(kind, ["AWS::EC2::VPC vpc-1: Tags"]))[-1] == "  AWS::EC2::VPC vpc-1: Tags"


def test_a_stock_image_leaves_less_unproven_and_says_whose_key_signed() -> None:
    baked, stock = (set(not_rehearsed(kind)) for kind in (ImageKind.BAKED, ImageKind.STOCK))
    assert baked == set(NOT_REHEARSED)
    assert baked - stock == {"the installation and the registration of the SSM agent"}
    (agent,) = stock - baked
    assert "signed by another key than AWS's" in agent


REPORT = Report(
    app="/home/me/app",
    context={"cluster_name": "lab"},
    image=ImageKind.BAKED,
    session="ab12",
    began=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
    seconds=61.26,
    failure=None,
    outputs={"Stack": {"Head": "i-1"}},
    nodes={"head": {"instance_id": "i-1", "private_ip": "10.0.64.4"}},
    smoke_tests={"head": SmokeTest.from_dict(RESULT)},
    spans=(Span("head: bootstrap", 2.04, 9.0, parts=(("munge", 2.04, 3.0),)),),
    refused=("refused: a to b",),
    differences=(),
)


def test_the_json_report_can_be_read_back() -> None:
    value = json.loads(json.dumps(REPORT.as_dict()))
    assert (value["passed"], value["failure"], value["session"]) == (True, None, "ab12")
    assert value["began"] == "2030-01-02T03:04:05+00:00"
    assert value["timeline"] == [
        {
            "what": "head: bootstrap",
            "began": 2.0,
            "ended": 9.0,
            "failed": False,
            "parts": [{"what": "munge", "began": 2.0, "ended": 3.0}],
        }
    ]
    assert SmokeTest.from_dict(value["smoke_tests"]["head"]) == REPORT.smoke_tests["head"]
    assert value["not_rehearsed"] == list(NOT_REHEARSED)


def test_a_failure_is_in_report_and_title() -> None:
    failed = replace(REPORT, failure="cdk deploy exited with 1")
    assert (failed.as_dict()["passed"], failed.as_dict()["failure"]) == (False, "cdk deploy exited with 1")
    assert failed.title == "rehearsal of /home/me/app: failed after 61 s"
    assert REPORT.title == "rehearsal of /home/me/app: passed after 61 s"


def test_people_read_timeline_refusals_and_limits() -> None:
    lines = list(REPORT.lines())
    assert lines[:3] == ["timeline: began    took", "           2.0s    7.0s  head: bootstrap", "refused: a to b"]
    assert "not rehearsed:" in lines
