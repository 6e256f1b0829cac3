"""Nothing is lost and nothing runs twice when a node reboots; and bootstrap on a running node is a no-op."""

from __future__ import annotations

import json
import secrets
import time

import pytest

from slurm_cluster.model.node_files import COMMAND, STATUS_FILE
from slurm_cluster.rehearsal.node import Node
from slurm_cluster.runtime.node import state_volume, units
from tests.rehearsal.cluster_user import ClusterUser, wait_until

pytestmark = pytest.mark.rehearsal

UNITS = ("munge.service", "slurmctld.service", "slurmd.service", units.BOOTSTRAP, units.NAMES, units.METADATA_GUARD)
PENDING = 10


def what_bootstrap_touches(cluster: ClusterUser, node: Node) -> str:
    """Return what a needless write, restart or mount would change; file times in nanoseconds."""
    places = "/etc /opt /usr/local /usr/lib/systemd /var/lib/slurm-cluster /root"
    script = f"""
find {places} -xdev ! -path {STATUS_FILE} ! -path {STATUS_FILE.parent} ! -name __pycache__ ! -name '*.pyc' \\
  -printf '%p %y %m %U %G %s %T@ %C@ %l\\n' | sort
systemctl show --property=Id,ActiveState,MainPID,NRestarts,ActiveEnterTimestampMonotonic {" ".join(UNITS)}
cat /proc/mounts
nft list ruleset
"""
    return cluster.root(node, script).stdout


@pytest.mark.parametrize("role", ["head", "worker"])
def test_bootstrap_again_changes_nothing(cluster: ClusterUser, role: str) -> None:
    node = cluster.head if role == "head" else cluster.workers[0]
    known = " ".join(worker.name for worker in cluster.workers)
    wait_until(
        lambda: cluster.root(cluster.head, f"getent hosts {known}").stdout.count("\n") == len(cluster.workers),
        seconds=10,
        what="the head's service has written the names of the workers into its /etc/hosts",
    )
    before = what_bootstrap_touches(cluster, node)
    assert str(COMMAND) in before
    assert "MainPID=0" in before, "a unit of the other role does not run"
    done = node.exec([str(COMMAND), "bootstrap"], timeout=120)
    assert done.returncode == 0, done
    assert what_bootstrap_touches(cluster, node).splitlines() == before.splitlines()
    status = json.loads(cluster.root(node, f"cat {STATUS_FILE}").stdout)
    boot_id = cluster.root(node, "cat /proc/sys/kernel/random/boot_id").stdout.strip()
    assert (status["state"], status["boot_id"]) == ("ready", boot_id)


class Queue:
    """One running and ten pending jobs of one worker; each appends its id to a file there as it ends.

    Args:
        cluster: on which they run.
        seconds: how long the first job runs; not so long again should Slurm have to start it again.
    """

    def __init__(self, cluster: ClusterUser, *, seconds: int) -> None:
        self._cluster = cluster
        self.worker = cluster.workers[0]
        self._file = f"/var/tmp/ended-{secrets.token_hex(4)}"  # noqa: S108 - on a node of the test's own
        end = f"echo $SLURM_JOB_ID >>{self._file}"
        alone = ("--exclusive", f"--nodelist={self.worker.name}")
        self.running = cluster.submit(f'[ -n "$SLURM_RESTART_COUNT" ] || sleep {seconds}; {end}', *alone)
        wait_until(lambda: cluster.state(self.running) == "RUNNING", seconds=30, what="the first job runs")
        self.pending = [cluster.submit(end, *alone) for _ in range(PENDING)]
        assert {cluster.state(job) for job in self.pending} == {"PENDING"}

    def ended(self) -> list[str]:
        """Return the ids in the order in which the jobs ended."""
        return self._cluster.root(self.worker, f"cat {self._file}").stdout.split()

    def check(self, *, seconds: float) -> None:
        """Wait until all jobs are over, and check that each has ended well and once."""
        everyone = [self.running, *self.pending]
        for job in everyone:
            assert self._cluster.wait_for_end(job, seconds=seconds) == "COMPLETED"
        assert sorted(self.ended(), key=int) == sorted(everyone, key=int)


def srun_answers_from_all(cluster: ClusterUser) -> None:
    """Check that one srun reaches every worker."""
    cluster.settle()
    names = [worker.name for worker in cluster.workers]
    done = cluster.user(cluster.head, f"srun --nodelist={','.join(names)} printenv SLURMD_NODENAME")
    assert sorted(done.stdout.split()) == names, done


def test_a_rebooted_worker_ends_each_of_its_jobs_once(cluster: ClusterUser) -> None:
    queue = Queue(cluster, seconds=60)
    # When a node registers, slurmctld misses only jobs that are older than BatchStartTimeout and ten seconds
    # (_purge_missing_jobs in src/slurmctld/job_mgr.c). An EC2 instance takes that long to boot, this one does not.
    time.sleep(20)
    began = time.monotonic()
    queue.worker.reboot()
    assert time.monotonic() - began < 60, "steps that ignore SIGTERM hold a shutdown for 90 seconds"
    assert queue.running not in queue.ended(), "the reboot cut it off"
    # slurmctld runs a job again two minutes after it lost its node: then no credential of the first try is valid
    queue.check(seconds=240)
    srun_answers_from_all(cluster)


def test_a_rebooted_head_finds_its_volume_and_its_jobs(cluster: ClusterUser) -> None:
    mounted = f"findmnt --noheadings --output=SOURCE,FSTYPE,LABEL {state_volume.MOUNT_POINT}"
    volume = cluster.root(cluster.head, mounted).stdout
    assert "slurm-state" in volume
    queue = Queue(cluster, seconds=15)
    cluster.head.reboot()
    assert cluster.root(cluster.head, mounted).stdout == volume
    queue.check(seconds=120)
    assert queue.ended()[0] == queue.running, "it ran on while the head was away"
    srun_answers_from_all(cluster)
    assert int(cluster.submit("true")) > int(queue.pending[-1]), "slurmctld counts on from the state it saved"
