"""Faults of single machines: instance, agent, bootstrap, names, munge, clock, daemons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slurm_cluster.model.node_files import FAILURE_PREFIX
from slurm_cluster.model.node_states import BUSY, KEPT_BACK, NOT_SERVING
from slurm_cluster.runtime.connections import label
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Evidence, console_failure, parse_failure
from slurm_cluster.runtime.fault import Code, Verdict
from slurm_cluster.runtime.probe_plan import WAITING_STEPS, questioned

_RUNNING = ("", "pending", "running")
_LOOK_AT_LOGS = "its log is /var/log/cloud-init-output.log, in later boots `journalctl -u slurm-cluster-bootstrap`."
_AFTER_MUNGE = WAITING_STEPS | {"state-volume", "slurmctld"}
_CLOCK_TROUBLE = ("expired", "rewound")
SET_CLOCKS = (
    "Set both clocks by the Amazon Time Sync Service (chrony, server 169.254.169.123) or another time server of both, "
    "and restart slurmd on the worker."
)


def _in_question(evidence: Evidence) -> tuple[str, ...]:
    """Return the machines that may be why the cluster is not ready: a worker only where the gate got as far as that."""
    workers = evidence.workers if evidence.gate is None else questioned(evidence)
    return tuple(node for node in (HEAD, *workers) if node in evidence.machines)


def instances(evidence: Evidence) -> Iterator[Verdict]:
    """Yield instances that do not run, and boots that failed by themselves."""
    for node in _in_question(evidence):
        machine = evidence.machines[node]
        if machine.state not in _RUNNING:
            yield Verdict(
                code=Code.INSTANCE_NOT_RUNNING,
                node=node,
                sentence=f"instance {machine.instance_id} of {label(node)} is {machine.state}.",
                change="Start it, and see who or what stopped it (CloudTrail; the instance's StateTransitionReason)."
                if evidence.foreign
                else "Start it, or have the stack replace it, and deploy again.",
            )
    for node in _in_question(evidence):
        failure = bootstrap_failure(evidence, node)
        if failure is not None and not (node != HEAD and failure[0] in WAITING_STEPS):
            yield _bootstrap_failed(evidence, node, *failure)


def bootstrap_failure(evidence: Evidence, node: str) -> tuple[str, str] | None:
    """Return step and reason of a machine's failed bootstrap, None if it has not failed as far as is known.

    What the machine itself says of its present boot counts more than its console, where a failure that was overcome
    still stands.
    """
    gate = evidence.gate or {}
    if node == HEAD and gate.get("stage") == "bootstrap" and gate.get("failure"):
        return gate["failure"]["step"], gate["failure"]["reason"]
    status = _status(evidence, node)
    if status is not None:
        return (status["step"], str(status["reason"])) if status.get("state") == "failed" else None
    for text in (*_unanswered(evidence, node), evidence.machines[node].failure):
        if FAILURE_PREFIX in text:
            return parse_failure(console_failure(text))
    return None


def _status(evidence: Evidence, node: str) -> dict[str, Any] | None:
    found = evidence.fact(node, "status") or evidence.answers.get(f"status:{node}", {}).get("status")
    return found if isinstance(found, dict) else None


def _unanswered(evidence: Evidence, node: str) -> Iterator[str]:
    """Yield why a machine did not answer; a machine without the programs says there how far its user data came."""
    ids = (f"facts:{node}", f"status:{node}")
    for answer in (evidence.gate if node == HEAD else None, *(evidence.answers.get(name) for name in ids)):
        if answer is not None and UNANSWERED in answer:
            yield str(answer[UNANSWERED])


def _named(evidence: Evidence, node: str) -> str:
    """Return what a machine is called, with its instance id where that is known."""
    instance = evidence.machines[node].instance_id
    return f"{label(node)} ({instance})" if instance else label(node)


def _bootstrap_failed(evidence: Evidence, node: str, step: str, reason: str) -> Verdict:
    return Verdict(
        code=Code.BOOTSTRAP_FAILED,
        node=node,
        sentence=f"bootstrap of {_named(evidence, node)} failed in step {step}: {reason.rstrip('.')}.",
        change=f"Correct that and deploy again; {_LOOK_AT_LOGS}",
    )


def waiting_bootstraps(evidence: Evidence) -> Iterator[Verdict]:
    """Yield machines whose bootstrap goes on trying, with what it met; it may yet succeed."""
    for node in _in_question(evidence):
        status = _status(evidence, node) or {}
        if status.get("state") == "running" and status.get("trouble"):
            yield Verdict(
                code=Code.BOOTSTRAP_WAITS,
                node=node,
                sentence=f"bootstrap of {_named(evidence, node)} has been in step {status['step']} for "
                f"{status['seconds']:.0f} seconds and tries again and again: {status['trouble'].rstrip('.')}.",
                change=f"It goes on by itself once that is mended; {_LOOK_AT_LOGS}",
            )


def agents(evidence: Evidence) -> Iterator[Verdict]:
    """Yield machines that Systems Manager cannot reach; none while they may still come."""
    if evidence.waiting:
        return
    for node in _in_question(evidence):
        machine = evidence.machines[node]
        if machine.agent == "Online" or bootstrap_failure(evidence, node) is not None:
            continue
        how = f"is {machine.agent} now" if machine.agent else "has never registered"
        yield Verdict(
            code=Code.AGENT_NEVER_ONLINE,
            node=node,
            sentence=f"the SSM agent of {label(node)} ({machine.instance_id}, {machine.state or 'state unknown'}) "
            f"{how}, and the console tells of no failed step. Without it nothing else can be known of the machine.",
            change="Look at its console (aws ec2 get-console-output --latest); check its instance profile, and that "
            "its subnet has a route or VPC endpoints to ssm, ssmmessages and ec2messages.",
        )


def apply_failure(evidence: Evidence) -> Iterator[Verdict]:
    """Yield that the head could not apply what the stack says."""
    gate = evidence.gate or {}
    if gate.get("stage") == "apply" and gate.get("failure"):
        yield Verdict(
            code=Code.APPLY_FAILED,
            node=HEAD,
            sentence=f"the head cannot apply the stack's configuration: {gate['failure']['reason'].rstrip('.')}.",
            change="Correct that and deploy again; `slurm-cluster apply` on the head shows whether it works.",
        )


def daemons(evidence: Evidence) -> Iterator[Verdict]:
    """Yield munge that does not run, and slurmctld that does not serve."""
    for node in evidence.machines:
        munge = evidence.fact(node, "munge")
        if munge and munge["active"] != "active" and _is_past_munge(evidence, node):
            yield _unit_down(evidence, node, Code.MUNGE_DOWN, "munge", munge)
    slurmctld = evidence.fact(HEAD, "slurm")
    if slurmctld and slurmctld["active"] != "active":
        yield _unit_down(evidence, HEAD, Code.SLURMCTLD_DOWN, "slurmctld", slurmctld)
    elif evidence.fact(HEAD, "controller") is False and not _has_no_munge(evidence, HEAD):
        yield Verdict(
            code=Code.SLURMCTLD_DOWN,
            node=HEAD,
            sentence=f"slurmctld runs on the head but does not answer `scontrol ping` there.{_log(evidence, HEAD)}",
            change="Look at `journalctl -u slurmctld` on the head and restart it: systemctl restart slurmctld.",
        )


def _has_no_munge(evidence: Evidence, node: str) -> bool:
    """Return whether munge is known not to run, without which nobody can ask slurmctld anything."""
    munge = evidence.fact(node, "munge")
    return bool(munge) and munge["active"] != "active"


def _is_past_munge(evidence: Evidence, node: str) -> bool:
    return evidence.settled(node) or (evidence.fact(node, "status") or {}).get("step") in _AFTER_MUNGE


def _unit_down(evidence: Evidence, node: str, code: Code, name: str, unit: dict[str, Any]) -> Verdict:
    said = f"; its journal ends: {unit['journal']}" if unit["journal"] else ""
    state = f"{unit['active']} ({unit['sub']}, result {unit['result']})"
    if unit["file"] == "masked":
        state += ", masked"
    return Verdict(
        code=code,
        node=node,
        sentence=f"{name} on {_named(evidence, node)} does not run: {name}.service is {state}{said}.",
        change=f"Start it there (systemctl start {name}) and see why it stopped: journalctl -u {name}.",
    )


def _log(evidence: Evidence, node: str) -> str:
    lines = evidence.fact(node, "log")
    return f" Its log says: {lines[-1]}" if lines else ""


def names(evidence: Evidence) -> Iterator[Verdict]:
    """Yield machines on which a name does not lead to the machine that bears it."""
    head_host = evidence.fact(HEAD, "head_host")
    for node in evidence.workers:
        found = (evidence.met(node, "names") or {}).get(head_host)
        if found is not None and not set(evidence.addresses(HEAD)) & set(found["addresses"]):
            yield _unresolved(evidence, node, str(head_host), HEAD, found)
    for node in evidence.workers:
        known = evidence.met(HEAD, "names") or {}
        if not evidence.settled(node):
            continue  # the head learns a worker's names when it registers
        for name in (node, evidence.fact(node, "hostname")):
            found = known.get(name)
            own = set(evidence.addresses(node))
            if found is not None and own and not own & set(found["addresses"]):
                yield _unresolved(evidence, HEAD, str(name), node, found)


def _unresolved(evidence: Evidence, node: str, name: str, bearer: str, found: dict[str, Any]) -> Verdict:
    expected = " and ".join(evidence.addresses(bearer)) or "another"
    got = (
        f"resolves to {', '.join(found['addresses'])}"
        if found["addresses"]
        else f"does not resolve ({found['problem']})"
    )
    if evidence.foreign:
        what = "in DNS, or in /etc/hosts of that machine"
    elif node != HEAD:
        what = "the VPC needs DNS support and the cluster's private hosted zone associated with it"
    else:
        what = "slurm-cluster-names.service on the head keeps these names in /etc/hosts"
    return Verdict(
        code=Code.NAME_DOES_NOT_RESOLVE,
        node=node,
        sentence=f"on {label(node)} the name {name} {got}; {label(bearer)} has the address {expected}.",
        change=f"Make it resolve there (getent hosts {name}): {what}; look for another entry in /etc/hosts.",
    )


def credentials(evidence: Evidence) -> Iterator[Verdict]:
    """Yield workers that cannot read a credential of the head, by what munge says of it."""
    answered = {node: found for node in evidence.workers if (found := evidence.met(node, "credential"))}
    failed = {node: found for node, found in answered.items() if not found["decoded"]}
    for node, found in failed.items():
        said = found["status"]
        if any(word in said.lower() for word in _CLOCK_TROUBLE):
            age = "" if found["age"] is None else f" by about {abs(found['age'])} seconds"
            yield Verdict(
                code=Code.CLOCK_DIFFERS,
                node=node,
                sentence=f"the clocks of {node} and of the head differ{age}: munge on {node} calls a credential that "
                f"the head has just made '{said}'. Slurm then refuses every message.",
                change=SET_CLOCKS,
            )
        elif "invalid credential" in said.lower():
            odd_one = HEAD if len(answered) > 1 and len(failed) == len(answered) else node
            yield Verdict(
                code=Code.MUNGE_KEY_DIFFERS,
                node=odd_one,
                sentence=f"munge on {node} cannot decode a credential of the head: '{said}'. Their munge keys differ"
                f"{'; so it is on every worker asked, so the odd one is probably the head' if odd_one == HEAD else ''}."
                " Slurm then refuses every message between them; no port is involved.",
                change=give_key(evidence, odd_one),
            )


def give_key(evidence: Evidence, node: str) -> str:
    """Return how a machine gets the cluster's munge key."""
    if evidence.foreign:
        return (
            f"Copy /etc/munge/munge.key of a machine that works to {label(node)} (owner munge, mode 0400) and restart "
            "munge and Slurm's daemon there."
        )
    return (
        f"Run `slurm-cluster bootstrap` on {label(node)}: it writes the key of the cluster's secret to "
        "/etc/munge/munge.key and restarts munge."
    )


