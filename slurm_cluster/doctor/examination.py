"""The doctor's round: what the head knows, what it sees of the nodes, what they say themselves. It judges nothing."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from slurm_cluster.doctor import controller_log, peers, table
from slurm_cluster.doctor.account import Inquiry
from slurm_cluster.doctor.collector import Collector
from slurm_cluster.doctor.head import Head
from slurm_cluster.doctor.table import Node
from slurm_cluster.doctor.visits import Limits, Visit, Visits
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.connections import Connection, tried
from slurm_cluster.runtime.evidence import HEAD, Evidence, Machine
from slurm_cluster.runtime.node import host_facts, identity, probe_connections, probe_facts, slurm_facts
from slurm_cluster.runtime.node.commands import Runner
from slurm_cluster.runtime.node.probe_connections import Target

PEER_SECONDS = 20.0
RESOLVE_SECONDS = 6.0
BUDGET_SECONDS = 85.0
"""For all of it; what is left of it after the head was asked is the workers'."""

WINDOW_SECONDS = 8
"""How long each worker listens and tries; jobs that are submitted together start within a second or two."""

LEAST_OVERLAP_SECONDS = 5
_MOST_PEERS = 64
_CONF_LENGTH = 40_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the one who asks wants.

    Args:
        nodes: the only nodes to look at, all if empty.
        most: how many workers to visit.
        user: as whom to submit jobs, by default as the one who asks.
        ssh: whether to enter by ssh nodes on which no job can start.
    """

    nodes: Sequence[str] = ()
    most: int = 8
    user: str = ""
    ssh: bool = False


@dataclass(kw_only=True)
class Examination:
    """What was found, and how long it took.

    Args:
        evidence: for ``runtime.verdict``.
        nodes: node table.
        visits: what became of the visits.
        not_seen: nodes that were left out because there are so many.
        unlisted: nodes that were asked for and that slurmctld does not list.
        seconds: how long each fact took, by its id.
        root: whether root asked.
        refused_packets: those that flow logs have, see ``account.refused``, or why none could be read.
    """

    evidence: Evidence
    nodes: Mapping[str, Node] = field(default_factory=dict)
    visits: Mapping[str, Visit] = field(default_factory=dict)
    not_seen: int = 0
    unlisted: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    root: bool = True
    refused_packets: Sequence[Mapping[str, Any]] | str = "not asked"

    @cached_property
    def connections(self) -> list[Connection]:
        """Every connection between the machines that was tried."""
        return tried(self.evidence)


class Doctor:
    """Examines the cluster whose head this machine is.

    Args:
        run: runs programs.
        options: as the class says.
    """

    def __init__(self, run: Runner, options: Options) -> None:
        self._run = run
        self._options = options
        self._began = time.monotonic()

    def examine(self) -> Examination:
        """Go round once."""
        self._head = Head(self._run, self._options.user, self._options.nodes)
        head = self._head.facts()
        nodes = self._head.nodes
        shown = table.in_order(nodes.values(), self._options.nodes)[:_MOST_PEERS]
        self._look_at_peers(head, shown)
        seen: dict[str, Any] = head["peers"]
        local = {"127.0.0.1", *(head["addresses"] if isinstance(head["addresses"], list) else ())}
        shown = [node for node in shown if seen[node.name]["where"] not in local]
        head |= self._head.logged(seen)
        head["address"] = self._own_address(seen)
        names = {item["where"]: name for name, item in seen.items() if item["where"]}
        inquiry = Inquiry({**names, **({head["address"]: HEAD} if head["address"] else {})})
        visits, met = self._visit_all(head, shown)
        head |= self._head.logged(seen)  # the visits' messages may be those that were refused
        answers = self._answers(head, visits, met)
        known = inquiry.instances()
        machines = {
            name: Machine(instance_id=known.get(name, {}).get("id", ""), state=known.get(name, {}).get("state", ""))
            for name in (HEAD, *(node.name for node in shown))
        }
        foreign = not identity.IDENTITY_FILE.exists()
        return Examination(
            evidence=Evidence(machines=machines, groups={}, ports=self._head.ports, answers=answers, foreign=foreign),
            nodes=nodes,
            visits=visits,
            not_seen=max(0, len(nodes) - len(shown)),
            unlisted=[name for name in self._options.nodes if name not in nodes],
            seconds=self._head.seconds,
            root=self._head.root,
            refused_packets=inquiry.refused_packets(),
        )

    def _resolution(self, name: str) -> Callable[[], dict[str, Any]]:
        return lambda: probe_facts.resolve(self._run, name)

    def _look_at_peers(self, head: dict[str, Any], nodes: Sequence[Node]) -> None:
        others, slurmd = self._listen_ports(), self._head.ports.slurmd

        def look(node: Node) -> Callable[[], dict[str, Any]]:
            return lambda: peers.look(node.state.address or node.name, node.state.state, slurmd, others)

        found = self._head.gather({f"peer {node.name}": look(node) for node in nodes}, PEER_SECONDS)
        # an error is one of time: then nothing is known of the node but its name
        head["peers"] = {
            node.name: peers.unseen(node.state.address, node.state.state) if _failed(item) else item
            for node, item in zip(nodes, found.values(), strict=True)
        }
        head["alive"] = {HEAD: "the doctor runs there"} | {
            name: item["alive"] for name, item in head["peers"].items() if item["alive"]
        }

    def _listen_ports(self) -> tuple[int, ...]:
        """Return the ports that stand for those on which an srun listens."""
        return probe_plan.listen_ports(replace(self._head.ports, srun=self._head.dialled))

    def _own_address(self, found: Mapping[str, Mapping[str, Any]]) -> str | None:
        for item in found.values():
            if item["where"] and not item["where"].startswith("127."):
                try:
                    return host_facts.address_towards(item["where"])
                except OSError:
                    continue
        return next(iter(host_facts.addresses()), None)

    def _visit_all(self, head: Mapping[str, Any], nodes: Sequence[Node]) -> tuple[dict[str, Visit], dict[str, Any]]:
        """Visit what can be visited while the head listens and tries; return the visits and what the head met."""
        refused, seen = head["refused"], head["peers"]
        unfit = {node.name: _unfit(node, refused, seen) for node in nodes}
        visits = {name: Visit(how="not", why=why) for name, why in unfit.items()}
        fit = [node for node in nodes if not unfit[node.name] or self._options.ssh]
        for node in fit[self._options.most :]:
            visits[node.name].why = f"{self._options.most} others were visited (--most)"
        fit = fit[: self._options.most]
        ports, listen = self._head.ports, self._listen_ports()
        among = {node.name for node in fit}
        targets = [
            Target(seen[node.name]["where"], port)
            for node in nodes
            if seen[node.name]["where"]
            for port in (ports.slurmd, *(listen if node.name in among else ()))
        ]
        over, met = threading.Event(), dict[str, Any]()

        def meet() -> None:
            met.update(probe_connections.meet(listen, targets, seconds=80, watch=[ports.slurmctld], enough=over))

        meeting = threading.Thread(target=meet, daemon=True)
        meeting.start()
        requests = self._requests(head, fit, listen)
        memory = "MEMORY" in self._head.setting("SelectTypeParameters").upper()
        who, ssh, limits = self._options.user, self._options.ssh, self._limits()
        with (
            # the last of these ends first: then visits end, and the pool need not wait for them
            ThreadPoolExecutor(max_workers=max(1, len(fit))) as pool,
            Collector(self._head.dialled, head["address"] or "") as collector,
            Visits(self._run, collector, memory=memory, user=who, ssh=ssh, limits=limits) as made,
        ):
            found = list(pool.map(lambda node: made.visit(node, requests[node.name], unfit=unfit[node.name]), fit))
        visits |= {node.name: visit for node, visit in zip(fit, found, strict=True)}
        if not fit:
            time.sleep(probe_connections.ATTEMPT_SECONDS)
        over.set()
        meeting.join(10)
        return visits, met

    def _limits(self) -> Limits:
        usual = Limits()
        left = BUDGET_SECONDS - (time.monotonic() - self._began) - usual.start - RESOLVE_SECONDS
        return Limits(start=usual.start, answer=max(WINDOW_SECONDS + 4.0, min(usual.answer, left)))

    def _requests(
        self,
        head: Mapping[str, Any],
        nodes: Sequence[Node],
        listen: Sequence[int],
    ) -> dict[str, dict[str, str]]:
        own, ports = head["address"] or "", self._head.ports
        where = {node.name: head["peers"][node.name]["where"] for node in nodes}
        try:
            lines = slurm_facts.meaningful(slurm_facts.slurm_conf().read_text(errors="replace"))
        except OSError:
            lines = []
        conf = base64.b64encode("\n".join(lines)[:_CONF_LENGTH].encode()).decode()
        common = {
            "DOCTOR_HEAD": own,
            "DOCTOR_SECONDS": str(WINDOW_SECONDS),
            "DOCTOR_LISTEN": " ".join(map(str, listen)),
            "DOCTOR_WATCH": str(ports.slurmd),
            "DOCTOR_RESOLVE": self._head.host,
            "DOCTOR_CREDENTIAL": head["credential"] if isinstance(head["credential"], str) else "",
            "DOCTOR_SPOOL": self._head.setting("SlurmdSpoolDir"),
            "DOCTOR_LOG": self._head.setting("SlurmdLogFile"),
            "DOCTOR_CONF": conf,
            "DOCTOR_SRUN": str(ports.srun) if self._head.narrow else "",
        }
        found = {}
        for node in nodes:
            targets = [f"{own}:{port}" for port in (ports.slurmctld, *listen)] if own else []
            for name, address in where.items():
                if name != node.name and address:
                    targets += [f"{address}:{port}" for port in (ports.slurmd, *listen)]
            found[node.name] = {**common, "DOCTOR_NODE": node.name, "DOCTOR_CONNECT": " ".join(targets)}
        return found

    def _answers(
        self,
        head: dict[str, Any],
        visits: Mapping[str, Visit],
        met: dict[str, Any],
    ) -> dict[str, Any]:
        nodes = self._head.nodes
        names = [name for node in visits for name in (nodes[node].state.address, nodes[node].state.host) if name]
        asked = {name: self._resolution(name) for name in dict.fromkeys(names)}
        known = probe_facts.gather(asked, seconds=RESOLVE_SECONDS)
        meet = {"meeting": met, "names": {name: item for name, item in known.items() if not _failed(item)}}
        found: dict[str, Any] = {f"facts:{HEAD}": head, f"meet:{HEAD}": meet}
        for name, visit in visits.items():
            log = (
                controller_log.of_job(self._head.log(visit.submitted), visit.job, name) if visit.how == "failed" else []
            )
            told = {"how": visit.how, "why": visit.why, "job": visit.job, "drained": visit.drained}
            found[f"visit:{name}"] = {**told, "log": log}
            # an address is known of it although it says nothing
            facts, there = {"address": head["peers"][name]["where"]}, {}
            if visit.answer is not None:
                facts |= {key: value for key, value in visit.answer["facts"].items() if not _failed(value)}
                facts["skew"] = _skew(visit)
                there = {key: value for key, value in visit.answer["meet"].items() if not _failed(value)}
                head["alive"][name] = "it answered the doctor"
                head["refused"].pop(name, None)
                head["hung_up"].pop(name, None)
            elif visit.how == "silent":
                there = _overheard(head, facts["address"], met, self._head.ports.slurmctld)
            found[f"facts:{name}"], found[f"meet:{name}"] = facts, there
        _forget_missed(found, visits)
        return found


def _unfit(node: Node, refused: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why no job should be tried on a node, empty if one may."""
    if node.why_not:
        return node.why_not
    if node.name in refused:
        return f"slurmctld refuses its messages: {refused[node.name]['line']}"
    peer = seen[node.name]
    if peer["outcome"] != "open":
        return f"slurmd there cannot be reached ({peer['outcome'] or 'no answer'})"
    return "slurmd there does not answer" if peer["answers"] is False else ""


