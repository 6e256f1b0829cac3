"""Deployments by the real CDK CLI that must not succeed end in a rollback, with the one reason that is theirs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.session import Rehearsal
from slurm_cluster.runtime.fault import Code
from tests.rehearsal.spoiled_app import spoiled_app

pytestmark = pytest.mark.rehearsal

ONE_WORKER = {"partitions": [{"name": "cpu", "instance_type": "c7i.large", "static_nodes": 1}]}


class Ending:
    """How a deployment ended that failed.

    Args:
        directory: for the app.
        fault: see ``spoiled_app``.
        context: of the app.
    """

    def __init__(self, directory: Path, fault: str, context: dict[str, Any]) -> None:
        self.reports: list[Any] = []
        self.stacks: list[str] = []
        self.groups: dict[str, str] = {}
        self.lines: list[str] = []
        app_dir = spoiled_app(directory / "app", fault)
        with (
            pytest.raises(RehearsalError) as caught,
            Rehearsal.deployed(app_dir, context=context, emit=self.lines.append, on_failure=self._see),
        ):
            pytest.fail("it was deployed")
        self.message = str(caught.value)
        assert self.message.startswith("cdk deploy exited with 1"), self.message
        assert "ROLLBACK_COMPLETE" in self.message
        # the reason, before all else and once
        (self.reason,) = re.findall(r"CREATE_FAILED .*Custom::SlurmSmokeTest.*?\) (.*)", self.message)
        assert self.reason in self.message.splitlines()[1]

    def _see(self, rehearsal: Rehearsal, error: Exception) -> None:
        """Look at what the rollback has left."""
        logs = rehearsal.cloud.client("logs")
        for group in logs.describe_log_groups()["logGroups"]:
            name = group["logGroupName"]
            for stream in logs.describe_log_streams(logGroupName=name)["logStreams"]:
                if stream["logStreamName"].startswith("report/"):
                    events = logs.get_log_events(
                        logGroupName=name, logStreamName=stream["logStreamName"], startFromHead=True
                    )["events"]
                    self.reports.append(json.loads("".join(event["message"] for event in events)))


def test_the_app_without_the_rule_for_srun_is_rolled_back_and_says_which_rule(tmp_path: Path) -> None:
    ending = Ending(tmp_path, 'assert cluster.foundation.security.node.try_remove_child("SrunIo")', {})
    groups = dict(re.findall(r"(sg-[0-9a-f]+) \((head|worker)\)", ending.reason))
    assert sorted(groups.values()) == ["head", "worker"]
    head, worker = sorted(groups, key=lambda group: groups[group])
    assert ending.reason.startswith(f"{Code.SRUN_IO_BLOCKED}: srun-io: cpu-static-")
    assert (
        f"Add to security group {head} (head) the rule: inbound TCP 1024-65535 from security group {worker} (worker)."
        in ending.reason
    )
    # the whole report outlives the stack
    (report,) = ending.reports
    assert report["verdict"]["code"] == Code.SRUN_IO_BLOCKED
    assert report["evidence"]["gate"]["checks"][0]["name"] == "srun:cpu"
    assert f"stream report/{report['request_id']}/" in ending.reason


@pytest.mark.parametrize(
    ("fault", "code", "expected"),
    [
        (
            """
for child in cluster.foundation.desired_state.node.find_all():
    if isinstance(child, ssm.CfnParameter) and child.node.path.endswith("/Cluster/Resource"):
        child.value = "{}"
""",
            Code.BOOTSTRAP_FAILED,
            r"bootstrap of \S+ ?\S* \(i-\S+\) failed in step cluster: .*expected exactly",
        ),
        (
            """
# the key file is another one whenever munge starts
before_user_data("cpu-static-1", '''
mkdir -p /etc/systemd/system/munge.service.d
cat > /etc/systemd/system/munge.service.d/spoil.conf <<'END'
[Service]
ExecStartPre=+/bin/sh -c 'head -c 128 /dev/urandom > /etc/munge/munge.key'
END
''')
""",
            Code.MUNGE_KEY_DIFFERS,
            r"cannot decode a credential of the head: '.*Invalid credential'\. Their munge keys differ",
        ),
        (
            """
before_user_data("cpu-static-1", '''
mkdir -p /etc/systemd/system/slurmd.service.d
printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' > /etc/systemd/system/slurmd.service.d/99-spoil.conf
''')
""",
            Code.SLURMD_DOWN,
            "slurmd on cpu-static-1 .* does not run",
        ),
        (
            """
cluster.head_node.record.node.default_child.add_property_override(
    "Name", f"elsewhere.{cluster.foundation.zone_name}."
)
""",
            Code.NAME_DOES_NOT_RESOLVE,
            r"on cpu-static-1 the name head\.\S+ does not resolve",
        ),
        (
            """
role = cluster.head_node.role.node.default_child
role.add_property_override("Policies.0.PolicyDocument.Statement.3.Action", ["ssm:UpdateInstanceInformation"])
""",
            Code.AGENT_NEVER_ONLINE,
            r"the SSM agent of the head \(i-\S+, running\) has never registered",
        ),
    ],
    ids=["broken bootstrap", "another munge key", "no slurmd", "unresolvable head", "no agent"],
)
def test_other_faults_have_other_reasons(fault: str, code: Code, expected: str, tmp_path: Path) -> None:
    ending = Ending(tmp_path, fault, ONE_WORKER)
    assert ending.reason.startswith(f"{code}: ")
    assert re.search(expected, ending.reason), ending.reason