def slurmd(evidence: Evidence) -> Iterator[Verdict]:
    """Yield workers whose slurmd does not run although bootstrap had come so far as to start it."""
    for node in evidence.workers:
        unit, status = evidence.fact(node, "slurm"), evidence.fact(node, "status") or {}
        if not unit or unit["active"] == "active":
            continue
        failing = unit["active"] == "failed" or unit["sub"] == "auto-restart"
        if evidence.settled(node) or (status.get("step") == "slurmd" and failing):
            yield _unit_down(evidence, node, Code.SLURMD_DOWN, "slurmd", unit)


def refusals(evidence: Evidence) -> Iterator[Verdict]:
    """Yield workers that slurmctld does not take as they are."""
    table = {**(evidence.fact(HEAD, "nodes") or {}), **(evidence.gate or {}).get("table", {})}
    for node in evidence.workers:
        entry = table.get(node)
        if entry and "INVALID_REG" in entry["state"].split("+"):
            yield Verdict(
                code=Code.NODE_REFUSED,
                node=node,
                sentence=f"slurmctld refuses the registration of {node}: {entry['reason'] or entry['state']}.",
                change=fit_node(evidence, node),
            )


def fit_node(evidence: Evidence, node: str) -> str:
    """Return how a node and what slurm.conf says of it become one."""
    if evidence.foreign:
        return (
            f"Run `slurmd -C` on {node}, make its NodeName line in slurm.conf ask for no more than that prints, and "
            f"`scontrol reconfigure`; then `scontrol update nodename={node} state=resume`."
        )
    return "Its instance type must be the one of its partition: let the stack replace the worker."


