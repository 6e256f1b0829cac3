"""The app itself on the emulated AWS, by the real CDK CLI: as declared, least privilege, no-op, update, destroy.

No node boots, so neither root nor systemd is needed. The tests go through one deployment in their order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal.cloud import declared
from slurm_cluster.rehearsal.cloud.cdk_cli import CdkCli
from slurm_cluster.rehearsal.cloud.server import Cloud
from slurm_cluster.rehearsal.cloud.verify import differences
from slurm_cluster.rehearsal.paths import cache_dir
from tests.rehearsal.role_probes import (
    Head,
    Refused,
    Role,
    instance_state,
    lacking_one_statement,
    listed,
    probe,
    roles_of,
)

_PROJECT = Path(__file__).resolve().parents[2]
_STACK = "SlurmCluster"
_TWO = {"smoke_test": False, "partitions": [{"name": "cpu", "instance_type": "c7i.large", "static_nodes": 2}]}
_MORE = {
    "smoke_test": False,
    "partitions": [
        {"name": "cpu", "instance_type": "c7i.large", "static_nodes": 3},
        {"name": "mem", "instance_type": "r7i.large", "static_nodes": 1},
    ],
}


class Deployment:
    """One cloud with the app deployed to it."""

    def __init__(self, directory: Path) -> None:
        self.cloud = Cloud(directory, directory / "nodes", cache=cache_dir())
        # a copy: what is deployed again and again is the same app, whoever edits it meanwhile
        self.app_dir = directory / "app"
        shutil.copytree(_PROJECT / "slurm_cluster", self.app_dir / "slurm_cluster")
        for name in ("app.py", "cdk.json"):
            shutil.copy(_PROJECT / name, self.app_dir)
        self.lines: list[str] = []
        self.outputs: dict[str, str] = {}

    def cli(self, context: dict[str, Any] = _TWO) -> CdkCli:
        """Return the CLI for the app with these partitions; its lines go to ``lines``."""
        self.lines.clear()
        return CdkCli(
            self.cloud, self.app_dir, self.cloud.directory / "cdk", context=context, on_line=self.lines.append
        )

    def instances(self) -> dict[str, str]:
        """Return node name ("head" for the head) to instance id, of those that are not terminated."""
        found = {}
        for reservation in self.cloud.client("ec2").describe_instances()["Reservations"]:
            for instance in reservation["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
                if instance["State"]["Name"] != "terminated":
                    found[tags.get("slurm-cluster:node", tags["slurm-cluster:role"])] = instance["InstanceId"]
        return found

    def head(self) -> Head:
        """Return the head and its state volume."""
        return Head(self.outputs["HeadInstanceId"], self.outputs["StateVolumeId"])


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("cloud"))
    with made.cloud:
        made.cli().bootstrap()
        made.outputs = made.cli().deploy()[_STACK]
        yield made


def test_everything_is_as_declared(deployment: Deployment) -> None:
    assert [str(difference) for difference in differences(deployment.cloud)] == []
    assert set(deployment.instances()) == {"head", "cpu-static-1", "cpu-static-2"}


def test_what_is_not_as_declared_is_found(deployment: Deployment) -> None:
    ec2 = deployment.cloud.client("ec2")
    resources = declared.read(deployment.cloud.declared_file)
    rule_id, rule = next(iter(resources["AWS::EC2::SecurityGroupIngress"].items()))
    (reported,) = ec2.describe_security_group_rules(SecurityGroupRuleIds=[rule_id])["SecurityGroupRules"]
    permission = {
        "IpProtocol": reported["IpProtocol"],
        "FromPort": reported["FromPort"],
        "ToPort": reported["ToPort"],
        "UserIdGroupPairs": [{"GroupId": rule["SourceSecurityGroupId"], "Description": rule.get("Description", "")}],
    }
    wide = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.revoke_security_group_ingress(GroupId=rule["GroupId"], SecurityGroupRuleIds=[rule_id])
    ec2.authorize_security_group_ingress(GroupId=rule["GroupId"], IpPermissions=[wide])
    found = {(item.resource_type, item.path) for item in differences(deployment.cloud)}
    assert ("AWS::EC2::SecurityGroupIngress", "the resource") in found
    assert ("AWS::EC2::SecurityGroup", "SecurityGroupIngress") in found
    ec2.revoke_security_group_ingress(GroupId=rule["GroupId"], IpPermissions=[wide])
    ec2.authorize_security_group_ingress(GroupId=rule["GroupId"], IpPermissions=[permission])
    assert differences(deployment.cloud) == []


def _roles(deployment: Deployment) -> list[Role]:
    return [*roles_of(deployment.cloud, "ec2", _STACK), *roles_of(deployment.cloud, "lambda", _STACK)]


def test_roles_allow_what_they_say(deployment: Deployment) -> None:
    roles = _roles(deployment)
    assert len(roles) == 3  # head, workers, the function that pins images
    for role in roles:
        for policy in role.policies.values():
            for statement in policy["Statement"]:
                for action in listed(statement["Action"]):
                    for resource in listed(statement["Resource"]):
                        probe(role, action, resource, deployment.head())


def test_no_statement_of_a_role_can_be_left_out(deployment: Deployment) -> None:
    for role in _roles(deployment):
        for statement, policies in lacking_one_statement(role.policies):
            role.put(policies)
            try:
                for action in listed(statement["Action"]):
                    for resource in listed(statement["Resource"]):
                        with pytest.raises(Refused):
                            probe(role, action, resource, deployment.head())
            finally:
                role.put(role.policies)


def test_the_head_may_stop_heads_of_its_cluster_only(deployment: Deployment) -> None:
    (head_role,) = [role for role in _roles(deployment) if "HeadNode" in role.name]
    ec2, worker = head_role.client("ec2"), deployment.instances()["cpu-static-1"]
    with pytest.raises(ec2.exceptions.ClientError, match="UnauthorizedOperation"):
        ec2.stop_instances(InstanceIds=[worker])
    with pytest.raises(ec2.exceptions.ClientError, match="UnauthorizedOperation"):
        ec2.stop_instances(InstanceIds=[deployment.head().instance_id, worker])
    with pytest.raises(ec2.exceptions.ClientError, match="UnauthorizedOperation"):
        ec2.attach_volume(VolumeId=deployment.head().volume_id, InstanceId=worker, Device="/dev/sdf")
    assert instance_state(deployment.cloud, worker) == "running"


def test_a_node_may_not_do_what_its_role_does_not_say(deployment: Deployment) -> None:
    (worker_role,) = [role for role in _roles(deployment) if "Worker" in role.name]
    for service, call, arguments in (
        ("ec2", "describe_instances", {}),
        ("ec2", "run_instances", {"MinCount": 1, "MaxCount": 1}),
        ("iam", "list_roles", {}),
        ("s3", "list_buckets", {}),
        ("secretsmanager", "list_secrets", {}),
        ("ssm", "describe_parameters", {}),
        ("ssm", "get_parameter", {"Name": "/cdk-bootstrap/hnb659fds/version"}),
    ):
        client = worker_role.client(service)
        with pytest.raises(client.exceptions.ClientError, match=r"UnauthorizedOperation|AccessDenied"):
            getattr(client, call)(**arguments)


def test_deploying_again_changes_nothing(deployment: Deployment) -> None:
    before = deployment.instances()
    deployment.cli().deploy()
    assert any("(no changes)" in line for line in deployment.lines), "\n".join(deployment.lines)
    assert deployment.instances() == before


def test_an_update_keeps_the_nodes_that_stay(deployment: Deployment) -> None:
    before = deployment.instances()
    secrets = deployment.cloud.client("secretsmanager")
    (secret,) = secrets.list_secrets()["SecretList"]
    key = secrets.get_secret_value(SecretId=secret["ARN"])["SecretString"]
    deployment.cli(_MORE).deploy()
    after = deployment.instances()
    assert set(after) == {"head", "cpu-static-1", "cpu-static-2", "cpu-static-3", "mem-static-1"}
    assert before.items() <= after.items()
    assert secrets.get_secret_value(SecretId=secret["ARN"])["SecretString"] == key
    assert [str(difference) for difference in differences(deployment.cloud)] == []
    deployment.cli().deploy()
    assert deployment.instances() == before
    assert [str(difference) for difference in differences(deployment.cloud)] == []


def test_destroy_leaves_the_state_volume(deployment: Deployment) -> None:
    deployment.cli().destroy()
    assert deployment.instances() == {}
    left = {
        (resource_type, physical_id)
        for resource_type, by_id in declared.read(deployment.cloud.declared_file).items()
        for physical_id in by_id
        if "cdk-" not in json.dumps(physical_id).lower() and not physical_id.startswith("CDKToolkit")
    }
    assert left == {("AWS::EC2::Volume", deployment.head().volume_id)}
    (volume,) = deployment.cloud.client("ec2").describe_volumes()["Volumes"]
    assert (volume["VolumeId"], volume["State"]) == (deployment.head().volume_id, "available")
