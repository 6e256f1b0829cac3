"""A machine boots, takes commands, keeps its disk, and goes without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_cluster.model.flows import Role
from slurm_cluster.rehearsal import leftovers
from slurm_cluster.rehearsal.cgroups import is_alive
from slurm_cluster.rehearsal.image.recipe import API_ENDPOINT
from slurm_cluster.rehearsal.machine import REBOOT_EXIT, Machine, MachineError
from slurm_cluster.runtime.node import metadata_guard
from tests.rehearsal.machine_bench import Bench, bench, boot, shell

pytestmark = pytest.mark.rehearsal


@pytest.fixture(scope="module")
def stand() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture(scope="module")
def node(stand: Bench) -> Machine:
    machine = stand.machine("i-0b001")
    assert boot(machine) == "running", shell(machine, "systemctl --failed")
    return machine


@pytest.fixture(scope="module")
def spare_namespace(stand: Bench) -> str:
    return stand.namespace("i-0b002")


@pytest.fixture
def spare(stand: Bench, spare_namespace: str) -> Iterator[Machine]:
    machine = stand.machine("i-0b002", netns=spare_namespace)
    yield machine
    if machine.directory.exists():
        machine.remove()


SOMEBODY = """
id -u somebody || useradd --create-home --shell /bin/bash somebody
echo 'somebody ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/somebody
"""


def test_command_has_the_path_alone_in_its_environment(node: Machine) -> None:
    names = {line.partition("=")[0] for line in shell(node, "env").splitlines()}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == {"PATH"}


@pytest.mark.parametrize(
    "way",
    [
        "{}",
        "env -i {}",
        "systemd-run --quiet --pipe --wait {}",
        "runuser -u somebody -- sudo -n {}",
        "runuser -l somebody -c 'sudo -n {}'",
        "runuser -l somebody -c 'sudo -n -i {}'",
        "runuser -u somebody -- {}",
        "su -l somebody -c '{}'",
        "systemd-run --quiet --pipe --wait --uid=nobody {}",
    ],
)
def test_every_process_finds_the_api_however_it_was_started(node: Machine, way: str) -> None:
    shell(node, SOMEBODY)
    script = "import boto3; print(boto3.client('ssm', region_name='eu-west-1').meta.endpoint_url)"
    shell(node, "cat > /var/tmp/endpoint.py <<END\n" + script + "\nEND")
    assert shell(node, way.format("/usr/bin/python3 /var/tmp/endpoint.py")) == f"{API_ENDPOINT}\n"


def test_command_has_the_capabilities_of_the_nodes_root(node: Machine) -> None:
    sets = "grep ^CapBnd /proc/{}/status"
    assert shell(node, sets.format("self")) == shell(node, sets.format("1"))


def test_command_gets_its_input_and_gives_its_exit_status(node: Machine) -> None:
    done = node.exec(["sh", "-c", "cat; echo bad >&2; exit 7"], timeout=20, input="good")
    assert (done.returncode, done.stdout, done.stderr) == (7, "good", "bad\n")


def test_command_that_takes_too_long_is_killed_in_the_node(node: Machine) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        node.exec(["sh", "-c", "sleep 4321 & wait"], timeout=0.5)
    assert node.exec(["pgrep", "-f", "sleep 4321"], timeout=20).stdout == ""


def test_agent_is_online_while_its_unit_runs(node: Machine) -> None:
    assert node.agent_online()
    shell(node, "systemctl stop amazon-ssm-agent")
    assert not node.agent_online()
    shell(node, "systemctl start amazon-ssm-agent")
    assert node.agent_online()


def test_metadata_guard_refuses_users_and_lets_root_pass(node: Machine) -> None:
    netns = f"/run/netns/{node.name}"
    subprocess.run(["nsenter", f"--net={netns}", "ip", "address", "add", "169.254.169.254/32", "dev", "lo"], check=True)
    shell(node, "systemd-run --quiet --unit=metadata python3 -m http.server -b 169.254.169.254 80 && sleep 1")
    fetch = "curl --silent --max-time 5 --output /dev/null http://169.254.169.254/"
    as_user = f"su -s /bin/sh nobody -c '{fetch}'"
    shell(node, f"{fetch} && {as_user}")
    node.exec(["nft", "--file", "-"], timeout=20, input=metadata_guard.render(Role.WORKER, job_credentials=False))
    shell(node, fetch)
    refused = node.exec(["sh", "-c", as_user], timeout=20)
    assert refused.returncode == 7, refused  # curl: could not connect


def test_running_machine_cannot_be_started_again(node: Machine) -> None:
    with pytest.raises(MachineError, match="already running"):
        node.start()


def test_reboot_ends_with_its_exit_code_and_keeps_the_disk(spare: Machine) -> None:
    boot(spare)
    first = shell(spare, "cat /proc/sys/kernel/random/boot_id; echo kept >/root/file")
    time.sleep(3)
    rebooted = time.time()
    spare.reboot()
    assert spare.wait(30) == REBOOT_EXIT
    with pytest.raises(MachineError, match="not running"):
        _ = spare.pid1
    assert boot(spare) == "running", shell(spare, "systemctl --failed")
    assert shell(spare, "cat /root/file") == "kept\n"
    assert shell(spare, "cat /proc/sys/kernel/random/boot_id") != first
    uptime = float(shell(spare, "cat /proc/uptime").split()[0])
    assert 0 < uptime <= time.time() - rebooted + 1
    booted = next(line for line in shell(spare, "cat /proc/stat").splitlines() if line.startswith("btime "))
    assert int(booted.split()[1]) >= int(rebooted) - 1


def test_power_off_from_inside_and_from_outside(spare: Machine) -> None:
    boot(spare)
    spare.exec(["systemctl", "poweroff"], timeout=20)
    assert spare.wait(30) == 0
    assert not (spare.directory / "pid1").exists()
    boot(spare)
    assert int((spare.directory / "pid1").read_text()) == spare.pid1
    spare.stop(30)
    assert spare.poll() == 0


def test_stop_kills_a_machine_that_does_not_shut_down(spare: Machine) -> None:
    boot(spare)
    os.kill(spare.pid1, signal.SIGSTOP)
    began = time.monotonic()
    spare.stop(1.0)
    assert time.monotonic() - began < 15
    assert not spare.running


def test_killed_nspawn_takes_the_machine_along(spare: Machine) -> None:
    boot(spare)
    init = spare.pid1
    nspawn = int(Path("/proc", str(init), "stat").read_text().rpartition(")")[2].split()[1])
    os.kill(nspawn, signal.SIGKILL)
    assert spare.wait(10) == -signal.SIGKILL
    assert not is_alive(init)
    assert boot(spare) == "running"


def test_removed_machine_leaves_nothing(stand: Bench, spare: Machine) -> None:
    boot(spare)
    spare.remove()
    assert not spare.directory.exists()
    assert not [line for line in leftovers.find(stand.paths) if "i-0b002" in line]


def test_start_that_fails_says_what_the_console_said(stand: Bench) -> None:
    machine = stand.machine("i-0b003", netns="sc-no-such-namespace")
    with pytest.raises(MachineError, match="sc-no-such-namespace"):
        machine.start()
