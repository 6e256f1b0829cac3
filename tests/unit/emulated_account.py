"""An account of the emulated EC2 for tests, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.rehearsal.cloud import images, instances, launches
from slurm_cluster.rehearsal.cloud.emulator import ApiError, Emulator, Profile
from slurm_cluster.rehearsal.cloud.images import DEBIAN_13

SUBNET, GROUP, ZONE = "subnet-1", "sg-1", "us-east-1a"


class Account:
    """An emulated account with one subnet, one group and one instance profile."""

    def __init__(self, nodes: Path) -> None:
        self.denied: set[str] = set()
        self.emulator = Emulator(
            nodes=nodes,
            instances={},
            volumes={},
            subnets={
                SUBNET: {"SubnetId": SUBNET, "VpcId": "vpc-1", "CidrBlock": "10.0.0.0/29", "AvailabilityZone": ZONE}
            },
            security_groups={GROUP: {"GroupName": "nodes", "VpcId": "vpc-1"}},
            images={},
            launch_templates={},
            addresses={},
            nat_gateways={},
            flow_logs={},
            hosted_zones={},
            tags={},
            call=self.call,
            profile=lambda name: (
                Profile(arn=f"arn:profile/{name}", id="AIPA1", role="node") if "node" in name else None
            ),
            role_allows=lambda role, action, resource: (role, resource) == ("node", "*") and action not in self.denied,
            region=lambda: "us-east-1",
            account=lambda: "000000000000",
        )
        images.seed(self.emulator)

    def call(self, action: str, request: Any) -> Any:
        """Run the actions that CloudFormation's types use."""
        actions: dict[str, Callable[[Emulator, dict[str, Any]], Any]] = {
            "RunInstances": lambda emulator, asked: launches.run_instances(
                emulator, {**asked, "MinCount": "1", "MaxCount": "1"}
            ),
            "StartInstances": instances.start_instances,
            "StopInstances": instances.stop_instances,
            "TerminateInstances": instances.terminate_instances,
        }
        return actions[action](self.emulator, dict(request))

    def launch(self, **asked: Any) -> str:
        """Launch one instance and return its id."""
        request = {
            "ImageId": DEBIAN_13["amd64"],
            "InstanceType": "t3.medium",
            "SubnetId": SUBNET,
            "SecurityGroupId": [GROUP],
            **asked,
        }
        (instance,) = launches.run_instances(self.emulator, request)["instancesSet"]
        return str(instance["instanceId"])

    def state(self, instance_id: str) -> str:
        """Return an instance's state as DescribeInstances answers it."""
        (found,) = instances.describe_instances(self.emulator, {"InstanceId": [instance_id]})["reservationSet"]
        return str(found["instancesSet"][0]["instanceState"]["name"])

    def running(self, **asked: Any) -> str:
        """Launch one instance and wait until it runs."""
        instance_id = self.launch(**asked)
        self.await_state(instance_id, "running")
        return instance_id

    def await_state(self, instance_id: str, wanted: str) -> None:
        """Wait two seconds at most for a state."""
        deadline = time.monotonic() + 2
        while self.state(instance_id) != wanted:
            assert time.monotonic() < deadline, f"still {self.state(instance_id)}"
            time.sleep(0.01)

    def machine(self, instance_id: str, *, on: bool) -> None:
        """Say whether the instance's machine runs, as the session does."""
        pid1 = self.emulator.node(instance_id, "pid1")
        pid1.parent.mkdir(parents=True, exist_ok=True)
        if on:
            pid1.write_text("4242")
        else:
            pid1.unlink()


def refused(code: str, action: Callable[..., Any], account: Account, **request: Any) -> str:
    """Return the message with which an action is refused, whose error code must be ``code``."""
    with pytest.raises(ApiError) as caught:
        action(account.emulator, request)
    assert caught.value.code == code
    return caught.value.message
