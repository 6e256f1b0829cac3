"""Run Command of the emulated AWS runs scripts inside a node: output, exit code, time limit, limits of length.

The node is a process in name spaces of its own, which is all that running a command in one needs.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slurm_cluster.rehearsal.cloud.authorization import AGENT_ACTIONS
from slurm_cluster.rehearsal.cloud.images import DEBIAN_13
from slurm_cluster.rehearsal.cloud.server import Cloud
from slurm_cluster.rehearsal.paths import cache_dir

pytestmark = pytest.mark.rehearsal

_TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}


@dataclass
class Node:
    """An instance whose machine is a process in name spaces of its own."""

    cloud: Cloud
    instance_id: str
    directory: Path

    def send(self, *commands: str, **parameters: list[str]) -> str:
        """Send a script and return the command's id."""
        answer = self.cloud.client("ssm").send_command(
            InstanceIds=[self.instance_id],
            DocumentName="AWS-RunShellScript",
            Parameters={"commands": list(commands), **parameters},
        )
        return str(answer["Command"]["CommandId"])

    def invocation(self, command_id: str) -> Any:
        """Return the invocation as it is now."""
        return self.cloud.client("ssm").get_command_invocation(CommandId=command_id, InstanceId=self.instance_id)

    def run(self, *commands: str, **parameters: list[str]) -> Any:
        """Send a script and return its invocation when it has ended."""
        command_id = self.send(*commands, **parameters)
        deadline = time.monotonic() + 20
        while (found := self.invocation(command_id))["Status"] in ("Pending", "InProgress"):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("run")
    with Cloud(directory, directory / "nodes", cache=cache_dir()) as cloud:
        iam, ec2 = cloud.client("iam"), cloud.client("ec2")
        iam.create_role(RoleName="node", AssumeRolePolicyDocument=json.dumps(_TRUST))
        statement = {"Effect": "Allow", "Action": list(AGENT_ACTIONS), "Resource": "*"}
        iam.put_role_policy(RoleName="node", PolicyName="agent", PolicyDocument=json.dumps({"Statement": [statement]}))
        iam.create_instance_profile(InstanceProfileName="node")
        iam.add_role_to_instance_profile(InstanceProfileName="node", RoleName="node")
        vpc = ec2.create_vpc(CidrBlock="10.2.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.2.0.0/24")["Subnet"]["SubnetId"]
        group = ec2.create_security_group(VpcId=vpc, GroupName="g", Description="g")["GroupId"]
        instance_id = ec2.run_instances(
            ImageId=DEBIAN_13["amd64"],
            InstanceType="t3.medium",
            SubnetId=subnet,
            SecurityGroupIds=[group],
            IamInstanceProfile={"Name": "node"},
            MinCount=1,
            MaxCount=1,
        )["Instances"][0]["InstanceId"]
        own = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--fork", "--mount-proc", "--kill-child")
        machine = subprocess.Popen(["unshare", *own, "sh", "-c", "hostname sc-node; exec sleep 120"])
        made = Node(cloud, instance_id, directory / "nodes" / instance_id)
        try:
            made.directory.mkdir(parents=True)
            made.directory.joinpath("pid1").write_text(str(_child_of(machine.pid)))
            time.sleep(0.3)  # the instance is pending for a moment
            yield made
        finally:
            machine.kill()
            machine.wait()


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 5
    while not (found := children.read_text().split()):
        assert time.monotonic() < deadline, "the machine did not start"
        time.sleep(0.01)
    return int(found[0])


def _online(node: Node) -> list[str]:
    found = node.cloud.client("ssm").describe_instance_information(
        Filters=[{"Key": "InstanceIds", "Values": [node.instance_id]}]
    )
    return [entry["PingStatus"] for entry in found["InstanceInformationList"]]


def test_an_instance_without_a_running_agent_is_refused(node: Node) -> None:
    assert _online(node) == []
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        node.send("true")
    node.directory.joinpath("agent-online").touch()
    assert _online(node) == ["Online"]


def test_a_script_runs_in_the_node(node: Node) -> None:
    found = node.run("hostname", "pwd; echo problem >&2; exit 3", workingDirectory=["/usr"])
    assert (found["Status"], found["ResponseCode"]) == ("Failed", 3)
    assert found["StandardOutputContent"] == "sc-node\n/usr\n"
    assert found["StandardErrorContent"] == "problem\n"
    found = node.run("true")
    assert (found["Status"], found["StatusDetails"], found["ResponseCode"]) == ("Success", "Success", 0)


def test_commands_run_beside_each_other(node: Node) -> None:
    started = time.monotonic()
    slow = node.send("sleep 2; echo slow")
    assert time.monotonic() - started < 1
    assert node.run("echo quick")["StandardOutputContent"] == "quick\n"
    assert node.invocation(slow)["Status"] == "InProgress"
    assert node.invocation(slow)["ResponseCode"] == -1
    while node.invocation(slow)["Status"] == "InProgress":
        time.sleep(0.05)
    assert node.invocation(slow)["StandardOutputContent"] == "slow\n"


def test_a_script_that_takes_too_long_is_killed(node: Node) -> None:
    started = time.monotonic()
    found = node.run("echo before; sleep 30 & sleep 30", executionTimeout=["1"])
    assert time.monotonic() - started < 10
    assert (found["Status"], found["StatusDetails"]) == ("TimedOut", "Execution Timed Out")
    assert (found["ResponseCode"], found["StandardOutputContent"]) == (137, "before\n")


def test_a_cancelled_script_is_killed(node: Node) -> None:
    started = time.monotonic()
    command_id = node.send("echo before; sleep 30 & sleep 30")
    while node.invocation(command_id)["Status"] != "InProgress":
        time.sleep(0.05)
    node.cloud.client("ssm").cancel_command(CommandId=command_id, InstanceIds=[node.instance_id])
    while node.invocation(command_id)["Status"] == "InProgress":
        time.sleep(0.05)
    assert time.monotonic() - started < 10
    found = node.invocation(command_id)
    assert (found["Status"], found["StatusDetails"]) == ("Cancelled", "Cancelled")
    assert (found["ResponseCode"], found["StandardOutputContent"]) == (137, "before\n")


def test_output_is_cut_where_ssm_cuts_it(node: Node) -> None:
    found = node.run("head -c 30000 /dev/zero | tr '\\0' o; head -c 30000 /dev/zero | tr '\\0' e >&2")
    assert (len(found["StandardOutputContent"]), len(found["StandardErrorContent"])) == (24_000, 8_000)


def test_a_role_that_may_not_be_an_agent_takes_the_node_offline(node: Node) -> None:
    iam = node.cloud.client("iam")
    policy = iam.get_role_policy(RoleName="node", PolicyName="agent")["PolicyDocument"]
    iam.delete_role_policy(RoleName="node", PolicyName="agent")
    assert _online(node) == ["ConnectionLost"]
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        node.send("true")
    iam.put_role_policy(RoleName="node", PolicyName="agent", PolicyDocument=json.dumps(policy))
    assert _online(node) == ["Online"]


def test_the_machine_decides_when_the_instance_is_stopped(node: Node) -> None:
    ec2 = node.cloud.client("ec2")

    def state() -> str:
        (reservation,) = ec2.describe_instances(InstanceIds=[node.instance_id])["Reservations"]
        return str(reservation["Instances"][0]["State"]["Name"])

    ec2.stop_instances(InstanceIds=[node.instance_id])
    assert state() == "stopping"
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        node.send("true")
    node.directory.joinpath("pid1").unlink()
    assert state() == "stopped"
