"""The doctor's probes from the bottom up: what each looked at, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from slurm_cluster.doctor.account import ACCOUNT_SECONDS
from slurm_cluster.doctor.examination import PEER_SECONDS, WINDOW_SECONDS, Examination
from slurm_cluster.doctor.head import FACT_SECONDS
from slurm_cluster.doctor.visits import Limits
from slurm_cluster.model.flows import Flow, cluster_flows
from slurm_cluster.runtime.connections import End
from slurm_cluster.runtime.evidence import HEAD
from slurm_cluster.runtime.fault import Code, Verdict


class Outcome(StrEnum):
    """What a probe says."""

    OK = "ok"
    FAULT = "fault"
    UNKNOWN = "could not tell"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One probe's word.

    Args:
        probe: its name.
        outcome: what it says.
        evidence: by what.
        seconds: how long it took, None where it came along with others.
        deadline: after how many seconds it would have been given up.
    """

    probe: str
    outcome: Outcome
    evidence: str
    seconds: float | None
    deadline: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


Look = Callable[[Examination], tuple[Outcome, str]]
_VISIT_SECONDS = Limits().start + Limits().answer


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One probe.

    Args:
        name: stable name.
        codes: verdicts that are its own.
        look: what it saw, if nothing was at fault.
        facts: ids of the facts whose time it took.
        deadline: in seconds.
    """

    name: str
    codes: frozenset[Code]
    look: Look
    facts: tuple[str, ...] = ()
    deadline: float = FACT_SECONDS


def _saw(*facts: str, what: str) -> Look:
    """Return a look at facts that each machine that was asked should have told."""

    def look(found: Examination) -> tuple[Outcome, str]:
        asked = [HEAD, *(node for node, visit in found.visits.items() if visit.answer is not None)]
        silent = [node for node in asked if any(found.evidence.fact(node, fact) is None for fact in facts)]
        if HEAD in silent:
            problem = next((_error(found, fact) for fact in facts if _error(found, fact)), "it does not say")
            return Outcome.UNKNOWN, f"head: {problem}"
        told = [node for node in asked if node not in silent]
        return Outcome.OK, f"{what} of {_listed(told)}{_unasked(found)}"

    return look


def _error(found: Examination, fact: str) -> str:
    value = found.evidence.answers[f"facts:{HEAD}"].get(fact)
    return str(value["error"]) if isinstance(value, dict) and "error" in value else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"


def _unasked(found: Examination) -> str:
    missing = [f"{node}: {visit.why}" for node, visit in found.visits.items() if visit.answer is None]
    return f"; not asked: {'; '.join(missing[:4])}" if missing else ""


def _clock(found: Examination) -> tuple[Outcome, str]:
    asked = [node for node, visit in found.visits.items() if visit.answer is not None]
    if not asked:
        return Outcome.UNKNOWN, f"no worker told the time{_unasked(found)}"
    return Outcome.OK, f"{_listed(asked)} and the head agree to a minute{_unasked(found)}"


def _names(found: Examination) -> tuple[Outcome, str]:
    known = found.evidence.met(HEAD, "names") or {}
    asked = [node for node in found.visits if found.evidence.met(node, "names")]
    if not known and not asked:
        return Outcome.UNKNOWN, "no name is known to look up"
    head = found.evidence.fact(HEAD, "head_host")
    there = f"; {head} on {_listed(asked)}" if asked else ""
    return Outcome.OK, f"{_listed(list(known))} on the head{there}"


def _munge(found: Examination) -> tuple[Outcome, str]:
    decoded = [node for node in found.visits if (found.evidence.met(node, "credential") or {}).get("decoded")]
    if not found.evidence.fact(HEAD, "credential"):
        return Outcome.UNKNOWN, f"head: {_error(found, 'credential') or 'munge makes no credential'}"
    if not decoded:
        return Outcome.UNKNOWN, f"no worker was asked to decode the head's credential{_unasked(found)}"
    return Outcome.OK, f"a credential of the head is decoded on {_listed(decoded)}{_unasked(found)}"


def _releases(found: Examination) -> tuple[Outcome, str]:
    head = found.evidence.fact(HEAD, "slurm_version")
    if not head:
        return Outcome.UNKNOWN, "slurmctld does not say its release"
    others = sorted({node.version for node in found.nodes.values() if node.version})
    return Outcome.OK, f"slurmctld {head}, slurmd {_listed(others) or 'of no node known'}"


def _configuration(found: Examination) -> tuple[Outcome, str]:
    same = [node for node in (HEAD, *found.visits) if (found.evidence.fact(node, "configuration") or {}).get("match")]
    if not same:
        return Outcome.UNKNOWN, "slurmctld does not say the hash of its configuration"
    return Outcome.OK, f"the slurm.conf that slurmctld runs with is on {_listed(same)}{_unasked(found)}"


def _daemons(found: Examination) -> tuple[Outcome, str]:
    if found.evidence.fact(HEAD, "controller") is None:
        return Outcome.UNKNOWN, f"slurmctld: {_error(found, 'controller')}"
    peers = found.evidence.fact(HEAD, "peers") or {}
    answering = [node for node, peer in peers.items() if peer["answers"]]
    dbd = found.evidence.fact(HEAD, "slurmdbd")
    accounts = f"slurmdbd at {dbd['host']} answers" if dbd else "no slurmdbd is configured"
    return Outcome.OK, f"slurmctld answers; slurmd answers on {_listed(answering) or 'no node'}; {accounts}"


def _life(found: Examination) -> tuple[Outcome, str]:
    alive = {node: how for node, how in (found.evidence.fact(HEAD, "alive") or {}).items() if node != HEAD}
    if not found.visits:
        return Outcome.UNKNOWN, "slurmctld lists no node that is switched on"
    return Outcome.OK, f"{len(alive)} of {len(found.visits)} nodes show signs of life" + (
        f"; {found.not_seen} more are switched off or were left out" if found.not_seen else ""
    )


def _jobs(found: Examination) -> tuple[Outcome, str]:
    ran = [node for node, visit in found.visits.items() if visit.how == "job"]
    by_ssh = [node for node, visit in found.visits.items() if visit.how == "ssh"]
    if not ran:
        return Outcome.UNKNOWN, f"no job was run{_unasked(found)}"
    return Outcome.OK, f"batch jobs ran on {_listed(ran)}{_unasked(found)}" + (
        f"; entered by ssh: {_listed(by_ssh)}" if by_ssh else ""
    )


def _srun_ports(found: Examination) -> tuple[Outcome, str]:
    head = found.evidence.fact(HEAD, "srun_ports")
    if head is None:
        return Outcome.NOT_APPLICABLE, "no SrunPortRange is set: the kernel gives srun its ports"
    return Outcome.OK, f"an srun finds its {head['enough']} ports in {head['range']}"


def _states(found: Examination) -> tuple[Outcome, str]:
    if found.unlisted and found.evidence.fact(HEAD, "controller"):
        return Outcome.UNKNOWN, f"slurmctld lists no node {_listed(found.unlisted)}"
    if not found.nodes:
        return Outcome.UNKNOWN, "slurmctld does not show its node table"
    counts: dict[str, int] = {}
    for node in found.nodes.values():
        counts[node.state.state] = counts.get(node.state.state, 0) + 1
    return Outcome.OK, ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _refused_packets(found: Examination) -> tuple[Outcome, str]:
    if isinstance(found.refused_packets, str):
        return Outcome.NOT_APPLICABLE, f"not read: {found.refused_packets}"
    if not found.refused_packets:
        return Outcome.OK, "no refused packet between these machines in half an hour"
    shown = [
        f"{item['opener']} to TCP {item['port']} of {item['listener']}, {item['packets']} packets"
        for item in found.refused_packets[:5]
    ]
    return Outcome.OK, f"refused in half an hour, whatever for: {'; '.join(shown)}"


def _agent(found: Examination) -> tuple[Outcome, str]:
    known = [node for node in (HEAD, *found.visits) if found.evidence.fact(node, "ssm_agent")]
    if not known:
        return Outcome.NOT_APPLICABLE, "not installed where it was looked for"
    return Outcome.OK, f"runs on {_listed(known)}"


def _flow(flow: Flow) -> Look:
    def look(found: Examination) -> tuple[Outcome, str]:
        if flow.id == "mpi":
            # any port stands for it: MPI chooses among all
            between = (flow.opener, flow.listener)
            ours = [item for item in found.connections if (item.flow.opener, item.flow.listener) == between]
        else:
            ours = [item for item in found.connections if item.flow.id == flow.id]
        served = [item for item in ours if item.end is End.SERVED]
        if not served:
            return Outcome.UNKNOWN, f"no such connection could be tried{_unasked(found)}"
        ports = sorted({item.port for item in served})
        pairs = [f"{item.opener} to {item.listener}" for item in served]
        return Outcome.OK, f"TCP {', '.join(map(str, ports))}: {_listed(list(dict.fromkeys(pairs)))}"

    return look


def _pairs_exist(flow: Flow, found: Examination) -> bool:
    return flow.opener != flow.listener or len(found.evidence.workers) > 1


def probes(found: Examination) -> list[Probe]:
    """Return the probes for a cluster with these ports, in their order."""
    flows = cluster_flows(found.evidence.ports)
    disk = {Code.DISK_FULL, Code.MOUNT_HUNG, Code.MOUNT_READ_ONLY}
    daemon = {
        Code.SLURMCTLD_DOWN,
        Code.SLURMD_DOWN,
        Code.SLURMD_HUNG,
        Code.SLURMDBD_DOWN,
        Code.BOOTSTRAP_FAILED,
        Code.BOOTSTRAP_WAITS,
        Code.DAEMON_PORT_DIFFERS,
    }
    states = {Code.NODE_REFUSED, Code.NODE_DOWN, Code.NODE_DRAINED, Code.NODE_NEVER_REGISTERED}
    table: list[tuple[str, set[Code], Look, tuple[str, ...], float]] = [
        ("disks and mounts", disk, _saw("disks", "hung", what="file systems"), ("disks", "hung"), FACT_SECONDS),
        ("clock", {Code.CLOCK_DIFFERS}, _clock, ("time",), _VISIT_SECONDS),
        ("names", {Code.NAME_DOES_NOT_RESOLVE}, _names, (), _VISIT_SECONDS),
        (
            "munge",
            {Code.MUNGE_DOWN, Code.MUNGE_KEY_DIFFERS, Code.MESSAGES_REFUSED},
            _munge,
            ("munge", "credential"),
            _VISIT_SECONDS,
        ),
        ("releases", {Code.VERSION_MISMATCH}, _releases, (), FACT_SECONDS),
        ("configuration", {Code.CONFIG_DIFFERS}, _configuration, ("configuration",), _VISIT_SECONDS),
        ("machines", {Code.NODE_UNREACHABLE, Code.INSTANCE_NOT_RUNNING}, _life, (), PEER_SECONDS),
        ("daemons", daemon, _daemons, ("controller", "slurm", "slurmdbd"), FACT_SECONDS),
        *((f"flow {flow.id}", set[Code](), _flow(flow), (), _VISIT_SECONDS) for flow in flows),
        ("flow logs", set[Code](), _refused_packets, (), ACCOUNT_SECONDS),
        ("srun ports", {Code.SRUN_PORTS_EXHAUSTED}, _srun_ports, ("srun_ports",), FACT_SECONDS),
        ("cgroup and plugins", {Code.DAEMON_START_FAILED, Code.NODE_NAME_UNKNOWN}, _jobs, (), _VISIT_SECONDS),
        ("jobs", {Code.JOB_LAUNCH_FAILED, Code.WORKER_SILENT}, _jobs, (), _VISIT_SECONDS),
        ("node states", states, _states, ("nodes",), FACT_SECONDS),
        ("ssm agent", {Code.SSM_AGENT_DOWN}, _agent, ("ssm_agent",), FACT_SECONDS),
    ]
    return [
        Probe(name=name, codes=frozenset(codes), look=look, facts=facts, deadline=deadline)
        for name, codes, look, facts, deadline in table
    ]


def rows(found: Examination, faults: Iterable[Verdict]) -> list[Row]:
    """Return what each probe says."""
    known = list(faults)
    flows = {f"flow {flow.id}": flow for flow in cluster_flows(found.evidence.ports)}
    shown = []
    for probe in probes(found):
        flow = flows.get(probe.name)
        if flow is not None and not _pairs_exist(flow, found):
            outcome, evidence = Outcome.NOT_APPLICABLE, "the cluster has one worker"
        elif flow is not None and (bad := _broken(flow, found)):
            outcome, evidence = Outcome.FAULT, bad
        elif ours := [fault for fault in known if fault.code in probe.codes]:
            outcome, evidence = Outcome.FAULT, "; ".join(f"{fault.code}: {fault.node or 'cluster'}" for fault in ours)
        else:
            outcome, evidence = probe.look(found)
        took = [found.seconds[fact] for fact in probe.facts if fact in found.seconds]
        deadline = WINDOW_SECONDS + probe.deadline if flow is not None else probe.deadline
        row = Row(
            probe=probe.name, outcome=outcome, evidence=evidence, seconds=max(took, default=None), deadline=deadline
        )
        shown.append(row)
    return shown


def _broken(flow: Flow, found: Examination) -> str:
    bad = [
        item
        for item in found.connections
        if item.flow.id == flow.id and item.end not in (End.SERVED, End.UNKNOWN, End.NOBODY)
    ]
    ports = sorted({item.port for item in bad})
    pairs = list(dict.fromkeys(f"{item.opener} to {item.listener} ({item.end})" for item in bad))
    return f"TCP {', '.join(map(str, ports))}: {_listed(pairs)}" if bad else ""
