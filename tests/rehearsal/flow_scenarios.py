"""For each flow of the table: what works while it is open, and how exactly it breaks while it is closed.

Slurm's own time limits set the length: 29 s until a command gives up on slurmctld, 12 s on a slurmd, 8 s until a step
gives up on srun's I/O port. A tree of width 1 by srun's own option shows with three workers what a cluster shows
beyond TreeWidth (16) nodes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.rehearsal.node import Node
from tests.rehearsal.cluster_user import ClusterUser, wait_until

RENDEZVOUS = Path(__file__).with_name("rendezvous.py").read_text()
_CONNECTION_FAILURE = "Communication connection failure"
_KILLED = 128 + 9
_HELD = "held"


@dataclass(frozen=True)
class Scenario:
    """Two checks of one flow; each raises AssertionError when the cluster behaves otherwise.

    Args:
        works: passes while the flow is open.
        breaks: passes while it is closed.
        prepared: has ready what ``breaks`` needs from before the flow closes.
    """

    works: Callable[[ClusterUser], None]
    breaks: Callable[[ClusterUser], None]
    prepared: Callable[[ClusterUser], None] = lambda _cluster: None


def _names(text: str) -> list[str]:
    return sorted(text.split())


def _wait_for_log(cluster: ClusterUser, node: Node, pattern: str, *, since: float) -> None:
    """Wait until Slurm has logged a line that matches ``pattern`` on ``node``."""
    wait_until(
        lambda: re.search(pattern, cluster.log(node, since=since)) is not None,
        seconds=60,
        what=f"{pattern!r} in the journal of {node.name}",
    )


def _controller_rpc_works(cluster: ClusterUser) -> None:
    done = cluster.user(cluster.workers[0], "sinfo --noheader --Node --format=%N")
    assert _names(done.stdout) == [worker.name for worker in cluster.workers], done


def _controller_rpc_breaks(cluster: ClusterUser) -> None:
    worker = cluster.workers[0]
    began = time.time()
    assert cluster.root(cluster.head, "scontrol reconfigure").returncode == 0, "it makes every slurmd register again"
    done = cluster.user(worker, "sinfo")
    assert done.returncode != 0, done
    assert "Unable to contact slurm controller (connect failure)" in done.stderr
    sentence = r"Unable to register: Unable to contact slurm controller \(connect failure\)"
    _wait_for_log(cluster, worker, sentence, since=began)


def _node_rpc_works(cluster: ClusterUser) -> None:
    for worker in cluster.workers:
        done = cluster.user(cluster.head, f"srun --nodelist={worker.name} printenv SLURMD_NODENAME")
        assert (done.stdout, done.returncode) == (f"{worker.name}\n", 0), done


def _node_rpc_prepared(cluster: ClusterUser) -> None:
    """Hold an allocation: a new job would wait for its prolog, and slurmctld take minutes to say why."""
    held = f"salloc --no-shell --job-name={_HELD} --nodelist={cluster.workers[0].name}"
    assert cluster.user(cluster.head, held).returncode == 0


def _node_rpc_breaks(cluster: ClusterUser) -> None:
    name = cluster.workers[0].name
    job = f"$(squeue --noheader --format=%i --name={_HELD})"
    done = cluster.user(cluster.head, f"srun --jobid={job} printenv SLURMD_NODENAME")
    assert (done.stdout, done.returncode != 0) == ("", True), done
    assert re.search(f"Task launch for StepId=.* failed on node {name}: {_CONNECTION_FAILURE}", done.stderr), done


def _srun_on_all(cluster: ClusterUser, *options: str) -> str:
    names = ",".join(worker.name for worker in cluster.workers)
    return " ".join(["srun", f"--nodelist={names}", *options, "printenv SLURMD_NODENAME"])


def _message_tree_works(cluster: ClusterUser) -> None:
    done = cluster.user(cluster.head, _srun_on_all(cluster, "--treewidth=1"))
    assert _names(done.stdout) == [worker.name for worker in cluster.workers], done


def _message_tree_breaks(cluster: ClusterUser) -> None:
    first, second, *_ = cluster.workers
    wide = cluster.user(cluster.head, _srun_on_all(cluster))
    assert _names(wide.stdout) == [worker.name for worker in cluster.workers], (
        f"a wide tree has no second level: {wide}"
    )
    began = time.time()
    deep = cluster.user(cluster.head, _srun_on_all(cluster, "--treewidth=1"))
    assert deep.returncode != 0, deep
    assert _names(deep.stdout) == [first.name], deep
    assert re.search(f"Task launch for StepId=.* failed on node {second.name}: {_CONNECTION_FAILURE}", deep.stderr), (
        deep
    )
    _wait_for_log(
        cluster, first, rf"_forward_thread: failed to {second.name} \(.*\): Connection timed out", since=began
    )


def _srun_io_works(cluster: ClusterUser) -> None:
    done = cluster.user(cluster.head, f"timeout 30 srun --nodelist={cluster.workers[0].name} hostname")
    assert (len(done.stdout.split()), done.returncode) == (1, 0), done


def _srun_io_breaks(cluster: ClusterUser) -> None:
    worker = cluster.workers[0]
    began = time.time()
    done = cluster.user(cluster.head, f"timeout --signal=KILL 12 srun --nodelist={worker.name} hostname")
    assert done.stdout == "", done
    # the node may still be ending the job before
    said = re.sub(r"^srun: job \d+ .*resources\n", "", done.stderr, flags=re.MULTILINE)
    assert said in ("", "Killed\n"), f"srun says nothing, the shell tells of its end at most: {done}"
    assert done.returncode == _KILLED, f"srun was still waiting: {done}"
    for words in ("connect io: Connection timed out", "IO setup failed: Slurmd could not connect IO"):
        _wait_for_log(cluster, worker, words, since=began)


def _on_two(cluster: ClusterUser) -> str:
    return f"--nodelist={cluster.workers[0].name},{cluster.workers[1].name}"


def _srun_io_in_job_works(cluster: ClusterUser) -> None:
    first, second, _ = cluster.workers
    job = cluster.submit("srun printenv SLURMD_NODENAME", _on_two(cluster))
    assert cluster.wait_for_end(job, seconds=30) == "COMPLETED"
    assert _names(cluster.output(job, first)) == [first.name, second.name]


def _srun_io_in_job_breaks(cluster: ClusterUser) -> None:
    first, second, third = cluster.workers
    began = time.time()
    two = cluster.submit("srun printenv SLURMD_NODENAME", _on_two(cluster))
    one = cluster.submit("srun printenv SLURMD_NODENAME", f"--nodelist={third.name}")
    assert cluster.wait_for_end(one, seconds=30) == "COMPLETED"
    assert _names(cluster.output(one, third)) == [third.name], "an srun that stays on its node needs no network"
    _wait_for_log(cluster, second, "IO setup failed: Slurmd could not connect IO", since=began)
    assert cluster.state(two) == "RUNNING", "its srun hangs"
    assert _names(cluster.output(two, first)) == [first.name], "only the task beside srun is heard"


@dataclass(frozen=True)
class _Callbacks:
    """Two jobs that slurmctld must call: one waits in salloc for a busy node, one for CPUs of its own allocation."""

    grant: str
    wake: str

    @classmethod
    def submit(cls, cluster: ClusterUser) -> _Callbacks:
        first, second, third = (worker.name for worker in cluster.workers)
        cluster.submit("sleep 5", "--exclusive", f"--nodelist={second}")
        nested = f"salloc --exclusive --nodelist={second} srun --nodes=1 printenv SLURMD_NODENAME"
        # An salloc inside a job is a job of its own: it must not take over what the batch step was told.
        grant = f'unset $(compgen -v SLURM_); {nested}; echo "salloc ended"'
        step = "srun --exact --ntasks=1 --cpus-per-task=$SLURM_CPUS_ON_NODE"
        wake = f"{step} sleep 5 & sleep 1; {step} echo woken; wait"
        return cls(
            grant=cluster.submit(grant, "--exclusive", f"--nodelist={first}"),
            wake=cluster.submit(wake, "--exclusive", f"--nodelist={third}"),
        )


def _callbacks_work(cluster: ClusterUser) -> None:
    first, second, third = cluster.workers
    jobs = _Callbacks.submit(cluster)
    assert cluster.wait_for_end(jobs.grant, seconds=40) == "COMPLETED"
    said = cluster.output(jobs.grant, first)
    assert "queued and waiting for resources" in said, "else nothing had to be called back"
    assert said.splitlines().count(second.name) == 1, said
    assert cluster.wait_for_end(jobs.wake, seconds=20) == "COMPLETED"
    assert "woken" in cluster.output(jobs.wake, third).split()


def _callbacks_break(cluster: ClusterUser) -> None:
    first, second, third = cluster.workers
    began = time.time()
    jobs = _Callbacks.submit(cluster)
    _wait_for_log(cluster, cluster.head, f"Killing interactive JobId=.*: {_CONNECTION_FAILURE}", since=began)
    said = cluster.output(jobs.grant, first)
    assert "queued and waiting for resources" in said
    assert second.name not in said.split(), said
    assert cluster.state(jobs.grant) == "RUNNING", f"salloc waits for ever: {said}"
    assert "woken" not in cluster.output(jobs.wake, third), "its CPUs have been free for as long as slurmctld tried"
    assert cluster.state(jobs.wake) == "RUNNING"


def _rendezvous(cluster: ClusterUser, *options: str) -> str:
    first = cluster.workers[0]
    command = " ".join(["srun", *options, f"env MASTER_ADDR={first.private_ip} MASTER_PORT=29500 python3 -"])
    # srun sends its standard input to every task
    done = cluster.user(cluster.head, command, input=RENDEZVOUS)
    return done.stdout


def _mpi_works(cluster: ClusterUser) -> None:
    said = _rendezvous(cluster, _on_two(cluster), "--nodes=2", "--ntasks=2")
    assert said.count("met 0,1") == 2, said


def _mpi_breaks(cluster: ClusterUser) -> None:
    one_node = _rendezvous(cluster, f"--nodelist={cluster.workers[0].name}", "--nodes=1", "--ntasks=2", "--overcommit")
    assert one_node.count("met 0,1") == 2, one_node
    two_nodes = _rendezvous(cluster, _on_two(cluster), "--nodes=2", "--ntasks=2")
    assert two_nodes.count("met nobody: timed out") == 2, two_nodes


SCENARIOS = {
    "controller-rpc": Scenario(_controller_rpc_works, _controller_rpc_breaks),
    "node-rpc": Scenario(_node_rpc_works, _node_rpc_breaks, _node_rpc_prepared),
    "message-tree": Scenario(_message_tree_works, _message_tree_breaks),
    "srun-io": Scenario(_srun_io_works, _srun_io_breaks),
    "srun-io-in-job": Scenario(_srun_io_in_job_works, _srun_io_in_job_breaks),
    "controller-to-srun-in-job": Scenario(_callbacks_work, _callbacks_break),
    "mpi": Scenario(_mpi_works, _mpi_breaks),
}
"""By flow id."""
