"""What surrounds the smoke test's functions: Lambda, AWS, CloudFormation's request, and how the test ends."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.runtime.evidence import Evidence
from slurm_cluster.runtime.fault import Code, Verdict
from slurm_cluster.runtime.functions.smoke_test import index
from slurm_cluster.runtime.functions.smoke_test import watch as watch_module
from slurm_cluster.runtime.functions.smoke_test.watch import Finding, Watch
from tests.runtime.cloudformation_double import CloudFormation


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


def request_of(cloudformation: CloudFormation, kind: str = "Create", **more: Any) -> dict[str, Any]:
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


def ends_with(monkeypatch: pytest.MonkeyPatch, result: Finding | BaseException | None) -> None:
    def run(self: Watch, until: float) -> Finding | None:
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(watch_module.Watch, "run", run)


def evidence_of(gate: Any = None) -> Evidence:
    return Evidence(machines={}, groups={}, gate=gate)


def failed_finding(sentence: str = "srun-io: cpu-static-1 cannot open TCP 1024.") -> Finding:
    verdict = Verdict(code=Code.SRUN_IO_BLOCKED, node="cpu-static-1", sentence=sentence, change="Add the rule.")
    return Finding(evidence=evidence_of(), verdict=verdict)
