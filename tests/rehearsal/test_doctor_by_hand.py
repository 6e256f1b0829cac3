"""The doctor on a cluster set up by hand from Debian's packages: of this package it has the doctor's one file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_cluster.doctor import payload
from slurm_cluster.rehearsal.image import ensure_baked_image
from tests.rehearsal.hand_made_cluster import HandMadeCluster

pytestmark = pytest.mark.rehearsal

DOCTOR = "/srv/slurm-doctor.pyz"
LIMIT_SECONDS = 90
ORIGIN_STORY = "ip daddr @head tcp dport 1024-65535 tcp dport != 6817"
"""What the story's security group let in was 6817 and 6818; on the head nobody listens on the latter."""


@dataclass
class Answer:
    """What one run of the doctor said."""

    status: int
    report: dict[str, Any]

    @property
    def codes(self) -> list[tuple[str, str]]:
        return [(fault["code"], fault["node"]) for fault in self.report["faults"]]

    def probe(self, name: str) -> str:
        return str(next(row["outcome"] for row in self.report["probes"] if row["probe"] == name))

    def reason(self) -> str:
        return str(self.report["faults"][0]["reason"])


def ask(cluster: HandMadeCluster, *options: str, user: str = "root") -> Answer:
    """Run the doctor on the head, and see that it is in time and leaves no job behind."""
    become = [] if user == "root" else ["runuser", "-u", user, "--"]
    argv = [*become, "python3", DOCTOR, "--json", *options]
    done = cluster.head.run(argv, timeout=LIMIT_SECONDS + 10)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["seconds"] < LIMIT_SECONDS
    jobs = cluster.head.run(["squeue", "--noheader", "--states=PENDING,RUNNING"], timeout=60)
    assert jobs.stdout == "" or jobs.returncode, jobs.stdout
    return Answer(done.returncode, report)


@contextmanager
def made(root: Path, workers: int, extra: str = "") -> Iterator[HandMadeCluster]:
    with HandMadeCluster(root, workers, extra=extra) as cluster:
        Path(f"/proc/{cluster.head.pid1}/root{DOCTOR}").write_bytes(payload.application())
        yield cluster


@pytest.fixture(scope="module")
def root() -> Path:
    return ensure_baked_image(print)


@pytest.fixture(scope="module")
def cluster(root: Path) -> Iterator[HandMadeCluster]:
    with made(root, 2) as cluster:
        yield cluster


def test_nothing_of_the_package_but_the_doctor_is_on_the_machines(cluster: HandMadeCluster) -> None:
    for machine in cluster.machines:
        found = machine.run(["python3", "-c", "import slurm_cluster"], timeout=30)
        assert "No module named 'slurm_cluster'" in found.stderr


def test_a_healthy_cluster_has_no_fault(cluster: HandMadeCluster) -> None:
    answer = ask(cluster)
    assert (answer.status, answer.codes) == (0, []), answer.report
    assert {row["outcome"] for row in answer.report["probes"]} == {"ok", "not applicable"}


def test_the_closed_flow_of_the_origin_story_is_named(cluster: HandMadeCluster) -> None:
    with cluster.dropping(ORIGIN_STORY):
        answer = ask(cluster)
    assert (answer.status, answer.codes) == (1, [("srun-io-blocked", "n1")]), answer.report
    assert "the SYNs left, the head looked for them and none arrived, while TCP 6817 there answers" in answer.reason()
    assert "inbound TCP 1024-65535 from the security group of the worker" in answer.reason()
    rows = {row["probe"]: row["outcome"] for row in answer.report["probes"]}
    assert [name for name, outcome in rows.items() if outcome not in ("ok", "not applicable")] == ["flow srun-io"]


def test_it_is_named_to_an_ordinary_user_too_who_learns_what_could_not_be_seen(cluster: HandMadeCluster) -> None:
    cluster.head.check(["useradd", "tester"])
    for worker in cluster.workers:
        worker.check(["useradd", "tester"])
    with cluster.dropping(ORIGIN_STORY):
        answer = ask(cluster, user="tester")
    assert (answer.status, answer.codes) == (1, [("srun-io-blocked", "n1")]), answer.report
    assert "by a packet filter of either" in answer.reason()
    assert answer.report["notes"][0].startswith("Not root")


