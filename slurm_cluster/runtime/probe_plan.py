"""Which probes are run where, in which order; the smoke test's function only carries them out.

    while calls := plan(evidence):
        evidence = evidence.with_answers({call.id: answer(stdout, why) for each call, all at the same time})
    verdict = verdict.diagnose(evidence)

Each call is one Run Command on one machine: ``script(call)``, with ``call.seconds`` as its executionTimeout. Calls of
one round must run at the same time: in the second round every machine listens while it connects to the others.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.model.node_files import COMMAND, FAILURE_PREFIX
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Answer, Evidence

MOST_WORKERS = 4
"""Workers that are probed; a fault of the rules shows on any two."""

WINDOW_SECONDS = 20
"""How long machines listen for and connect to each other: agents start their commands seconds apart."""

STUCK_SECONDS = 60
"""How long a worker may wait for others before that is looked into."""

WAITING_STEPS = frozenset({"names", "head", "slurmd"})
"""Steps of a worker's bootstrap in which it waits for the head: a failure there has its cause elsewhere."""

_USER_DATA_LOG = "/var/log/cloud-init-output.log"


@dataclass(frozen=True, kw_only=True)
class ProbeCall:
    """One command on one machine.

    Args:
        id: key of its answer.
        node: ``head`` or a worker's Slurm node name.
        argv: the command, ``slurm-cluster`` first.
        seconds: after which it is given up.
    """

    id: str
    node: str
    argv: tuple[str, ...]
    seconds: int


def script(call: ProbeCall) -> str:
    """Return the shell script that carries a call out, also where user data has not brought the programs yet."""
    command = " ".join(shlex.quote(word) for word in (str(COMMAND), *call.argv[1:]))
    return (
        f"[ -x {COMMAND} ] && exec {command}\n"
        f"printf 'no {COMMAND} yet: %s\\n' \"$(grep -s '^{FAILURE_PREFIX}' {_USER_DATA_LOG} | tail -n 1)\" >&2\n"
        "exit 127\n"
    )


def answer(stdout: str, why: str) -> Answer:
    """Return the answer to a call: the JSON object that it printed, or else that and why it printed none.

    Args:
        stdout: what Run Command says it printed.
        why: status and standard error, for the case that it is no JSON object.
    """
    try:
        value = json.loads(stdout)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {UNANSWERED: why.strip()[:500] or "no output"}


def status_call(node: str) -> ProbeCall:
    """Return the call that tells how far a machine's bootstrap is; for ``stuck``, while the gate waits."""
    return ProbeCall(id=f"status:{node}", node=node, argv=("slurm-cluster", "probe", "--status"), seconds=30)


def stuck(status: Answer) -> bool:
    """Return whether an answer to ``status_call`` is a reason to probe and diagnose before the gate has ended.

    A failed bootstrap is one at once; waiting for other machines is one after a minute.
    """
    seen: Mapping[str, Any] = status.get("status") or {}
    if seen.get("state") == "failed":
        return True
    waiting = seen.get("state") == "running" and seen.get("step") in WAITING_STEPS
    return waiting and float(seen.get("seconds") or 0) >= STUCK_SECONDS


def plan(evidence: Evidence) -> list[ProbeCall]:
    """Return the calls to make next, none when nothing more can be found out."""
    raise NotImplementedError
