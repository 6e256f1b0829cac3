"""Visits to workers: one batch job a node, which starts where srun does not; or ssh, where that is asked for.

No job outlives the doctor, none waits for users' jobs, and a node that Slurm drains because a job of the doctor could
not start on it is given back as it was.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from slurm_cluster.doctor import answers, payload, worker
from slurm_cluster.doctor.collector import Collector
from slurm_cluster.doctor.table import Node, seconds
from slurm_cluster.runtime.node import node_table
from slurm_cluster.runtime.node.commands import CommandError, Runner, last_words

JOB_NAME = "slurm-doctor"
_COMMAND_SECONDS = 15.0
_POLL_SECONDS = 0.5
_COMPLETING_SECONDS = 5.0
"""After the end of its script an answer can only be under way."""

_FIELD = re.compile(r"\b(JobState|Reason|ExitCode|StartTime)=(\S+)")
_FOR_A_JOB = re.compile(
    r"batch job complete failure|prolog error|epilog error|launch failed|SlurmdSpoolDir is full", re.IGNORECASE
)
"""Reasons with which Slurm drains a node that a job could not start on, or end."""

_WITHOUT_ANSWER = {
    str(worker.NO_INTERPRETER): "it has neither Python 3.11 nor bash",
    str(worker.NO_SCONTROL): "it has no scontrol, so its job could not answer",
    str(worker.NOT_HEARD): "its job ran and could not reach slurmctld with its answer",
}
"""Why, by the exit status of its job."""

_MEMORY_MIB = 100
_KEPT_VARIABLES = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH")
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=accept-new")
_BY_SSH = 'd=/dev/shm; [ -w $d ] || d=/tmp; f=$(mktemp -p $d) && cat >"$f" && sh "$f"; s=$?; rm -f "$f"; exit $s'


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a visit may take, in seconds.

    Args:
        start: for a job to start.
        answer: from its start to the last piece of its answer.
    """

    start: float = 12
    answer: float = 40


@dataclass(kw_only=True)
class Visit:
    """What became of the visit to one node.

    Args:
        how: ``job`` or ``ssh`` where it answered; ``silent`` where it runs and does not answer; ``failed`` where it
            ended without; ``not`` where there was none.
        why: for the last three.
        job: its id, empty for none.
        drained: reason with which Slurm drained the node for the job, empty if it did not.
        submitted: before its job was submitted, seconds since the epoch; 0 for none.
        started: when it started by slurmctld's clock, seconds since the epoch; 0 if unknown.
        answer: what ``worker.examine`` found.
        received: when the answer had come.
    """

    how: str
    why: str = ""
    job: str = ""
    drained: str = ""
    submitted: float = 0.0
    started: float = 0.0
    answer: Mapping[str, Any] | None = None
    received: float = 0.0


