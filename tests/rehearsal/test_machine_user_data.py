"""cloud-init on a machine: it takes EC2's part of the metadata service and runs user data once an instance."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from slurm_cluster.rehearsal.machine import REBOOT_EXIT, Machine
from slurm_cluster.rehearsal.network.instance_metadata import InstanceMetadata, InstanceProfile, RoleCredentials
from slurm_cluster.rehearsal.network.metadata import MetadataService
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from tests.rehearsal.machine_bench import bench, boot, shell

pytestmark = pytest.mark.rehearsal

IP, SUBNET = "10.77.0.5", "10.77.0.0/24"
NOW = datetime.now(UTC)
USER_DATA = b"""#!/bin/sh
date +%s.%N >>/root/ran
env >/root/environment
echo 'told the console' >/dev/console
"""
METADATA = InstanceMetadata(
    instance_id="i-0f001",
    image_id="ami-1",
    instance_type="c7i.large",
    architecture="x86_64",
    private_ip=IP,
    region="eu-west-1",
    availability_zone="eu-west-1a",
    account_id="000000000000",
    reservation_id="r-1",
    ami_launch_index=0,
    vpc_id="vpc-1",
    vpc_cidr="10.77.0.0/16",
    subnet_id="subnet-1",
    subnet_cidr=SUBNET,
    interface_id="eni-1",
    security_groups={"sg-1": "workers"},
    pending_time=NOW,
    user_data=USER_DATA,
    token_required=True,
    profile=InstanceProfile(arn="arn:aws:iam::000000000000:instance-profile/p", id="AIPA", role_name="r"),
)


@dataclass(frozen=True)
class Launched:
    machine: Machine
    started: float
    verdict: str


@pytest.fixture(scope="module")
def launched() -> Iterator[Launched]:
    with bench() as made:
        network = VpcNetwork(made.paths.session)
        try:
            service = MetadataService(
                network.router,
                lookup=lambda ip: METADATA if ip == IP else None,
                credentials=lambda profile: RoleCredentials(
                    access_key_id=f"key-of-{profile.role_name}",
                    secret_access_key="-",  # noqa: S106
                    session_token="-",  # noqa: S106
                    expiration=NOW + timedelta(hours=6),
                ),
            )
            machine = made.machine("i-0f001", netns=network.attach("i-0f001", IP, SUBNET), cloud_init=True)
            started = time.time()
            verdict = boot(machine)
            yield Launched(machine, started, verdict)
            machine.remove()
            service.stop()
        finally:
            network.destroy()


def test_cloud_init_is_content(launched: Launched) -> None:
    status = json.loads(shell(launched.machine, "cloud-init status --format json --wait"))
    assert (status["extended_status"], status["errors"], status["recoverable_errors"]) == ("done", [], {})
    assert status["datasource"] == "ec2local"
    assert shell(launched.machine, "cloud-id") == "aws\n"
    assert launched.verdict == "running"


def test_user_data_runs_soon_and_can_call_the_api(launched: Launched) -> None:
    seconds = float(shell(launched.machine, "cat /root/ran")) - launched.started
    assert seconds < 30, seconds
    assert "AWS_ENDPOINT_URL=http://aws:4566\n" in shell(launched.machine, "cat /root/environment")


def test_console_log_holds_what_user_data_said(launched: Launched) -> None:
    assert "told the console" in launched.machine.console_log.read_text(errors="replace")


def test_host_name_and_default_user_are_those_of_ec2(launched: Launched) -> None:
    assert shell(launched.machine, "hostname") == "ip-10-77-0-5\n"
    assert shell(launched.machine, "id --user admin") == "1000\n"
    assert shell(launched.machine, "su -l admin -c 'sudo --non-interactive id --user'") == "0\n"


def test_boto3_takes_the_instance_role(launched: Launched) -> None:
    script = "import boto3; print(boto3.Session().get_credentials().access_key)"
    assert shell(launched.machine, f"python3 -c '{script}'") == "key-of-r\n"


def test_second_boot_keeps_the_name_and_runs_no_user_data(launched: Launched) -> None:
    launched.machine.reboot()
    assert launched.machine.wait(30) == REBOOT_EXIT
    assert boot(launched.machine) == "running"
    shell(launched.machine, "cloud-init status --wait")
    assert len(shell(launched.machine, "cat /root/ran").splitlines()) == 1
    assert shell(launched.machine, "hostname") == "ip-10-77-0-5\n"
