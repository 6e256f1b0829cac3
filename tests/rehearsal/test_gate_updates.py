"""Updates by the real CDK CLI while a job runs: applied in place, tested, and taken back when they fail."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.session import Rehearsal
from tests.rehearsal.cluster_user import ClusterUser, wait_until
from tests.rehearsal.role_probes import Head, Refused, lacking_one_statement, listed, probe, roles_of
from tests.rehearsal.spoiled_app import app_copy

pytestmark = pytest.mark.rehearsal

_STACK = "SlurmCluster"


class Deployed:
    """The deployed app and the job that must survive everything that is done to it."""

    def __init__(self, rehearsal: Rehearsal, app_dir: Path, lines: list[str]) -> None:
        self.rehearsal = rehearsal
        self.app_dir = app_dir
        self.lines = lines
        self.context: dict[str, Any] = _context(2)
        self.job = ""

    @property
    def user(self) -> ClusterUser:
        return ClusterUser(self.rehearsal.nodes)

    @property
    def instances(self) -> dict[str, str]:
        return {name: node.instance_id for name, node in self.rehearsal.nodes.items()}

    @property
    def hosts(self) -> dict[str, str]:
        return dict(item.split("=") for item in self.rehearsal.outputs[_STACK]["Hosts"].split(","))

    def deploy(self, **context: Any) -> str:
        """Deploy with more context; return what the CDK CLI printed."""
        self.lines.clear()
        self.rehearsal.deploy({**self.context, **context})
        return "\n".join(self.lines)

    @property
    def tests(self) -> int:
        """How many requests the head has tested."""
        return len(self.user.root(self.user.head, "ls /var/lib/slurm-cluster/gate/*.json").stdout.split())

    def config(self, key: str) -> str:
        shown = self.user.root(self.user.head, "scontrol show config").stdout
        match = re.search(rf"^{key}\s*=\s*(.*)$", shown, re.MULTILINE)
        return match[1].strip() if match else shown


def _context(nodes: int) -> dict[str, Any]:
    return {"partitions": [{"name": "cpu", "instance_type": "c7i.large", "static_nodes": nodes}]}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    app_dir = app_copy(tmp_path_factory.mktemp("updates") / "app")
    lines: list[str] = []

    def emit(line: str) -> None:
        lines.append(line)
        print(line, file=sys.stderr)

    with Rehearsal.deployed(app_dir, context=_context(2), emit=emit) as rehearsal:
        yield Deployed(rehearsal, app_dir, lines)


def test_the_deployment_prints_the_hosts(deployed: Deployed) -> None:
    nodes = deployed.rehearsal.nodes
    assert deployed.hosts == {
        name: f"ip-{nodes[name].private_ip.replace('.', '-')}" for name in ("cpu-static-1", "cpu-static-2")
    }
    assert any("Hosts = cpu-static-1=ip-" in line for line in deployed.lines)
    assert deployed.rehearsal.differences() == []


def test_no_statement_of_the_functions_role_can_be_left_out(deployed: Deployed) -> None:
    cloud, outputs = deployed.rehearsal.cloud, deployed.rehearsal.outputs[_STACK]
    head = Head(outputs["HeadInstanceId"], outputs["StateVolumeId"])
    (role,) = [role for role in roles_of(cloud, "lambda", _STACK) if "SmokeTest" in role.name]
    for statement in (item for policy in role.policies.values() for item in policy["Statement"]):
        for action in listed(statement["Action"]):
            for resource in listed(statement["Resource"]):
                probe(role, action, resource, head)
    for statement, policies in lacking_one_statement(role.policies):
        role.put(policies)
        try:
            for action in listed(statement["Action"]):
                for resource in listed(statement["Resource"]):
                    with pytest.raises(Refused):
                        probe(role, action, resource, head)
        finally:
            role.put(role.policies)


def test_a_grown_partition_is_tested_and_no_job_is_lost(deployed: Deployed) -> None:
    before = deployed.instances
    deployed.job = deployed.user.submit("sleep 3000", "--nodelist=cpu-static-1", "--exclusive")
    wait_until(lambda: deployed.user.state(deployed.job) == "RUNNING", seconds=30, what="a running job")
    deployed.context = _context(3)
    deployed.deploy()
    assert deployed.tests == 2
    assert set(deployed.hosts) == {"cpu-static-1", "cpu-static-2", "cpu-static-3"}
    assert before.items() < deployed.instances.items()
    assert deployed.user.state(deployed.job) == "RUNNING"


def test_a_changed_option_is_applied_in_place(deployed: Deployed) -> None:
    before = deployed.instances
    deployed.context |= {"srun_ports": "61000-63999"}
    deployed.deploy()
    assert deployed.tests == 3
    assert deployed.config("SrunPortRange") == "61000-63999"
    assert deployed.instances == before
    assert deployed.user.state(deployed.job) == "RUNNING"


def test_a_deployment_of_the_same_changes_and_runs_nothing(deployed: Deployed) -> None:
    assert "(no changes)" in deployed.deploy()
    assert deployed.tests == 3


def test_new_node_programs_are_in_use_afterwards(deployed: Deployed) -> None:
    before = deployed.instances
    link = "readlink /opt/slurm-cluster/current"
    old = deployed.user.root(deployed.user.head, link).stdout
    program = deployed.app_dir / "slurm_cluster" / "runtime" / "node" / "apply.py"
    program.write_text(f"{program.read_text()}\n# the next release\n")
    deployed.deploy()
    assert deployed.tests == 4
    assert deployed.user.root(deployed.user.head, link).stdout not in ("", old)
    assert deployed.instances == before
    assert deployed.user.state(deployed.job) == "RUNNING"


def test_what_an_update_tests_is_changed_without_a_test(deployed: Deployed) -> None:
    assert "(no changes)" not in deployed.deploy(on_update="all")
    assert deployed.tests == 4


def test_an_update_that_fails_is_rolled_back_and_the_old_configuration_runs(deployed: Deployed) -> None:
    before = deployed.instances
    with pytest.raises(RehearsalError) as caught:
        # slurmctld refuses the state of a cluster of another name
        deployed.deploy(cluster_name="another")
    shown = "\n".join(deployed.lines)
    assert "cdk deploy exited with 1" in str(caught.value)
    assert re.search(r"UPDATE_FAILED .*Custom::SlurmSmokeTest.* slurmctld-down: .*the ClusterName has changed", shown)
    # the rollback has the head take up what it had, and tests that; for nobody's job, whatever an update waits for
    assert deployed.tests == 6
    assert re.search(r"UPDATE_ROLLBACK_COMPLET.*AWS::CloudFormation::Stack", shown), shown
    assert deployed.config("ClusterName") == "slurm"
    assert deployed.instances == before
    assert deployed.user.state(deployed.job) == "RUNNING"
    result = deployed.rehearsal.run_command(
        "head", "slurm-cluster gate --request-id after --phase update --on-update free --wait 30"
    )
    assert result.exit_code == 0, result
