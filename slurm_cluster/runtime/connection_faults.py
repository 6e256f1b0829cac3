"""Faults between machines: connections that are blocked on the way or by a host, and ports that nobody serves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_cluster.model.flows import Flow, Role
from slurm_cluster.runtime.connections import Connection, End, daemon_of, label, rule_for, tried
from slurm_cluster.runtime.evidence import HEAD, Evidence
from slurm_cluster.runtime.fault import Code, Verdict

CODES = {
    "controller-rpc": Code.CONTROLLER_RPC_BLOCKED,
    "node-rpc": Code.NODE_RPC_BLOCKED,
    "srun-io": Code.SRUN_IO_BLOCKED,
    "message-tree": Code.WORKER_TO_WORKER_BLOCKED,
    "srun-io-in-job": Code.WORKER_TO_WORKER_BLOCKED,
    "mpi": Code.WORKER_TO_WORKER_BLOCKED,
    "controller-to-srun-in-job": Code.HEAD_TO_WORKER_BLOCKED,
}
"""Kind of verdict by flow, in the order in which a cluster needs them."""

_IN_JOB_FIRST = ("message-tree", "srun-io-in-job", "mpi", "controller-to-srun-in-job")


def controller(evidence: Evidence) -> Iterator[Verdict]:
    """Yield that workers do not get through to slurmctld."""
    yield from _faults(evidence, ["controller-rpc"])


def others(evidence: Evidence) -> Iterator[Verdict]:
    """Yield every other fault between machines, those first that the failed check is about."""
    ids = [name for name in CODES if name != "controller-rpc"]
    if any(check["name"].startswith("srun-in-job") for check in _failed_checks(evidence)):
        ids.sort(key=lambda name: name not in ("node-rpc", *_IN_JOB_FIRST))
    yield from _faults(evidence, ids)


def _failed_checks(evidence: Evidence) -> list[dict[str, str]]:
    return [check for check in (evidence.gate or {}).get("checks", ()) if check["passed"] is False]


def _faults(evidence: Evidence, flow_ids: Sequence[str]) -> Iterator[Verdict]:
    connections = tried(evidence)
    for flow_id in flow_ids:
        ours = [item for item in connections if item.flow.id == flow_id]
        for end, fault in _FAULTS.items():
            found = [item for item in ours if item.end is end]
            if end is End.SOMEWHERE and any(item.end is End.ON_THE_WAY for item in ours):
                continue  # what is seen there holds here too
            # a rule is missing for all machines at once, a daemon on one
            alone = dict.fromkeys(item.listener for item in found) if end is End.NOBODY else ("",)
            for node in alone:
                ones = [item for item in found if node in ("", item.listener)]
                if ones and (verdict := fault(evidence, ones, connections)) is not None:
                    yield verdict


def _blocked(evidence: Evidence, found: Sequence[Connection], connections: Sequence[Connection]) -> Verdict:
    first, (ports, besides) = found[0], _pair(found, connections)
    pairs = len({(item.opener, item.listener) for item in found})
    more = f" The same holds for {pairs - 1} more pair{'s' if pairs > 2 else ''} of nodes." if pairs > 1 else ""
    return _closed(
        evidence,
        first,
        f"{first.opener} cannot open TCP {ports} on {first.listener}: "
        f"the SYNs left, {label(first.listener)} looked for them and none arrived{besides}.{more}",
    )


def _pair(found: Sequence[Connection], connections: Sequence[Connection]) -> tuple[str, str]:
    """Return the ports that the first machine cannot open on the other, and what to add of those that it can."""
    first = found[0]
    pair = [item for item in connections if (item.opener, item.listener) == (first.opener, first.listener)]
    ports = sorted({item.port for item in found if item in pair})
    open_ports = sorted({item.port for item in pair if item.end is End.SERVED})
    return _listed(ports), f", while TCP {_listed(open_ports)} there answers" if open_ports else ""


def _closed(evidence: Evidence, first: Connection, sentence: str) -> Verdict:
    return Verdict(
        code=CODES[first.flow.id],
        node=first.opener if first.opener != HEAD else first.listener,
        sentence=f"{first.flow.id}: {sentence} Slurm uses it for: {first.flow.purpose}.",
        change=_rule(evidence, first.flow),
    )


def _rule(evidence: Evidence, flow: Flow) -> str:
    opener, listener = _group(evidence, flow.opener), _group(evidence, flow.listener)
    ports = rule_for(flow, evidence.ports).ports
    outbound = evidence.groups.get(flow.opener, opener)
    return (
        f"Add to {listener} the rule: inbound TCP {ports} from {opener}. "
        f"If it has that, look at the outbound rules of {outbound} and at network ACLs."
    )


def _group(evidence: Evidence, role: Role) -> str:
    known = evidence.groups.get(role)
    return f"security group {known} ({role})" if known else f"the security group of the {role}"


def _lost(evidence: Evidence, found: Sequence[Connection], connections: Sequence[Connection]) -> Verdict:
    first, (ports, besides) = found[0], _pair(found, connections)
    looked = (evidence.met(first.listener, "meeting") or {}).get("watching")
    seen = (
        f"Its SYNs were looked for on {first.listener} and none arrived: they are dropped on the way, or by a packet "
        f"filter of {label(first.opener)}, which could not look"
        if looked
        else "Packets could not be looked at on both ends: they are dropped on the way, or by a packet filter of either"
    )
    return _closed(
        evidence,
        first,
        f"{first.opener} gets no answer from TCP {ports} on {first.listener}, which "
        f"is alive ({(evidence.fact(HEAD, 'alive') or {})[first.listener]}){besides}. {seen}.",
    )


def _filtered(evidence: Evidence, found: Sequence[Connection], _: Sequence[Connection]) -> Verdict:
    first = found[0]
    ports = sorted({item.port for item in found if item.listener == first.listener})
    return Verdict(
        code=Code.HOST_FIREWALL,
        node=first.listener,
        sentence=f"{label(first.listener)} itself drops TCP {_listed(ports)} from {first.opener}: the SYN reached its "
        f"interface and was not accepted. Security groups let it through. Slurm uses it for: {first.flow.purpose}.",
        change=f"Open it in the packet filter of {label(first.listener)} (nft list ruleset; ufw, firewalld), or turn "
        "that off: the security groups guard the cluster.",
    )


def _kept(evidence: Evidence, found: Sequence[Connection], _: Sequence[Connection]) -> Verdict:
    first = found[0]
    ports = sorted({item.port for item in found if item.opener == first.opener})
    return Verdict(
        code=Code.HOST_FIREWALL,
        node=first.opener,
        sentence=f"{label(first.opener)} itself keeps back its connections to TCP {_listed(ports)} of "
        f"{label(first.listener)}: no SYN left its interface. Slurm uses it for: {first.flow.purpose}.",
        change=f"Look at routes and packet filter of {label(first.opener)} (ip route; nft list ruleset; ufw).",
    )


def _unserved(evidence: Evidence, found: Sequence[Connection], _: Sequence[Connection]) -> Verdict | None:
    first = found[0]
    name = daemon_of(first.listener)
    if _elsewhere(evidence, first) is not None or not evidence.settled(first.listener):
        return None  # other_ports says it, or its daemon is started last
    if (evidence.fact(first.listener, "slurm") or {}).get("active") == "active":
        return _rejected(evidence, first, name)
    return Verdict(
        code=Code.SLURMCTLD_DOWN if first.listener == HEAD else Code.SLURMD_DOWN,
        node=first.listener,
        sentence=f"nothing listens on TCP {first.port} of {label(first.listener)}: it refused a connection from "
        f"{first.opener}, so the way there is open and {name} is not.",
        change=f"Start it there (systemctl restart {name}) and see why it stopped: journalctl -u {name}.",
    )


def other_ports(evidence: Evidence) -> Iterator[Verdict]:
    """Yield daemons that listen, but not on the port on which they are looked for."""
    refused = {item.listener: item for item in tried(evidence)[::-1] if item.end is End.NOBODY}
    for node, item in reversed(refused.items()):
        ports = _elsewhere(evidence, item)
        if ports is not None:
            yield _other_port(item, daemon_of(node), ports)


def _elsewhere(evidence: Evidence, first: Connection) -> list[int] | None:
    """Return the ports on which a daemon listens instead of the one that refused, None where that is not known."""
    known = evidence.fact(first.listener, "listening") or ()
    seen = (evidence.fact(HEAD, "peers") or {}).get(first.listener, {}).get("elsewhere", ())
    ports = [*known, *seen]
    return ports if ports and first.port not in ports else None


def _other_port(first: Connection, name: str, ports: Sequence[int]) -> Verdict:
    return Verdict(
        code=Code.DAEMON_PORT_DIFFERS,
        node=first.listener,
        sentence=f"{name} of {label(first.listener)} listens on TCP {_listed(ports)}, and is looked for on TCP "
        f"{first.port}, which nobody serves there: {first.opener} was refused. The way there is open.",
        change="SlurmctldPort and SlurmdPort must be the same in slurm.conf on all machines, and a daemon takes up "
        f"a new one only by a restart: systemctl restart {name} on {label(first.listener)}. Rules must open that port.",
    )


def _rejected(evidence: Evidence, first: Connection, name: str) -> Verdict:
    return Verdict(
        code=Code.HOST_FIREWALL,
        node=first.listener,
        sentence=f"{label(first.listener)} refuses TCP {first.port} from {first.opener} although {name} runs there: "
        f"its packet filter rejects it. Security groups only drop. "
        f"Slurm uses it for: {first.flow.purpose}.",
        change=f"Look on {label(first.listener)} at its packet filter (nft list ruleset; ufw, firewalld), and where "
        f"{name} listens (ss -ltnp; override.d).",
    )


def _listed(ports: Sequence[int]) -> str:
    return ", ".join(map(str, ports))


_FAULTS = {
    End.ON_THE_WAY: _blocked,
    End.SOMEWHERE: _lost,
    End.AT_THE_HOST: _filtered,
    End.AT_THE_OPENER: _kept,
    End.NOBODY: _unserved,
}
