"""The doctor's round: what the head knows, what it sees of the nodes, what they say themselves. It judges nothing."""

from __future__ import annotations

import base64
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from slurm_cluster.doctor import controller_log, peers, table
from slurm_cluster.doctor.collector import Collector
from slurm_cluster.doctor.table import Node
from slurm_cluster.doctor.visits import Visit, Visits
from slurm_cluster.model.flows import UNPRIVILEGED_TCP, PortRange, SlurmPorts
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import HEAD, Evidence, Machine
from slurm_cluster.runtime.node import host_facts, identity, probe_connections, probe_facts, slurm_facts
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.probe_connections import Target, connect

FACT_SECONDS = 18.0
PEER_SECONDS = 20.0
WINDOW_SECONDS = 8
"""How long each worker listens and tries; jobs that are submitted together start within a second or two."""

LEAST_OVERLAP_SECONDS = 5
_MOST_PEERS = 64
_LOG_SECONDS = 86_400
_STATE_DIRECTORY = "/var/lib/slurm/slurmctld"
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
        seconds: how long each fact took, by its id.
        root: whether root asked.
    """

    evidence: Evidence
    nodes: Mapping[str, Node] = field(default_factory=dict)
    visits: Mapping[str, Visit] = field(default_factory=dict)
    not_seen: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    root: bool = True


class Doctor:
    """Examines the cluster whose head this machine is.

    Args:
        run: runs programs.
        options: as the class says.
    """

    def __init__(self, run: Runner, options: Options) -> None:
        self._run = run
        self._options = options
        self._seconds: dict[str, float] = {}
        self._root = os.geteuid() == 0

    def examine(self) -> Examination:
        """Go round once."""
        settings = self._settings()
        self._ports = ports = slurm_facts.ports(settings)
        head = self._head(settings, ports)
        nodes = self._nodes
        shown = table.in_order(nodes.values(), self._options.nodes)
        local = set(head["addresses"] if isinstance(head["addresses"], list) else ())
        self._peers(head, shown[:_MOST_PEERS], ports)
        peers_found: dict[str, Any] = head["peers"]
        shown = [node for node in shown[:_MOST_PEERS] if peers_found[node.name]["where"] not in local | {"127.0.0.1"}]
        self._log(head, settings, nodes)
        head["address"] = self._own_address(peers_found)
        visits, met = self._visit_all(head, settings, ports, shown)
        answers = self._answers(head, visits, met, peers_found, nodes)
        machines = {name: Machine(instance_id="") for name in (HEAD, *(node.name for node in shown))}
        evidence = Evidence(
            machines=machines, groups={}, ports=ports, answers=answers, foreign=not identity.IDENTITY_FILE.exists()
        )
        return Examination(
            evidence=evidence,
            nodes=nodes,
            visits=visits,
            not_seen=max(0, len(nodes) - len(shown)),
            seconds=self._seconds,
            root=self._root,
        )

    def _settings(self) -> dict[str, str]:
        """Return slurmctld's settings, or what slurm.conf says where it does not answer."""
        try:
            found = slurm_facts.settings(self._run)
        except CommandError:
            found = {}
        self._answered = bool(found)
        if found:
            return found
        try:
            return slurm_facts.local_settings(slurm_facts.slurm_conf())
        except OSError:
            return {}

    def _gather(self, asked: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
        return probe_facts.gather({name: self._timed(name, fact) for name, fact in asked.items()}, seconds=seconds)

    def _timed(self, name: str, fact: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> Any:
            began = time.monotonic()
            try:
                return fact()
            finally:
                self._seconds[name] = round(time.monotonic() - began, 2)

        return timed

    def _head(self, settings: Mapping[str, str], ports: SlurmPorts) -> dict[str, Any]:
        """Return what the head says of itself."""
        run = self._run
        log = slurm_facts.value(settings, "SlurmctldLogFile")
        state = slurm_facts.value(settings, "StateSaveLocation") or _STATE_DIRECTORY
        paths = [state, "/tmp", "/var/log", "/"]  # noqa: S108 - looked at, not used
        narrow = ports.srun if ports.srun != UNPRIVILEGED_TCP else None
        self._nodes: dict[str, Node] = {}

        def nodes() -> dict[str, dict[str, str]]:
            self._nodes = table.read(run) if self._answered else {}
            return {name: {**asdict(node.state), "version": node.version} for name, node in self._nodes.items()}

        facts: dict[str, Callable[[], Any]] = {
            "hostname": socket.gethostname,
            "addresses": host_facts.addresses,
            "time": time.time,
            "status": probe_facts.status,
            "disks": lambda: host_facts.disks(paths),
            "hung": host_facts.hung,
            "read_only": lambda: host_facts.read_only(paths),
            "munge": lambda: slurm_facts.daemon(run, "munge", process="munged"),
            "slurm": lambda: slurm_facts.daemon(run, "slurmctld", log=log),
            "controller": lambda: " is UP" in run(["scontrol", "ping"], check=False, timeout=FACT_SECONDS - 2).stdout,
            "nodes": nodes,
            "credential": lambda: probe_facts.encode(run) if self._root else _encode(run),
            "configuration": lambda: slurm_facts.configuration(run),
            "debug_flags": lambda: slurm_facts.value(settings, "DebugFlags"),
            "slurm_version": lambda: slurm_facts.value(settings, "SLURM_VERSION"),
            "slurmdbd": lambda: _slurmdbd(settings),
            "ssm_agent": lambda: probe_facts.ssm_agent(run),
            "head_host": lambda: _head_host(settings),
        }
        if narrow is not None:
            facts["srun_ports"] = lambda: host_facts.free_ports(narrow)
        return self._gather(facts, FACT_SECONDS)

    def _peers(self, head: dict[str, Any], nodes: Sequence[Node], ports: SlurmPorts) -> None:
        others = probe_plan.listen_ports(SlurmPorts(srun=_dialled(ports)))

        def look(node: Node) -> Callable[[], dict[str, Any]]:
            return lambda: peers.look(node.state.address or node.name, node.state.state, ports.slurmd, others)

        found = self._gather({f"peer {node.name}": look(node) for node in nodes}, PEER_SECONDS)
        # an error is one of time: then nothing is known of the node but its name
        head["peers"] = {
            node.name: peers.unseen(node.state.address, node.state.state) if _failed(item) else item
            for node, item in zip(nodes, found.values(), strict=True)
        }
        head["alive"] = {HEAD: "the doctor runs there"} | {
            name: item["alive"] for name, item in head["peers"].items() if item["alive"]
        }

    def _log(self, head: dict[str, Any], settings: Mapping[str, str], nodes: Mapping[str, Node]) -> None:
        self._log_file = slurm_facts.value(settings, "SlurmctldLogFile")
        lines = self._lines()
        names: dict[str, str] = {}
        for name, node in nodes.items():
            where = head["peers"].get(name, {}).get("where", "")
            names |= {known: name for known in (name, node.state.host, node.state.address, where) if known}
        serving = {name for name, node in nodes.items() if node.state.serves}
        started = {name: node.started for name, node in nodes.items()}
        found = controller_log.refused(lines, names)
        head["refused"] = controller_log.holding(found, started, serving, time.time())
        head["other_conf"] = controller_log.other_configurations(lines, started)

    def _lines(self, since: float = 0.0) -> list[tuple[float, str]]:
        """Return what slurmctld has logged in a day, or since a time."""
        seconds = min(_LOG_SECONDS, time.time() - since)
        try:
            return slurm_facts.log_lines(self._run, "slurmctld", self._log_file, seconds=seconds)
        except (CommandError, OSError):
            return []

    def _own_address(self, found: Mapping[str, Mapping[str, Any]]) -> str | None:
        for item in found.values():
            if item["where"] and not item["where"].startswith("127."):
                try:
                    return host_facts.address_towards(item["where"])
                except OSError:
                    continue
        return next(iter(host_facts.addresses()), None)

    def _visit_all(
        self, head: Mapping[str, Any], settings: Mapping[str, str], ports: SlurmPorts, nodes: Sequence[Node]
    ) -> tuple[dict[str, Visit], dict[str, Any]]:
        """Visit what can be visited while the head listens and tries; return the visits and what the head met."""
        refused, seen = head["refused"], head["peers"]
        visits = {node.name: Visit(how="not", why=_unfit(node, refused, seen)) for node in nodes}
        fit = [node for node in nodes if not visits[node.name].why or self._options.ssh]
        for node in fit[self._options.most :]:
            visits[node.name].why = f"{self._options.most} others were visited (--most)"
        fit = fit[: self._options.most]
        listen = probe_plan.listen_ports(
            SlurmPorts(slurmctld=ports.slurmctld, slurmd=ports.slurmd, srun=_dialled(ports))
        )
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
        requests = self._requests(head, settings, ports, fit, listen)
        memory = "MEMORY" in slurm_facts.value(settings, "SelectTypeParameters").upper()
        with (
            Collector(_dialled(ports), head["address"] or "") as collector,
            Visits(self._run, collector, memory=memory, user=self._options.user, ssh=self._options.ssh) as made,
            ThreadPoolExecutor(max_workers=max(1, len(fit))) as pool,
        ):
            found = list(pool.map(lambda node: made.visit(node, requests[node.name]), fit))
        visits |= {node.name: visit for node, visit in zip(fit, found, strict=True)}
        if not fit:
            time.sleep(probe_connections.ATTEMPT_SECONDS)
        over.set()
        meeting.join(10)
        return visits, met

    def _requests(
        self,
        head: Mapping[str, Any],
        settings: Mapping[str, str],
        ports: SlurmPorts,
        nodes: Sequence[Node],
        listen: Sequence[int],
    ) -> dict[str, dict[str, str]]:
        own, host = head["address"] or "", head["head_host"] if isinstance(head["head_host"], str) else ""
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
            "DOCTOR_RESOLVE": host,
            "DOCTOR_CREDENTIAL": head["credential"] if isinstance(head["credential"], str) else "",
            "DOCTOR_SPOOL": slurm_facts.value(settings, "SlurmdSpoolDir"),
            "DOCTOR_LOG": slurm_facts.value(settings, "SlurmdLogFile"),
            "DOCTOR_CONF": conf,
            "DOCTOR_SRUN": str(ports.srun) if ports.srun != UNPRIVILEGED_TCP else "",
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
        seen: Mapping[str, Mapping[str, Any]],
        nodes: Mapping[str, Node],
    ) -> dict[str, Any]:
        names = [name for node in visits for name in (nodes[node].state.address, nodes[node].state.host) if name]
        meet = {"meeting": met, "names": {name: probe_facts.resolve(self._run, name) for name in dict.fromkeys(names)}}
        found: dict[str, Any] = {f"facts:{HEAD}": head, f"meet:{HEAD}": meet}
        for name, visit in visits.items():
            log = controller_log.of_job(self._lines(visit.submitted), visit.job, name) if visit.how == "failed" else []
            found[f"visit:{name}"] = {"how": visit.how, "why": visit.why, "job": visit.job, "log": log}
            # an address is known of it although it says nothing
            facts, there = {"address": seen[name]["where"]}, {}
            if visit.answer is not None:
                facts |= {key: value for key, value in visit.answer["facts"].items() if not _failed(value)}
                facts["skew"] = _skew(visit)
                there = {key: value for key, value in visit.answer["meet"].items() if not _failed(value)}
                head["alive"][name] = "it answered the doctor"
                head["refused"].pop(name, None)
            elif visit.how == "silent":
                there = _overheard(head, facts["address"], met, self._ports.slurmctld)
            found[f"facts:{name}"], found[f"meet:{name}"] = facts, there
        _forget_missed(found, visits)
        return found


def _encode(run: Runner) -> str:
    return run(["munge", "--no-input"], timeout=FACT_SECONDS).stdout.strip()


def _dialled(ports: SlurmPorts) -> PortRange:
    """Return the ports on which an srun really listens: the kernel's choice where no SrunPortRange is set."""
    return ports.srun if ports.srun != UNPRIVILEGED_TCP else host_facts.kernel_ports()


def _head_host(settings: Mapping[str, str]) -> str:
    """Return the name or address under which nodes look for slurmctld."""
    first = next((text for key, text in settings.items() if key.lower().startswith("slurmctldhost")), "")
    name, _, inside = first.partition("(")
    return inside.rstrip(")") or name.strip()


def _slurmdbd(settings: Mapping[str, str]) -> dict[str, Any] | None:
    if "slurmdbd" not in slurm_facts.value(settings, "AccountingStorageType"):
        return None
    host = slurm_facts.value(settings, "AccountingStorageHost") or "localhost"
    port = int(slurm_facts.value(settings, "AccountingStoragePort") or 0) or 6819
    return {"host": host, "port": port, "outcome": connect(Target(host, port)).value}


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
