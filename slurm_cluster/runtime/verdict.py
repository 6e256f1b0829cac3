"""Why a cluster is not ready: from evidence to one verdict. Pure; see ``probe_plan`` for how evidence is gathered.

Nothing is concluded from silence. A connection is called blocked only where one machine sent its first packet and
another, which was looking for it, saw none arrive. What several layers could explain is put down to the lowest one
that shows a fault of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from slurm_cluster.runtime import connection_faults, host_faults, machine_faults, slurm_faults
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Answer, Evidence, without_middle
from slurm_cluster.runtime.fault import REASON_LENGTH, Code, Verdict
from slurm_cluster.runtime.probe_plan import DOCTOR_ID, plan

__all__ = ["REASON_LENGTH", "Code", "Verdict", "diagnose", "findings", "readable"]

_LAYERS = (
    machine_faults.instances,
    machine_faults.agents,
    host_faults.disks,
    host_faults.spools,
    host_faults.mounts,
    slurm_faults.unreachable,
    slurm_faults.starts,
    slurm_faults.unknown_names,
    machine_faults.daemons,
    machine_faults.apply_failure,
    machine_faults.names,
    connection_faults.controller,
    machine_faults.credentials,
    slurm_faults.refused_messages,
    slurm_faults.ignored_messages,
    host_faults.clocks,
    slurm_faults.releases,
    machine_faults.slurmd,
    slurm_faults.hung_daemons,
    slurm_faults.accounting,
    machine_faults.refusals,
    connection_faults.other_ports,
    slurm_faults.configurations,
    connection_faults.others,
    host_faults.srun_ports,
    slurm_faults.jobs,
    slurm_faults.silent_jobs,
    machine_faults.waiting_bootstraps,
    machine_faults.late_bootstraps,
    machine_faults.unregistered,
    slurm_faults.node_states,
    slurm_faults.silent_srun,
    host_faults.agents,
)
"""From the ground up, in the order in which a node comes to serve."""

_DAEMON_DOWN = (Code.SLURMCTLD_DOWN, Code.SLURMD_DOWN)
_SYMPTOMS = (Code.NODE_DOWN, Code.JOB_LAUNCH_FAILED, Code.WORKER_SILENT, Code.SRUN_SILENT)
"""What follows from other faults, and stands by itself only where none of those was found."""

_FELT_EVERYWHERE = (
    *(Code.SLURMCTLD_DOWN, Code.MUNGE_DOWN, Code.MUNGE_KEY_DIFFERS, Code.CLOCK_DIFFERS, Code.HOST_FIREWALL),
    Code.NAME_DOES_NOT_RESOLVE,
)
"""What on the head takes the nodes with it."""

_REFUSED = (Code.MUNGE_DOWN, Code.MUNGE_KEY_DIFFERS, Code.CLOCK_DIFFERS, Code.VERSION_MISMATCH)
"""Why messages are refused."""

_KEEPS_SLURMD = (Code.NODE_NAME_UNKNOWN, Code.NAME_DOES_NOT_RESOLVE, *_REFUSED)
"""Without what it asks slurmctld for, slurmd does not start."""

_NO_CAUSE = (Code.NODE_DRAINED, Code.SSM_AGENT_DOWN, Code.SRUN_PORTS_EXHAUSTED, Code.CONFIG_DIFFERS, *_SYMPTOMS)
"""What does not take a node down."""


def findings(evidence: Evidence) -> list[Verdict]:
    """Return every fault that the evidence shows, the most fundamental first; for the full report."""
    evidence = readable(evidence)
    own = [replace(verdict, layer=number) for number, layer in enumerate(_LAYERS) for verdict in layer(evidence)]
    found = sorted([*own, *_of_doctor(evidence, own)], key=lambda verdict: verdict.layer)
    # that a daemon's port is closed is no news where the daemon is known to be down
    down = {(verdict.code, verdict.node): verdict for verdict in reversed(found) if verdict.code in _DAEMON_DOWN}
    kept = [verdict for verdict in found if down.get((verdict.code, verdict.node), verdict) is verdict]
    return [verdict for verdict in kept if not _explained(verdict, kept)]


def readable(evidence: Evidence) -> Evidence:
    """Return the evidence with a remark in place of each answer that is not what was asked for.

    A machine may run programs of another release, and one that is out of order may say anything: what it says must not
    keep what the others say from being judged.
    """
    if _is_readable(evidence):
        return evidence
    found = replace(evidence, answers={})
    if not _is_readable(found):
        found = replace(found, gate=_not_understood(evidence.gate))
    for key, answer in evidence.answers.items():
        more = found.with_answers({key: answer})
        found = more if _is_readable(more) else found.with_answers({key: _not_understood(answer)})
    return found


def _is_readable(evidence: Evidence) -> bool:
    try:
        for layer in _LAYERS:
            list(layer(evidence))
        plan(evidence)
    except Exception:
        return False
    return True


def _not_understood(answer: Answer | None) -> Answer:
    return {UNANSWERED: f"its answer is not understood: {without_middle(repr(answer), 2000)}"}


def _of_doctor(evidence: Evidence, own: Sequence[Verdict]) -> Iterator[Verdict]:
    """Yield what slurm-doctor on the head says of the same machines and the probes do not show.

    What both say is said in the words of the probes, which know the security groups.
    """
    known = {(verdict.code, verdict.node) for verdict in own}
    faults = evidence.answers.get(DOCTOR_ID, {}).get("faults")
    for item in faults if isinstance(faults, list) else ():
        try:
            found = Verdict.from_dict(item)
        except (KeyError, TypeError, ValueError):
            continue  # the head has programs of another release
        if (found.code, found.node) not in known and (not found.node or found.node in evidence.machines):
            yield found


def _explained(verdict: Verdict, found: list[Verdict]) -> bool:
    """Return whether a verdict only says what follows from another one."""
    if verdict.code in _DAEMON_DOWN:
        causes = (Code.DAEMON_START_FAILED, *(() if verdict.node == HEAD else _KEEPS_SLURMD))
        return any(item.code in causes and item.node == verdict.node for item in found)
    if verdict.code is Code.NODE_UNREACHABLE:
        return any((item.code, item.node) == (Code.INSTANCE_NOT_RUNNING, verdict.node) for item in found)
    if verdict.code is Code.MESSAGES_REFUSED:
        return any(item.code in _REFUSED and item.node in (verdict.node, HEAD) for item in found)
    if verdict.code not in _SYMPTOMS:
        return False
    return any(
        item.code.endswith("-blocked")
        or (item.node == verdict.node and item.code not in _NO_CAUSE)
        or (item.node == HEAD and item.code in _FELT_EVERYWHERE)
        for item in found
    )


def diagnose(evidence: Evidence) -> Verdict:
    """Return the most fundamental of ``findings``, or that the cause is unknown."""
    return next(iter(findings(evidence)), None) or _unknown(readable(evidence))


def _unknown(evidence: Evidence) -> Verdict:
    silent = sorted(name.partition(":")[2] for name, answer in evidence.answers.items() if UNANSWERED in answer)
    nobody = f" No answer to a probe came from {', '.join(dict.fromkeys(silent))}." if silent else ""
    return Verdict(
        code=Code.UNKNOWN,
        node="",
        sentence=f"{_symptom(evidence)}{nobody} No probe found a fault.",
        change="The full report in the smoke test's log group has every answer; `slurm-cluster smoke-test` on the head "
        "runs the test again.",
    )


def _symptom(evidence: Evidence) -> str:
    gate = evidence.gate
    if gate is None:
        return "The cluster is not ready."
    if UNANSWERED in gate:
        return f"The gate on the head gave no result: {gate[UNANSWERED]}."
    failure = gate.get("failure") or {}
    return f"Stage {gate.get('stage')} of the gate failed in {failure.get('step')}: {failure.get('reason')}."