class Visits:
    """Makes visits; leaves no job behind when it is left.

    Args:
        run: runs programs.
        collector: where answers may come directly.
        memory: whether the cluster gives out memory, so that a job must ask for its own.
        user: as whom jobs are submitted, by default as the one who runs this.
        ssh: whether nodes are entered by ssh where no job can start.
        limits: as the class says.
    """

    def __init__(
        self,
        run: Runner,
        collector: Collector,
        *,
        memory: bool,
        user: str = "",
        ssh: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._run = run
        self._collector = collector
        self._memory = memory
        self._user = user
        self._ssh = ssh
        self._limits = limits or Limits()
        self._jobs: dict[str, Node] = {}
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        with self._lock:
            jobs = dict(self._jobs)
        if jobs:
            self._quietly(["scancel", "--quiet", *jobs])

    def visit(self, node: Node, request: Mapping[str, str], *, unfit: str = "") -> Visit:
        """Ask one node, and wait for its answer as long as the limits allow.

        Args:
            node: the node.
            request: variables for ``worker.main``.
            unfit: why no job should be tried on it, empty if one may.
        """
        if why := unfit or node.why_not:
            return self._enter(node, request, Visit(how="not", why=why))
        found = self._ask_by_job(node, request)
        if found.job:
            self._end(node, found)
        return found if found.answer is not None else self._enter(node, request, found)

    def _enter(self, node: Node, request: Mapping[str, str], otherwise: Visit) -> Visit:
        """Ask a node by ssh, if that is wanted; return ``otherwise`` where it brings no answer."""
        if not self._ssh:
            return otherwise
        limit = float(request["DOCTOR_SECONDS"]) + self._limits.answer / 2
        try:
            done = self._run(
                [*_SSH, node.state.address or node.name, _BY_SSH],
                input=payload.script(request),
                check=False,
                timeout=limit,
            )
            return Visit(how="ssh", why=otherwise.why, answer=answers.plain(done.stdout), received=time.time())
        except (CommandError, ValueError) as problem:
            otherwise.why += f"; ssh: {problem}"
            return otherwise

    def _ask_by_job(self, node: Node, request: Mapping[str, str]) -> Visit:
        script = payload.script({**request, **self._collector.request, "DOCTOR_JOB": "yes"})
        try:
            with self._lock:
                if self._over:
                    return Visit(how="not", why="the doctor was stopped")
                done = self._run(self._submission(node), input=script, check=False, timeout=_COMMAND_SECONDS)
                job = done.stdout.strip().split(";")[0]
                if done.returncode == 0 and job.isdigit():
                    self._jobs[job] = node
        except CommandError as problem:
            return Visit(how="not", why=f"no job could be submitted: {problem}")
        if done.returncode != 0 or not job.isdigit():
            return Visit(how="not", why=f"no job could be submitted: {last_words(done)}")
        return self._listen(node.name, job)

    def _submission(self, node: Node) -> list[str]:
        # no setting of the caller's environment may change where and how the job runs
        kept = [f"{name}={os.environ[name]}" for name in _KEPT_VARIABLES if name in os.environ]
        become = ["runuser", f"--user={self._user}", "--"] if self._user else []
        return [
            *become,
            *("env", "-i", *kept, "HOME=/", "LC_ALL=C", "sbatch", "--parsable", f"--job-name={JOB_NAME}"),
            *("--nodes=1", "--ntasks=1", f"--nodelist={node.name}", f"--partition={node.partitions[0]}"),
            *("--time=2", "--no-requeue", "--chdir=/", "--output=/dev/null", "--error=/dev/null", "--input=/dev/null"),
            *([f"--mem={min(_MEMORY_MIB, max(1, node.memory))}M"] if self._memory else []),
        ]

    def _listen(self, node: str, job: str) -> Visit:
        """Follow a job until it has answered, ended, or used up its time."""
        found = Visit(how="not", why="its job did not start", job=job, submitted=time.time() - _COMMAND_SECONDS)
        began = time.monotonic()
        parts: dict[int, str] = {}
        while not self._over:
            shown = self._show(job)
            fields = dict(_FIELD.findall(shown))
            state, waited = fields.get("JobState", ""), time.monotonic() - began
            if (answer := self._collector.answer(node)) is not None:
                return self._taken(found, answer, fields)
            if state == "PENDING":
                found.why = f"its job waits: {fields.get('Reason', '')}"
                if waited > self._limits.start:
                    return found
            elif state in ("RUNNING", "COMPLETING", "CONFIGURING"):
                if not found.started:
                    found.started, began = seconds(fields.get("StartTime", "")), time.monotonic()
                    found.how, found.why = "silent", "its job runs, and nothing comes back from it"
                ended = state == "COMPLETING" and waited > _COMPLETING_SECONDS
                if found.started and (ended or waited > self._limits.answer):
                    return found
            elif state:
                return self._ended(found, state, fields)
            elif waited > self._limits.start:
                return found
            part = answers.piece(answers.comment(shown))
            if part is not None:
                number, count, text = part
                parts[number] = text
                self._run(["scontrol", "update", f"JobId={job}", f"Comment={answers.ACK}"], check=False, timeout=15)
                if len(parts) == count:
                    return self._answered(found, "".join(parts[index] for index in sorted(parts)))
                continue
            time.sleep(_POLL_SECONDS)
        return found

    def _taken(self, found: Visit, answer: Mapping[str, Any], fields: Mapping[str, str]) -> Visit:
        found.started = found.started or seconds(fields.get("StartTime", ""))
        found.how, found.why, found.answer, found.received = "job", "", answer, time.time()
        return found

    def _answered(self, found: Visit, text: str) -> Visit:
        try:
            return self._taken(found, answers.decode(text), {})
        except ValueError as problem:
            found.how, found.why = "failed", f"its answer cannot be read: {problem}"
            return found

    def _ended(self, found: Visit, state: str, fields: Mapping[str, str]) -> Visit:
        status = fields.get("ExitCode", "").partition(":")[0]
        if status in _WITHOUT_ANSWER:
            found.how, found.why = "silent", _WITHOUT_ANSWER[status]
            return found
        found.how = "failed"
        found.why = f"job {found.job} is {state}, exit {fields.get('ExitCode')}, reason {fields.get('Reason')}"
        return found

    def _end(self, node: Node, found: Visit) -> None:
        """End a job, and take back what Slurm did to its node because the job could not start there."""
        # also one that has answered: on a worker that is cut off its end is not heard of
        self._quietly(["scancel", "--quiet", found.job])
        with self._lock:
            self._jobs.pop(found.job, None)
        if found.how in ("failed", "not") and not node.state.kept_back:
            now = node_table.read(self._run).get(node.name)
            if now is not None and now.kept_back and _FOR_A_JOB.match(now.reason):
                self._quietly(["scontrol", "update", f"NodeName={node.name}", "State=RESUME"])
                found.drained = now.reason
                found.why += f"; Slurm drained {node.name} for it ({now.reason}), which the doctor took back"

    def _show(self, job: str) -> str:
        try:
            return self._run(
                ["scontrol", "--oneliner", "show", "job", job], check=False, timeout=_COMMAND_SECONDS
            ).stdout
        except CommandError:
            return ""

    def _quietly(self, argv: list[str]) -> None:
        try:
            self._run(argv, check=False, timeout=_COMMAND_SECONDS)
        except CommandError:
            return
