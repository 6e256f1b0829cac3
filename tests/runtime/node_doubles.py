"""What stands in for programs, clocks and the cluster in tests of node programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.model.spec import ClusterSpec, PartitionSpec
from slurm_cluster.runtime.node.commands import CommandError, last_words
from slurm_cluster.runtime.node.facts import Gpus, InstanceFacts

Answer = str | int | CommandError | Callable[[list[str]], "Answer"]


class Programs:
    """A runner whose programs answer by the longest matching start of their command line.

    An answer is standard output, an exit status, an error to raise, or a function of the command line. A list gives one
    answer after the other and stays at the last. Programs without an answer succeed in silence.
    """

    def __init__(self, answers: Mapping[str, Answer | list[Answer]] | None = None) -> None:
        self.answers = dict(answers or {})
        self.calls: list[str] = []
        self.environments: list[Mapping[str, str] | None] = []
        self.inputs: list[str | None] = []

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60,
        check: bool = True,
        input: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        line = " ".join(argv)
        self.calls.append(line)
        self.environments.append(env)
        self.inputs.append(input)
        answer = self._answer(line)
        while callable(answer):
            answer = answer(list(argv))
        if isinstance(answer, CommandError):
            raise answer
        status, output = (answer, "") if isinstance(answer, int) else (0, answer)
        done = subprocess.CompletedProcess(list(argv), status, output, "")
        if check and status:
            raise CommandError(f"{line}: exit status {status}: {last_words(done)}")
        return done

    def _answer(self, line: str) -> Answer:
        matching = [start for start in self.answers if line.startswith(start)]
        if not matching:
            return ""
        start = max(matching, key=len)
        answer = self.answers[start]
        if isinstance(answer, list):
            return answer.pop(0) if len(answer) > 1 else answer[0]
        return answer

    def called(self, start: str) -> list[str]:
        """Return the command lines that began with ``start``."""
        return [line for line in self.calls if line.startswith(start)]


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def cluster_spec(*, srun: PortRange | None = None, job_credentials: bool = False) -> ClusterSpec:
    """Return a cluster like those that the constructs describe."""
    return ClusterSpec(
        cluster_id="1234abcd-0f0f0f0f",
        cluster_name="rehearsal",
        head_host="head.0f0f0f0f.slurm.internal",
        munge_key_secret_arn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:munge-AbCdEf",  # noqa: S106 - a name
        state_volume_id="vol-0123456789abcdef0",
        job_user="admin",
        job_credentials=job_credentials,
        ports=SlurmPorts(srun=srun) if srun else SlurmPorts(),
    )


PARTITIONS = (
    PartitionSpec(name="gpu", instance_type="g4dn.12xlarge", static_nodes=1, default=False),
    PartitionSpec(name="cpu", instance_type="c7g.xlarge", static_nodes=3, default=True),
    PartitionSpec(name="later", instance_type="c7g.xlarge", static_nodes=0, default=False),
)

FACTS = {
    "c7g.xlarge": InstanceFacts(instance_type="c7g.xlarge", cores=4, threads_per_core=1, memory_mib=7654),
    "g4dn.12xlarge": InstanceFacts(
        instance_type="g4dn.12xlarge",
        cores=24,
        threads_per_core=2,
        memory_mib=186649,
        gpus=Gpus(type="t4", count=4),
    ),
}
