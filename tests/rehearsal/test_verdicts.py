"""On real nodes each fault gets its own verdict, whatever it looks like to a user."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from slurm_cluster.rehearsal.node import Node
from slurm_cluster.rehearsal.session import Rehearsal
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.verdict import Code, Verdict
from tests.rehearsal.breakage_scripts import HEAD_AGAIN, NO_HEAD, OTHER_KEY, OWN_KEY
from tests.rehearsal.closing import closed
from tests.rehearsal.cluster_user import ClusterUser
from tests.rehearsal.investigator import Investigator

pytestmark = pytest.mark.rehearsal

FLOWS = cluster_flows(SlurmPorts())
_FILTER = """\
table inet rehearsed_firewall {
    chain input {
        type filter hook input priority filter; policy accept;
        ct state established,related accept
        iifname != lo tcp dport != 6817 counter %s
    }
}
"""


@pytest.fixture
def investigator(rehearsal: Rehearsal, cluster: ClusterUser, monkeypatch: pytest.MonkeyPatch) -> Investigator:
    """Asks the healthy cluster; here all agents start their commands at the same moment."""
    assert cluster.workers
    monkeypatch.setattr(probe_plan, "WINDOW_SECONDS", 6)
    return Investigator(rehearsal)


@contextmanager
def broken(cluster: ClusterUser, node: Node, break_it: str, mend_it: str) -> Iterator[None]:
    """Run one script on a node before the block and one after it."""
    done = cluster.root(node, f"set -e\n{break_it}")
    try:
        assert done.returncode == 0, done
        yield
    finally:
        done = cluster.root(node, f"set -e\n{mend_it}")
        assert done.returncode == 0, done
        cluster.settle()


def only(found: list[Verdict], code: Code, node: str) -> Verdict:
    """Return the first finding, after seeing that there is no other kind of fault beside it."""
    assert {item.code for item in found} == {code}, [item.reason for item in found]
    assert found[0].node == node
    return found[0]


def test_a_healthy_cluster_passes_once_a_request_and_no_probe_finds_a_fault(
    investigator: Investigator, cluster: ClusterUser
) -> None:
    names = [worker.name for worker in cluster.workers]
    first = investigator.gate("healthy", phase="create", wait=20)
    assert (first["passed"], first["stage"], sorted(first["tested"])) == (True, "done", names)
    assert sorted(first["nodes"]) == names
    assert all(f"{name} {first['nodes'][name].split('.')[0]}" in first["output"] for name in names), first
    began = time.monotonic()
    assert investigator.gate("healthy", phase="create", wait=20) == first
    assert time.monotonic() - began < 3
    assert investigator.findings() == []


def test_an_update_tests_free_nodes_and_waits_for_no_user(investigator: Investigator, cluster: ClusterUser) -> None:
    first, second, third = (worker.name for worker in cluster.workers)
    job = cluster.submit("sleep 600", f"--nodelist={first}", "--exclusive")
    cluster.root(cluster.head, f"scontrol update nodename={third} state=drain reason='out of order'")
    try:
        result = investigator.gate("busy", phase="update", on_update="free", wait=20)
        assert result["passed"], result
        assert (result["tested"], result["busy"], list(result["skipped"])) == ([second], [first], [third])
        assert "out of order" in result["skipped"][third]
        assert sorted(result["nodes"]) == [first, second]
        assert cluster.state(job) == "RUNNING"
    finally:
        cluster.root(cluster.head, f"scontrol update nodename={third} state=resume")
        cluster.settle()


def test_srun_io_fails_the_gate_and_the_probes_name_its_rule(
    rehearsal: Rehearsal, investigator: Investigator, cluster: ClusterUser
) -> None:
    flow = next(flow for flow in FLOWS if flow.id == "srun-io")
    with closed(rehearsal, flow, FLOWS):
        gate = investigator.gate("srun-io", phase="create", wait=20, limit=8)
        assert (gate["passed"], gate["stage"], gate["failure"]["step"]) == (False, "smoke-test", "srun:cpu")
        assert "no output" in gate["failure"]["reason"]
        verdict = only(investigator.findings(gate), Code.SRUN_IO_BLOCKED, cluster.workers[0].name)
    assert "TCP 1024, 33279, 65535 on head" in verdict.sentence
    assert "while TCP 6817 there answers" in verdict.sentence
    assert "inbound TCP 1024-65535 from security group sg-" in verdict.change
    assert verdict.change.count("sg-") == 3


CLOSED = {
    "controller-rpc": Code.CONTROLLER_RPC_BLOCKED,
    "node-rpc": Code.NODE_RPC_BLOCKED,
    "message-tree": Code.WORKER_TO_WORKER_BLOCKED,
    "srun-io-in-job": Code.WORKER_TO_WORKER_BLOCKED,
    "controller-to-srun-in-job": Code.HEAD_TO_WORKER_BLOCKED,
}


@pytest.mark.parametrize(
    "flow_ids",
    [("controller-rpc", "node-rpc", "message-tree"), ("srun-io-in-job", "controller-to-srun-in-job")],
    ids=" and ".join,
)
def test_each_closed_flow_is_named_and_no_other(
    flow_ids: tuple[str, ...], rehearsal: Rehearsal, investigator: Investigator
) -> None:
    with ExitStack() as closures:
        for flow in FLOWS:
            if flow.id in flow_ids:
                closures.enter_context(closed(rehearsal, flow, FLOWS))
        found = investigator.findings()
    assert {item.sentence.partition(":")[0]: item.code for item in found} == {name: CLOSED[name] for name in flow_ids}
    assert found[0].sentence.startswith(flow_ids[0])


def test_faults_of_workers_are_told_apart_and_are_no_blocked_flow(
    investigator: Investigator, cluster: ClusterUser
) -> None:
    first, second, third = cluster.workers
    with (
        broken(cluster, first, NO_HEAD % ("", ""), HEAD_AGAIN),
        broken(cluster, second, OTHER_KEY, OWN_KEY),
        broken(cluster, third, "systemctl stop slurmd", "systemctl start slurmd"),
    ):
        found = investigator.findings()
    assert [(item.code, item.node) for item in found] == [
        (Code.NAME_DOES_NOT_RESOLVE, first.name),
        (Code.MUNGE_KEY_DIFFERS, second.name),
        (Code.SLURMD_DOWN, third.name),
    ], [item.reason for item in found]
    sentences = [item.sentence for item in found]
    assert "does not resolve (no such name)" in sentences[0]
    assert "Invalid credential" in sentences[1]
    assert "slurmd.service is inactive" in sentences[2]


def test_a_head_looked_for_elsewhere_a_stopped_munge_and_a_failed_bootstrap(
    investigator: Investigator, cluster: ClusterUser
) -> None:
    first, second, third = cluster.workers
    bootstrap = "slurm-cluster bootstrap"
    with (
        broken(cluster, first, NO_HEAD % ("10.99.99.99", "10.99.99.99"), HEAD_AGAIN),
        broken(cluster, second, "systemctl stop munge", "systemctl start munge"),
        broken(
            cluster,
            third,
            f"cp /etc/passwd /root/passwd; sed -i 's/:1000:/:1001:/' /etc/passwd; ! {bootstrap}",
            f"cat /root/passwd > /etc/passwd; {bootstrap}",
        ),
    ):
        found = investigator.findings()
    codes = [(item.code, item.node) for item in found]
    assert codes[:3] == [
        (Code.BOOTSTRAP_FAILED, third.name),
        (Code.MUNGE_DOWN, second.name),
        (Code.NAME_DOES_NOT_RESOLVE, first.name),
    ], [item.reason for item in found]
    assert not {code for code, _ in codes} & set(CLOSED.values())
    assert "failed in step users: the job user" in found[0].sentence
    assert "resolves to 10.99.99.99;" in found[2].sentence


def test_a_slurmctld_that_is_stopped_and_one_that_hangs(investigator: Investigator, cluster: ClusterUser) -> None:
    with broken(cluster, cluster.head, "systemctl stop slurmctld", "systemctl start slurmctld"):
        verdict = only(investigator.findings(), Code.SLURMCTLD_DOWN, "head")
        assert "slurmctld.service is inactive" in verdict.sentence
    pause = "systemctl kill --signal={} slurmctld"
    with broken(cluster, cluster.head, pause.format("SIGSTOP"), pause.format("SIGCONT")):
        verdict = only(investigator.findings(), Code.SLURMCTLD_DOWN, "head")
        assert "does not answer `scontrol ping`" in verdict.sentence


@pytest.mark.parametrize("action", ["drop", "reject with tcp reset"])
def test_a_packet_filter_of_the_head_is_no_security_group(
    action: str, investigator: Investigator, cluster: ClusterUser
) -> None:
    break_it = f"nft --file - <<'END'\n{_FILTER % action}END"
    with broken(cluster, cluster.head, break_it, "nft delete table inet rehearsed_firewall"):
        verdict = only(investigator.findings(), Code.HOST_FIREWALL, "head")
    assert "the SYN reached its interface" in verdict.sentence