def _failed(value: Any) -> bool:
    return isinstance(value, dict) and "error" in value


def _skew(visit: Visit) -> float:
    """Return by how much the worker's clock differs for certain: it answered between the start and now."""
    there = float((visit.answer or {})["facts"]["time"])
    earliest = visit.started or visit.received - 120
    return min(0.0, there - earliest + 1) + max(0.0, there - visit.received - 1)


def _overheard(head: Mapping[str, Any], address: str, met: Mapping[str, Any], slurmctld: int) -> dict[str, Any]:
    """Return what the head saw of a worker whose job runs and cannot answer: what arrived, and what did not.

    The job certainly tries slurmctld's port, by its answer, and the ports on which the head listens. Where nothing at
    all arrives it may as well be stuck, so nothing is said of its connections.
    """
    arrived = {port for where, port in met["arrived"] if where == address}
    accepted = {port for where, port in met["accepted"] if where == address}
    if not arrived:
        return {}
    connections = [
        {
            "host": head["address"],
            "port": port,
            # what arrives at slurmctld's port is served, as the head's own commands are
            "outcome": "open" if port in accepted or port == slurmctld in arrived else "timeout",
            "attempts": 1,
            "left": None,
        }
        for port in (slurmctld, *met["listening"])
    ]
    return {"meeting": {"watching": False, "listening": [], "arrived": [], "connections": connections}}


def _forget_missed(found: dict[str, Any], visits: Mapping[str, Visit]) -> None:
    """Take out what was tried between workers that were not listening at the same time."""
    for name, visit in visits.items():
        meeting = found[f"meet:{name}"].get("meeting")
        if meeting is None or visit.answer is None:
            continue
        apart = {
            found[f"facts:{other}"]["address"]
            for other, its in visits.items()
            if its.answer is None or abs(its.started - visit.started) > WINDOW_SECONDS - LEAST_OVERLAP_SECONDS
        }
        meeting["connections"] = [
            item for item in meeting["connections"] if item["host"] not in apart or item["outcome"] != "timeout"
        ]