@pytest.mark.parametrize(
    ("rule", "code", "node"),
    [
        ("ip daddr @head tcp dport 6817", "controller-rpc-blocked", "n1"),
        ("ip saddr @head ip daddr @n1 tcp dport 6818", "node-rpc-blocked", "n1"),
        ("ip saddr @n1 ip daddr @n2 tcp dport 1024-65535", "worker-to-worker-blocked", "n1"),
        ("ip saddr @head tcp dport 10000-65535", "head-to-worker-blocked", "n1"),
    ],
)
def test_each_other_flow_is_told_apart(cluster: HandMadeCluster, rule: str, code: str, node: str) -> None:
    with cluster.dropping(rule):
        answer = ask(cluster)
    cluster.await_idle()
    assert answer.status == 1
    assert answer.codes[0] == (code, node), answer.report
    assert {found for found, _ in answer.codes} == {code}


def test_a_worker_without_python_answers_by_bash(cluster: HandMadeCluster) -> None:
    worker = cluster.workers[0]
    hidden = "for f in /usr/bin/python3*; do mv $f /root/; done"
    worker.check(["sh", "-c", hidden])
    try:
        healthy = ask(cluster)
        with cluster.dropping(ORIGIN_STORY):
            closed = ask(cluster)
    finally:
        worker.check(["sh", "-c", "mv /root/python3* /usr/bin/"])
    assert (healthy.status, healthy.codes) == (0, []), healthy.report
    assert {code for code, _ in closed.codes} == {"srun-io-blocked"}, closed.report


def test_daemons_and_machines_that_are_not_there_are_told_apart(cluster: HandMadeCluster) -> None:
    first, second = cluster.workers
    first.check(["pkill", "-x", "slurmd"])
    second.check(["pkill", "-STOP", "-x", "slurmd"])
    dead_and_hung = ask(cluster)
    second.check(["pkill", "-CONT", "-x", "slurmd"])
    first.check(["slurmd"])
    with cluster.unplugged(first):
        unplugged = ask(cluster)
    cluster.await_idle()
    assert sorted(dead_and_hung.codes) == [("slurmd-down", "n1"), ("slurmd-hung", "n2")], dead_and_hung.report
    assert unplugged.codes == [("node-unreachable", "n1")], unplugged.report


def test_a_host_that_filters_is_no_closed_flow(cluster: HandMadeCluster) -> None:
    rule = "type filter hook input priority 0\nct state new tcp dport 30000-65535 drop"
    cluster.head.network(["nft", "-f", "-"], input=f"table inet own {{\nchain input {{\n{rule}\n}}\n}}\n")
    try:
        answer = ask(cluster)
    finally:
        cluster.head.network(["nft", "delete", "table", "inet", "own"])
    assert answer.codes == [("host-firewall", "head")], answer.report


def test_a_wrong_key_is_no_network(cluster: HandMadeCluster) -> None:
    worker = cluster.workers[1]
    key = worker.read("/etc/munge/munge.key")
    cluster.start_munge(worker, "another key, long enough for munge 0123456789")
    cluster.restart_slurmd(worker)
    try:
        answer = ask(cluster)
    finally:
        cluster.start_munge(worker, key)
        cluster.restart_slurmd(worker)
        cluster.await_idle()
    assert answer.codes[0] == ("munge-key-differs", "n2"), answer.report
    assert {code for code, _ in answer.codes} == {"munge-key-differs"}
    mended = ask(cluster)
    assert (mended.status, mended.codes) == (0, []), mended.report


def test_names_configuration_disks_and_mounts(cluster: HandMadeCluster) -> None:
    first, second = cluster.workers
    first.check(["sh", "-c", "cp /etc/hosts /root/; grep -v ' head$' /root/hosts > /etc/hosts"])
    nameless = ask(cluster)
    first.check(["sh", "-c", "cat /root/hosts > /etc/hosts"])
    cluster.await_idle()
    assert nameless.codes[0] == ("name-does-not-resolve", "n1"), nameless.report

    first.check(["sh", "-c", "echo DebugFlags=Steps >> /etc/slurm/slurm.conf"])
    second.check(["mount", "-t", "tmpfs", "-o", "size=20m", "full", "/var/log"])
    second.run(["dd", "if=/dev/zero", "of=/var/log/fill", "bs=1M", "count=30"], timeout=30)
    try:
        answer = ask(cluster)
    finally:
        first.check(["sed", "-i", "$d", "/etc/slurm/slurm.conf"])
        second.check(["umount", "-l", "/var/log"])
    assert sorted(answer.codes) == [("config-differs", "n1"), ("disk-full", "n2")], answer.report
    assert "+ DebugFlags=Steps" in " ".join(fault["sentence"] for fault in answer.report["faults"])