def late_bootstraps(evidence: Evidence) -> Iterator[Verdict]:
    """Yield workers whose bootstrap failed while waiting for others, where nothing else explains it."""
    for node in evidence.workers:
        failure = bootstrap_failure(evidence, node)
        if failure is not None and failure[0] in WAITING_STEPS:
            yield _bootstrap_failed(evidence, node, *failure)


def unregistered(evidence: Evidence) -> Iterator[Verdict]:
    """Yield workers that did not come although nothing that was probed keeps them; none while they may still."""
    gate = evidence.gate or {}
    if evidence.waiting or gate.get("stage") != "workers":
        return
    for node, entry in gate.get("table", {}).items():
        status = evidence.fact(node, "status") or {}
        far = f"bootstrap there is {status['state']} in step {status['step'] or '-'}" if status else "it gave no answer"
        elsewhere = (
            f", registered from {entry['address']} instead of {entry['instance_address']}"
            if entry["instance_address"] and entry["address"] != entry["instance_address"]
            else ""
        )
        why = f", reason {entry['reason']}" if entry["reason"] else ""
        flags = set(entry["state"].split("+"))
        if not (elsewhere or flags & NOT_SERVING) and flags & (BUSY | KEPT_BACK):
            yield _not_free(node, entry["state"], why, busy=not flags & KEPT_BACK)
            continue
        yield Verdict(
            code=Code.NODE_NEVER_REGISTERED,
            node=node,
            sentence=f"{node} is not ready: slurmctld has it as {entry['state'] or 'unknown'}{elsewhere}"
            f"{why}; {far}.{_log(evidence, node)}",
            change="No probe found a cause. See the full report and `journalctl -u slurmd` there.",
        )


def _not_free(node: str, state: str, why: str, *, busy: bool) -> Verdict:
    return Verdict(
        code=Code.NODE_NOT_FREE,
        node=node,
        sentence=f"{node} has registered and answers, but was not free to be tested in time: slurmctld has it as "
        f"{state}{why}.",
        change="Deploy again when its jobs have ended (squeue), or have updates leave such workers out: "
        "on_update=OnUpdate.free()."
        if busy
        else f"Somebody keeps it from running jobs: `scontrol update nodename={node} state=resume` on the head, or end "
        "the reservation, and deploy again.",
    )
