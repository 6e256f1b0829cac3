"""apply, the daemons and the smoke test: what they do with what Slurm answers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from slurm_cluster.model.spec import PartitionSpec
from slurm_cluster.runtime.node import apply, daemons, files, overrides, slurm_conf, smoke_test
from slurm_cluster.runtime.node.commands import CommandError
from slurm_cluster.runtime.node.errors import NodeError
from tests.runtime.node_doubles import Clock, Programs, cluster_spec

SPEC = cluster_spec()
PATH = "/slurm-cluster/stack/0f0f0f0f"
HEAD = slurm_conf.HeadFacts(short_hostname="ip-10-0-0-5", state_directory=Path("/s"), prolog=Path("/p"))


class Cluster:
    """SSM parameters and instance types of a cluster, and a directory for its files."""

    def __init__(self, directory: Path) -> None:
        self.ssm = boto3.client("ssm", region_name="eu-central-1")
        self.ec2 = boto3.client("ec2", region_name="eu-central-1")
        self.directory = directory

    def put(self, partition: PartitionSpec) -> None:
        self.ssm.put_parameter(
            Name=f"{PATH}/partitions/{partition.name}", Value=partition.to_json(), Type="String", Overwrite=True
        )

    def apply(self, run: Programs, head: slurm_conf.HeadFacts = HEAD) -> apply.Applied:
        return apply.apply(run, self.ssm, self.ec2, parameter_path=PATH, spec=SPEC, head=head, directory=self.directory)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    real = overrides.apply
    monkeypatch.setattr(overrides, "apply", lambda name, text: real(name, text, directory=tmp_path / "override.d"))
    with mock_aws():
        yield Cluster(tmp_path / "slurm")


def partition(name: str = "cpu", nodes: int = 2, instance_type: str = "c5.large") -> PartitionSpec:
    return PartitionSpec(name=name, instance_type=instance_type, static_nodes=nodes, default=name == "cpu")


def test_a_head_without_partitions_is_healthy(cluster: Cluster) -> None:
    done = cluster.apply(Programs({"systemctl is-active": [3, 0]}))
    assert (done.changed, done.action, done.nodes) == (True, "start", [])
    assert "PartitionName" not in (cluster.directory / "slurm.conf").read_text()


def test_applying_twice_changes_nothing(cluster: Cluster) -> None:
    cluster.put(partition())
    first = cluster.apply(Programs())
    assert (first.action, first.files) == ("restart", ["slurm.conf", "cgroup.conf", "gres.conf"])
    assert first.nodes == ["cpu-static-1", "cpu-static-2"]
    run = Programs()
    second = cluster.apply(run)
    assert (second.changed, second.action, second.files) == (False, "none", [])
    assert run.called("scontrol") + run.called("systemctl restart") == []


def test_one_more_partition_is_a_reconfiguration(cluster: Cluster) -> None:
    cluster.put(partition())
    cluster.apply(Programs())
    cluster.put(partition("big", 1, "c5.4xlarge"))
    run = Programs()
    done = cluster.apply(run)
    assert (done.action, done.files, done.nodes[0]) == ("reconfigure", ["slurm.conf"], "big-static-1")
    assert "CoresPerSocket=8 ThreadsPerCore=2" in (cluster.directory / "slurm.conf").read_text()
    assert run.calls[-1] == "scontrol reconfigure"


def test_another_head_machine_is_a_restart(cluster: Cluster) -> None:
    cluster.apply(Programs())
    run = Programs()
    other = slurm_conf.HeadFacts(short_hostname="ip-10-0-0-9", state_directory=Path("/s"), prolog=Path("/p"))
    assert cluster.apply(run, other).action == "restart"
    assert run.called("systemctl restart") == ["systemctl restart slurmctld.service"]


def test_a_configuration_that_slurm_does_not_take_replaces_nothing(cluster: Cluster) -> None:
    cluster.apply(Programs())
    before = (cluster.directory / "slurm.conf").read_bytes()
    cluster.put(partition())
    run = Programs({"scontrol show hostnames": CommandError("unrecognized key: FOO")})
    with pytest.raises(NodeError, match=r"the rendered Slurm configuration is not valid: unrecognized key: FOO"):
        cluster.apply(run)
    assert (cluster.directory / "slurm.conf").read_bytes() == before
    assert run.called("scontrol reconfigure") == []


def test_what_is_checked_is_what_would_be_written(cluster: Cluster) -> None:
    cluster.put(partition())
    checked: dict[str, str] = {}
    run = Programs()

    def read(_: list[str]) -> str:
        environment = run.environments[-1]
        assert environment is not None
        for path in Path(environment["SLURM_CONF"]).parent.iterdir():
            checked[path.name] = path.read_text()
        return ""

    run.answers["scontrol show hostnames"] = read
    cluster.apply(run)
    assert checked == {path.name: path.read_text() for path in cluster.directory.iterdir()}


def test_overrides_are_listed(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "override.d").mkdir()
    (tmp_path / "override.d" / "cgroup.conf").write_text("ConstrainRAMSpace=no\n")
    assert cluster.apply(Programs()).overrides == ["cgroup.conf"]
    assert "ConstrainRAMSpace=yes" not in (cluster.directory / "cgroup.conf").read_text()


def test_what_apply_did_is_json(cluster: Cluster) -> None:
    cluster.put(partition())
    assert json.loads(json.dumps(cluster.apply(Programs()).to_dict()))["nodes"] == ["cpu-static-1", "cpu-static-2"]


def test_slurmctld_that_runs_but_does_not_answer_is_a_failure() -> None:
    clock = Clock()
    daemons.wait_for_slurmctld(
        Programs({"scontrol ping": ["", "Slurmctld(primary) at h is UP\n"]}), sleep=clock.sleep, clock=clock
    )
    run = Programs({"scontrol ping": "Slurmctld(primary) at h is DOWN\n", "journalctl": "recovering\n"})
    with pytest.raises(NodeError, match="does not answer after 120 seconds: recovering"):
        daemons.wait_for_slurmctld(run, sleep=clock.sleep, clock=clock)


def test_a_port_that_opens_late_is_waited_for() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def listen_later(_: float) -> None:
        listener.listen()

    daemons.wait_for_port("127.0.0.1", port, sleep=listen_later)
    listener.close()


def test_a_refused_port_and_a_silent_one_have_different_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(NodeError, match="the head runs but not slurmctld"):
            daemons.wait_for_port("127.0.0.1", port, seconds=4, sleep=clock.sleep, clock=clock)

    def silent(*_: object, **__: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(NodeError, match="a security group keeps workers from this port"):
        daemons.wait_for_port("127.0.0.1", port, seconds=4, sleep=clock.sleep, clock=clock)


CONFIG = "Configuration data as of now\nSLURM_VERSION           = 24.11.7\nSlurmUser = slurm(64030)\n"


def test_patch_levels_of_one_release_line_work_together() -> None:
    run = Programs({"slurmd -V": "slurm-wlm 24.11.5\n", "scontrol show config": CONFIG})
    daemons.require_same_release(run, SPEC)
    environment = run.environments[-1]
    assert environment == {"SLURM_CONF_SERVER": "head.0f0f0f0f.slurm.internal:6817"}


def test_another_release_line_is_named() -> None:
    run = Programs({"slurmd -V": "slurm-wlm 26.05.5\n", "scontrol show config": CONFIG})
    with pytest.raises(NodeError, match=r"this worker has Slurm 26\.05\.5 and the head has 24\.11\.7: use one image"):
        daemons.require_same_release(run, SPEC)


def test_a_controller_that_refuses_this_node_points_at_key_and_clock() -> None:
    clock = Clock()
    run = Programs(
        {
            "slurmd -V": "slurm-wlm 24.11.5\n",
            "scontrol show config": CommandError("Protocol authentication error"),
        }
    )
    with pytest.raises(NodeError, match=r"Protocol authentication error; .*munge key or a clock that is off"):
        daemons.require_same_release(run, SPEC, sleep=clock.sleep, clock=clock)
    assert clock.now > 100


def test_slurmd_is_started_once_with_the_heads_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.replace
    monkeypatch.setattr(files, "replace", lambda path, text: real(path, text, uid=os.geteuid(), gid=os.getegid()))
    defaults = tmp_path / "slurmd"
    run = Programs({"systemctl is-active": [3, 0]})
    assert daemons.start_slurmd(run, SPEC, "cpu-static-1", defaults=defaults)
    assert 'SLURMD_OPTIONS="--conf-server head.0f0f0f0f.slurm.internal:6817 -N cpu-static-1"' in defaults.read_text()
    run.calls.clear()
    assert not daemons.start_slurmd(run, SPEC, "cpu-static-1", defaults=defaults)
    assert run.called("systemctl start") + run.called("systemctl restart") == []


def node(state: str, *, address: str = "10.0.0.11", reason: str = "") -> str:
    text = f"NodeName=cpu-static-1 Arch=x86_64 NodeAddr={address} NodeHostName=ip-10-0-0-11 State={state} Weight=1"
    return f"{text} Comment=State=IDLE" + (f" Reason={reason} [slurm@2026-11-30T18:55:24]" if reason else "") + "\n"


@pytest.mark.parametrize("state", ["IDLE+CLOUD", "MIXED+CLOUD", "IDLE+CLOUD+DRAIN", "ALLOCATED+CLOUD"])
def test_a_node_that_has_registered_is_done_even_when_it_is_drained(state: str) -> None:
    clock = Clock()
    run = Programs(
        {"scontrol --oneliner show node": ["", node("IDLE+CLOUD+POWERED_DOWN", address="cpu-static-1"), node(state)]}
    )
    daemons.wait_for_registration(run, "cpu-static-1", "10.0.0.11", sleep=clock.sleep, clock=clock)
    assert clock.now == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"state unknown to slurmctld, reason none; slurmd: hello"),
        (node("IDLE+CLOUD", address="10.0.0.99"), r"state IDLE\+CLOUD, reason none"),
        (node("DOWN+CLOUD+NOT_RESPONDING", reason="Not responding"), r"state DOWN.*, reason Not responding"),
    ],
)
def test_a_node_that_does_not_register_says_what_slurmctld_knows(text: str, reason: str) -> None:
    clock = Clock()
    run = Programs({"scontrol --oneliner show node": text, "journalctl": "hello\n"})
    with pytest.raises(NodeError, match=f"cpu-static-1 does not become registered: {reason}"):
        daemons.wait_for_registration(run, "cpu-static-1", "10.0.0.11", seconds=10, sleep=clock.sleep, clock=clock)


def test_an_invalid_registration_fails_at_once() -> None:
    clock = Clock()
    text = node("IDLE+CLOUD+INVALID_REG", reason="Low socket*core*thread count, Low CPUs")
    with pytest.raises(
        NodeError, match=r"refuses cpu-static-1: Low socket\*core\*thread count, Low CPUs .*its partition"
    ):
        daemons.wait_for_registration(
            Programs({"scontrol --oneliner show node": text}),
            "cpu-static-1",
            "10.0.0.11",
            sleep=clock.sleep,
            clock=clock,
        )
    assert clock.now == 0


def table(*states: str) -> str:
    return "".join(
        f"NodeName=cpu-static-{number} NodeHostName=ip-10-0-0-1{number} State={state} Reason=why\n"
        for number, state in enumerate(states, 1)
    )


PAIRS = "cpu-static-2 ip-10-0-0-12\ncpu-static-1 ip-10-0-0-11\n"
RUNUSER = "runuser --user=admin -- env -i PATH=/usr/local/bin:/usr/bin:/bin LC_ALL=C USER=admin HOME=/"
SRUN = f"{RUNUSER} timeout --kill-after=10 60 srun"
SALLOC = f"{RUNUSER} timeout --kill-after=10 60 salloc"


def smoke(answers: dict[str, Any], nodes: int = 2, **more: Any) -> tuple[smoke_test.Result, Programs]:
    clock = Clock()
    healthy = {
        "scontrol --oneliner show nodes": table(*["IDLE+CLOUD"] * nodes),
        SRUN: PAIRS,
        SALLOC: f"outer ip-10-0-0-12\n{PAIRS}",
    }
    run = Programs({**healthy, **answers})
    result = smoke_test.smoke_test(
        run, "admin", [partition(nodes=nodes)], wait_seconds=10, sleep=clock.sleep, clock=clock, **more
    )
    return result, run


def test_smoke_test_compares_each_node_with_its_host() -> None:
    result, run = smoke({})
    assert result.passed
    assert result.nodes == {"cpu-static-1": "ip-10-0-0-11", "cpu-static-2": "ip-10-0-0-12"}
    assert [(check.name, check.passed) for check in result.checks] == [
        ("workers-idle", True),
        ("srun:cpu", True),
        ("srun-in-job:cpu", True),
    ]
    assert result.output == PAIRS
    assert json.loads(json.dumps(result.to_dict()))["passed"] is True
    assert "--overlap --nodes=2 --ntasks=2" in run.called(SALLOC)[0]
    assert run.called("scancel") == []


@pytest.mark.parametrize(
    ("output", "got"),
    [
        ("", "got no output"),
        ("cpu-static-1 ip-10-0-0-11\n", "got cpu-static-1 ip-10-0-0-11;"),
        (PAIRS.replace("0-12", "0-11"), "got cpu-static-1 ip-10-0-0-11, cpu-static-2 ip-10-0-0-11"),
        (PAIRS + PAIRS, "got cpu-static-1 ip-10-0-0-11, cpu-static-1"),
    ],
    ids=["silence", "one node missing", "one host twice", "twice as much"],
)
def test_exit_status_0_proves_nothing(output: str, got: str) -> None:
    result, _ = smoke({SRUN: output})
    assert not result.passed
    assert got in result.checks[1].detail
    assert "expected cpu-static-1 ip-10-0-0-11, cpu-static-2 ip-10-0-0-12" in result.checks[1].detail


def test_right_output_with_a_failure_is_a_failure() -> None:
    result, run = smoke({SRUN: 1})
    assert not result.passed
    assert result.checks[1].detail.startswith("exit status 1; expected")
    assert run.called("scancel") == ["scancel --user=admin --name=slurm-cluster-smoke-test"]


@pytest.mark.parametrize("hung", [124, 137, CommandError("srun: no end after 90 seconds")])
def test_srun_that_hangs_is_ended_and_its_job_cancelled(hung: int | CommandError) -> None:
    result, run = smoke({SRUN: hung})
    assert not result.passed
    assert result.checks[1].detail.startswith("no end after 60 seconds; expected")
    assert run.called("scancel") != []
    assert result.checks[2].passed


@pytest.mark.parametrize(
    "output",
    [PAIRS, f"outer ip-10-0-0-5\n{PAIRS}", f"outer ip-10-0-0-11\nouter ip-10-0-0-12\n{PAIRS}", "outer ip-10-0-0-11\n"],
    ids=["no outer task", "outer task on the head", "two outer tasks", "inner srun silent"],
)
def test_the_inner_srun_must_have_run_on_a_worker(output: str) -> None:
    result, _ = smoke({SALLOC: output})
    assert not result.passed
    assert result.checks[1].passed
    assert result.checks[2].passed is False


def test_with_one_worker_the_second_step_does_not_apply_and_does_not_pass() -> None:
    result, run = smoke({SRUN: "cpu-static-1 ip-10-0-0-11\n"}, nodes=1)
    assert result.passed
    assert result.checks[2].passed is None
    assert "not applicable" in result.checks[2].detail
    assert run.called(SALLOC) == []


@pytest.mark.parametrize(
    "state",
    [
        "DOWN+CLOUD+NOT_RESPONDING",
        "IDLE+CLOUD+DRAIN",
        "IDLE+CLOUD+POWERED_DOWN",
        "IDLE+CLOUD+INVALID_REG",
        "ALLOCATED+CLOUD",
    ],
)
def test_workers_that_are_not_idle_are_named_with_state_and_reason(state: str) -> None:
    result, run = smoke({"scontrol --oneliner show nodes": table("IDLE+CLOUD", state)})
    assert not result.passed
    assert len(result.checks) == 1
    assert result.checks[0].detail == f"not idle after 10 seconds: cpu-static-2 {state} why"
    assert run.called("runuser") == []


def test_workers_that_slurmctld_does_not_know_are_named() -> None:
    result, _ = smoke({"scontrol --oneliner show nodes": CommandError("no controller")})
    assert "cpu-static-1 unknown to slurmctld; cpu-static-2 unknown" in result.checks[0].detail


def test_workers_are_waited_for() -> None:
    late = [table("IDLE+CLOUD", "IDLE+CLOUD+POWERED_DOWN")] * 3 + [table("IDLE+CLOUD", "IDLE+CLOUD")]
    result, _ = smoke({"scontrol --oneliner show nodes": late})
    assert result.passed
    assert result.checks[0].seconds == 3


def test_a_cluster_without_static_workers_has_proven_nothing() -> None:
    result = smoke_test.smoke_test(Programs(), "admin", [partition(nodes=0)])
    assert not result.passed
    assert "no static workers" in result.checks[0].detail