def test_a_mount_that_hangs_stops_no_other_probe(cluster: HandMadeCluster) -> None:
    """A FUSE file system whose server never answers: stat waits in the kernel, as with a dead file server."""
    server = (
        "import ctypes, os, sys, time\n"
        "fd = os.open('/dev/fuse', os.O_RDWR)\n"
        "os.makedirs('/mnt/shared', exist_ok=True)\n"
        "data = f'fd={fd},rootmode=40000,user_id=0,group_id=0'.encode()\n"
        "assert ctypes.CDLL(None).mount(b'server:/', b'/mnt/shared', b'fuse', 0, data) == 0\n"
        "print('mounted', flush=True)\n"
        "time.sleep(120)\n"
    )
    with cluster.running(cluster.head, ["python3", "-c", server], until="mounted"):
        answer = ask(cluster)
    cluster.head.check(["umount", "-l", "/mnt/shared"])
    assert answer.codes == [("mount-hung", "head")], answer.report
    assert answer.probe("flow srun-io") == "ok"


def test_a_job_that_cannot_start_leaves_its_node_as_it_was(cluster: HandMadeCluster) -> None:
    worker = cluster.workers[0]
    worker.write("/etc/slurm/prolog", "#!/bin/sh\nexit 1\n")
    worker.check(["chmod", "755", "/etc/slurm/prolog"])
    worker.check(["sh", "-c", "echo Prolog=/etc/slurm/prolog >> /etc/slurm/slurm.conf"])
    cluster.restart_slurmd(worker)
    cluster.await_idle()
    try:
        answer = ask(cluster)
        assert cluster.head.check(["sinfo", "--noheader", "--list-reasons"]) == ""
    finally:
        worker.check(["sed", "-i", "$d", "/etc/slurm/slurm.conf"])
        cluster.restart_slurmd(worker)
        cluster.await_idle()
    assert ("job-launch-failed", "n1") in answer.codes, answer.report
    assert not {code for code, _ in answer.codes if code.endswith("-blocked")}


def test_whoever_ends_it_early_finds_no_job_left(cluster: HandMadeCluster) -> None:
    done = cluster.head.run(["timeout", "--preserve-status", "--signal=TERM", "6", "python3", DOCTOR], timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "its jobs are cancelled" in done.stderr
    assert cluster.head.check(["squeue", "--noheader", "--states=PENDING,RUNNING"]) == ""
    cluster.await_idle()


def test_it_never_waits_behind_users_jobs(cluster: HandMadeCluster) -> None:
    script = "#!/bin/sh\nsleep 100\n"
    for worker in cluster.workers:
        cluster.head.check(["sbatch", f"--nodelist={worker.name}", "--output=/dev/null"], input=script)
    cluster.await_state("allocated")
    try:
        done = cluster.head.run(["python3", DOCTOR, "--json"], timeout=LIMIT_SECONDS)
        report = json.loads(done.stdout)
        running = cluster.head.check(["squeue", "--noheader", "--format=%j %T"]).split("\n")
    finally:
        cluster.head.check(["scancel", "--user=root"])
        cluster.await_idle()
    assert [line for line in running if line] == ["sbatch RUNNING"] * 2
    assert (done.returncode, report["faults"]) == (2, []), report
    rows = {row["probe"]: row for row in report["probes"]}
    assert rows["flow node-rpc"]["outcome"] == "ok"
    assert rows["flow srun-io"]["outcome"] == "could not tell"
    assert "busy with users' jobs" in rows["flow srun-io"]["evidence"]


def test_a_head_whose_slurmctld_is_dead_or_hangs(cluster: HandMadeCluster) -> None:
    head = cluster.head
    head.check(["pkill", "-STOP", "-x", "slurmctld"])
    hung = ask(cluster)
    head.check(["pkill", "-CONT", "-x", "slurmctld"])
    head.check(["pkill", "-x", "slurmctld"])
    dead = ask(cluster)
    head.check(["slurmctld"])
    cluster.await_idle()
    for answer in (hung, dead):
        assert (answer.status, answer.codes) == (1, [("slurmctld-down", "head")]), answer.report


def test_eight_healthy_workers_are_examined_within_20_seconds(root: Path) -> None:
    with made(root, 8, extra="SrunPortRange=61000-61009\n") as cluster:
        answer = ask(cluster)
        assert (answer.status, answer.codes) == (0, []), answer.report
        assert answer.report["seconds"] < 20
        holder = (
            "import socket, time\n"
            "held = [socket.create_server(('', port)) for port in range(61000, 61008)]\n"
            "print('held', flush=True)\n"
            "time.sleep(100)\n"
        )
        with cluster.running(cluster.head, ["python3", "-c", holder], until="held"):
            exhausted = ask(cluster)
    assert exhausted.codes == [("srun-ports-exhausted", "head")], exhausted.report
