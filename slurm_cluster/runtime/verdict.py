"""Why a cluster is not ready: from evidence to one verdict. Pure; see ``probe_plan`` for how evidence is gathered.

Nothing is concluded from silence. A connection is called blocked only where one machine sent its first packet and
another, which was looking for it, saw none arrive. What several layers could explain is put down to the lowest one
that shows a fault of its own.
"""

from __future__ import annotations

from slurm_cluster.runtime import connection_faults, machine_faults
from slurm_cluster.runtime.evidence import UNANSWERED, Evidence
from slurm_cluster.runtime.fault import REASON_LENGTH, Code, Verdict

__all__ = ["REASON_LENGTH", "Code", "Verdict", "diagnose", "findings"]

_LAYERS = (
    machine_faults.instances,
    machine_faults.agents,
    machine_faults.daemons,
    machine_faults.apply_failure,
    machine_faults.names,
    connection_faults.controller,
    machine_faults.credentials,
    machine_faults.slurmd,
    machine_faults.refusals,
    connection_faults.others,
    machine_faults.late_bootstraps,
    machine_faults.unregistered,
)
"""From the ground up, in the order in which a node comes to serve."""

_DAEMON_DOWN = (Code.SLURMCTLD_DOWN, Code.SLURMD_DOWN)


def findings(evidence: Evidence) -> list[Verdict]:
    """Return every fault that the evidence shows, the most fundamental first; for the full report."""
    found = [verdict for layer in _LAYERS for verdict in layer(evidence)]
    # that a daemon's port is closed is no news where the daemon is known to be down
    down = {(verdict.code, verdict.node): verdict for verdict in reversed(found) if verdict.code in _DAEMON_DOWN}
    return [verdict for verdict in found if down.get((verdict.code, verdict.node), verdict) is verdict]


def diagnose(evidence: Evidence) -> Verdict:
    """Return the most fundamental of ``findings``, or that the cause is unknown."""
    return next(iter(findings(evidence)), None) or _unknown(evidence)


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
