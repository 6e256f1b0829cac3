"""What the smoke test's function does with its time: for the gate, for machines that are silent, for AWS when it is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from slurm_cluster.model.node_files import COMMAND
from slurm_cluster.runtime.fault import Code
from slurm_cluster.runtime.functions.smoke_test.index import LAST_WORD_SECONDS
from tests.runtime.gate_doubles import PASSED, Bench


def test_the_gate_ends_its_own_wait_before_the_budget_does() -> None:
    bench = Bench()
    reason = "1 of 2 static workers are not ready: cpu-static-1 is IDLE+CLOUD+POWERED_DOWN"
    entry = {"state": "IDLE+CLOUD+POWERED_DOWN", "reason": "", "address": "", "host": "", "instance_address": ""}
    late = {**PASSED, "passed": False, "stage": "workers", "failure": {"step": "workers", "reason": reason}}
    wait = int(_numbers_of(Bench().script_of_a_run())[0])
    # it begins a little after it was sent, and looks once more after its time
    bench.cloud.gate = ({**late, "table": {"cpu-static-1": entry}}, wait + 10)
    found = bench.run().verdict
    assert found is not None
    assert found.code is Code.NODE_NEVER_REGISTERED


def _numbers_of(script: str) -> list[str]:
    return re.findall(r"--wait \$\(\((\d+) - n\)\)", script)


def test_what_was_waited_for_the_programs_is_not_waited_again(tmp_path: Path) -> None:
    program = tmp_path / "slurm-cluster"
    script = Bench().script_of_a_run().replace(str(COMMAND), str(program))
    appears = f"sleep() {{ ln -s /bin/echo {program}; }}\n"
    done = subprocess.run(["/bin/sh", "-c", appears + script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("--on-update free --wait 1558\n")


@pytest.mark.parametrize("stuck", [False, True])
@pytest.mark.parametrize("silent", [("i-1",), ("i-h", "i-1", "i-2")])
def test_machines_that_never_answer_do_not_use_up_the_budget(
    silent: tuple[str, ...], stuck: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.cloud.gate = None
    if stuck:
        bench.nodes["i-2"].status = {"state": "running", "step": "head", "seconds": 100, "reason": None}
    outcome = bench.cloud.outcome
    monkeypatch.setattr(
        bench.cloud, "outcome", lambda command, node: None if node in silent else outcome(command, node)
    )
    finding = bench.run()
    assert "No answer to a probe came from" in str(finding.verdict)
    assert bench.took() < bench.settings.budget_seconds - LAST_WORD_SECONDS


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="https://ssm.eu-west-1.amazonaws.com"),
        ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "DescribeInstances"),
        ClientError({"Error": {"Code": "Internal"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "DescribeInstances"),  # type: ignore[typeddict-item]
    ],
)
def test_an_outage_of_an_api_is_waited_over_and_a_lasting_one_reported(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    instances = bench.cloud.instances

    def fail(ids: Any) -> Any:
        if bench.took() < lasts:
            raise error
        return instances(ids)

    monkeypatch.setattr(bench.cloud, "instances", fail)
    lasts = 300
    assert bench.run().verdict is None
    lasts = 100_000
    bench = Bench()
    monkeypatch.setattr(bench.cloud, "instances", fail)
    with pytest.raises(type(error)):
        bench.run()
