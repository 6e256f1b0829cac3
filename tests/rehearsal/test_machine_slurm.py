"""Slurm's own cgroup plugins run on a machine: jobs are confined and cleaned up for real."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from slurm_cluster.model.node_files import OVERRIDE_DIR
from slurm_cluster.rehearsal import cgroups
from slurm_cluster.rehearsal.image import ImageKind, replaced
from slurm_cluster.rehearsal.machine import Machine
from slurm_cluster.runtime.node import cgroup_conf, overrides
from tests.rehearsal.machine_bench import Bench, bench, boot, shell

pytestmark = pytest.mark.rehearsal

SLURM_CONF = """
ClusterName=bench
SlurmctldHost=localhost
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup
PrologFlags=Contain
ReturnToService=2
PartitionName=cpu Nodes=only Default=YES DefMemPerCPU=400
NodeName=only NodeHostname=localhost """
SMALL = "Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=900"
LARGE = "Sockets=1 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=500000"
"""More than the machine has that rehearses."""

SET_UP = """
useradd --uid 1000 --create-home user
dd if=/dev/urandom of=/etc/munge/munge.key bs=64 count=1 status=none
chown munge: /etc/munge/munge.key && chmod 400 /etc/munge/munge.key
install -d /etc/slurm && install -d -o slurm /var/lib/slurm/slurmctld
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Machine]:
    with bench() as made:
        yield serving(made, SMALL)


def serving(stand: Bench, hardware: str) -> Machine:
    machine = stand.machine("i-0e001")
    boot(machine)
    shell(machine, SET_UP)
    for name, text in (("slurm.conf", f"{SLURM_CONF}{hardware}\n"), ("cgroup.conf", cgroup_conf.render())):
        overridden, _ = overrides.apply(name, text, directory=machine.root / OVERRIDE_DIR.relative_to("/"))
        (machine.root / "etc/slurm" / name).write_text(overridden)
    shell(machine, "systemctl start munge slurmctld slurmd")
    until(machine, "sinfo --noheader --format=%t", "idle")
    return machine


def until(machine: Machine, command: str, output: str) -> None:
    """Wait until a command prints one line, ``output``."""
    shell(machine, f"timeout 60 sh -c 'until test \"$({command})\" = {output}; do sleep 0.2; done'")


def as_user(machine: Machine, script: str) -> str:
    done = machine.exec(["su", "-l", "user", "-c", script], timeout=60)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_job_is_confined_to_the_cpu_it_asked_for(node: Machine) -> None:
    allowed = "grep Cpus_allowed_list /proc/self/status"
    assert as_user(node, f"srun -n1 -c1 {allowed}").split()[1] in ("0", "1")
    assert as_user(node, f"srun -n1 -c2 {allowed}").split()[1] == "0-1"


def test_job_runs_in_groups_of_its_node(node: Machine) -> None:
    groups = as_user(node, "srun -n1 cat /proc/self/cgroup")
    if cgroups.version() == 2:
        assert re.fullmatch(r"0::/system\.slice/(only_)?slurmstepd\.scope/job_\d+/step_0/user/task_0\n", groups)
        return
    for hierarchy in ("freezer", "cpuset", "devices"):
        assert f"{hierarchy}:/{node.name}/slurm_only/uid_1000/job_" in groups


def test_job_that_exceeds_its_memory_is_ended_where_the_host_has_the_limit_to_give(node: Machine) -> None:
    job = "srun -n1 --mem={} python3 -c 'bytearray(300 << 20); print(1)'"
    assert as_user(node, job.format(400)) == "1\n"
    exceeding = node.exec(["su", "-l", "user", "-c", job.format(100)], timeout=60)
    if any(
        line.startswith("memory limits of jobs: not enforced") for line in replaced(ImageKind.BAKED, cgroups.version())
    ):
        assert exceeding.stdout == "1\n", exceeding
    else:
        assert exceeding.returncode != 0, exceeding
        assert re.search(r"out.of.memory", exceeding.stderr, re.IGNORECASE), exceeding
    assert as_user(node, "srun -n1 echo served") == "served\n"


def test_runaway_child_is_killed_with_its_job(node: Machine) -> None:
    as_user(node, "srun -n1 sh -c 'setsid sleep 600 & exit 0'")
    shell(node, "timeout 60 sh -c 'while pgrep -u user sleep; do sleep 0.2; done'")


def test_slurm_serves_after_a_reboot_and_knows_when_it_was(node: Machine) -> None:
    node.reboot()
    node.wait(60)
    began = int(time.time())
    boot(node)
    shell(node, "systemctl start munge slurmctld slurmd")
    until(node, "sinfo --noheader --format=%t", "idle")
    told = re.search(r"BootTime=(\S+)", as_user(node, "scontrol show node"))
    assert told is not None
    assert began - 1 <= datetime.fromisoformat(f"{told[1]}+00:00").timestamp() <= time.time()
    assert as_user(node, "srun -n1 echo served") == "served\n"


def test_instance_type_may_be_larger_than_this_machine() -> None:
    with bench() as made:
        node = serving(made, LARGE)
        assert as_user(node, "sinfo --noheader --format '%t %c %m'").split() == ["idle", "64", "500000"]
        assert len(as_user(node, "srun -n64 echo task").split()) == 64
        # Each gets a core that this machine does not have, but for the first.
        jobs = "for job in 1 2 3 4; do srun -n1 -c2 sh -c 'sleep 1; echo done' & done; wait"
        assert as_user(node, jobs).split() == ["done"] * 4
