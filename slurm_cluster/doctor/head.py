"""What the head says of itself, of its cluster's settings and of its slurmctld's log."""

from __future__ import annotations

import os
import pwd
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slurm_cluster.doctor import controller_log, table
from slurm_cluster.doctor.table import Node
from slurm_cluster.model.flows import UNPRIVILEGED_TCP, PortRange
from slurm_cluster.runtime.node import host_facts, probe_facts, slurm_facts
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.probe_connections import Target, connect

FACT_SECONDS = 18.0
_STATE_DIRECTORY = "/var/lib/slurm/slurmctld"
_DBD_PORT = 6819
_LOG_SECONDS = 86_400


class Head:
    """The machine on which this runs.

    Args:
        run: runs programs.
        user: as whom jobs are submitted, empty for the one who runs this.
        only: names of the nodes that are of interest, all if empty.
    """

    def __init__(self, run: Runner, user: str, only: Sequence[str] = ()) -> None:
        self._run = run
        self._user = user
        self._only = frozenset(only)
        self.root = os.geteuid() == 0
        self.answered = True
        self.settings = self._settings()
        self.ports = slurm_facts.ports(self.settings)
        self.nodes: dict[str, Node] = {}
        self.seconds: dict[str, float] = {}

    def setting(self, name: str) -> str:
        """Return a setting of the cluster, empty where it has none."""
        return slurm_facts.value(self.settings, name)

    @property
    def dialled(self) -> PortRange:
        """Ports on which an srun really listens: the kernel's choice where no SrunPortRange is set."""
        return self.ports.srun if self.narrow else host_facts.kernel_ports()

    @property
    def narrow(self) -> bool:
        """Whether SrunPortRange is set."""
        return self.ports.srun != UNPRIVILEGED_TCP

    @property
    def host(self) -> str:
        """Name or address under which nodes look for slurmctld."""
        first = next((text for key, text in self.settings.items() if key.lower().startswith("slurmctldhost")), "")
        name, _, inside = first.partition("(")
        return inside.rstrip(")") or name.strip()

    def _settings(self) -> dict[str, str]:
        """Return slurmctld's settings, or what slurm.conf says where it does not answer."""
        try:
            if found := slurm_facts.settings(self._run):
                return found
        except CommandError:
            pass  # the next best is the file
        self.answered = False
        try:
            return slurm_facts.local_settings(slurm_facts.slurm_conf())
        except OSError:
            return {}

    def gather(self, asked: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
        """Return facts as ``probe_facts.gather`` does, and note in ``seconds`` how long each took."""
        return probe_facts.gather({name: self._timed(name, fact) for name, fact in asked.items()}, seconds=seconds)

    def _timed(self, name: str, fact: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> Any:
            began = time.monotonic()
            try:
                return fact()
            finally:
                self.seconds[name] = round(time.monotonic() - began, 2)

        return timed

    def facts(self) -> dict[str, Any]:
        """Return everything that needs no other machine but those that slurmctld itself asks."""
        run = self._run
        own = self.setting("StateSaveLocation") or _STATE_DIRECTORY
        asked: dict[str, Callable[[], Any]] = {
            "hostname": socket.gethostname,
            "addresses": host_facts.addresses,
            "time": time.time,
            "status": probe_facts.status,
            **host_facts.of_file_systems(host_facts.written(own)),
            "munge": lambda: slurm_facts.daemon(run, "munge", process="munged"),
            "slurm": lambda: slurm_facts.daemon(run, "slurmctld", log=self.setting("SlurmctldLogFile")),
            "listening": lambda: host_facts.listening("slurmctld"),
            "controller": lambda: " is UP" in run(["scontrol", "ping"], check=False, timeout=FACT_SECONDS - 2).stdout,
            "nodes": self._node_rows,
            "credential": self._credential,
            "configuration": lambda: slurm_facts.configuration(run),
            "debug_flags": lambda: self.setting("DebugFlags"),
            "slurm_version": lambda: self.setting("SLURM_VERSION"),
            "slurmdbd": self._slurmdbd,
            "ssm_agent": lambda: probe_facts.ssm_agent(run),
            "head_host": lambda: self.host,
        }
        if self.narrow:
            asked["srun_ports"] = lambda: host_facts.free_ports(self.ports.srun)
        return self.gather(asked, FACT_SECONDS)

    def _node_rows(self) -> dict[str, dict[str, str]]:
        known = table.read(self._run) if self.answered else {}
        self.nodes = {name: node for name, node in known.items() if not self._only or name in self._only}
        return {name: {**asdict(node.state), "version": node.version} for name, node in self.nodes.items()}

    def _credential(self) -> str:
        """Return a credential that the jobs' user alone can decode, and with which nobody can do anything."""
        if self.root:
            return probe_facts.encode(self._run, pwd.getpwnam(self._user).pw_uid if self._user else 0)
        # to become somebody who may nothing takes root
        argv = ["munge", "--no-input", f"--restrict-uid={os.getuid()}"]
        return self._run(argv, timeout=FACT_SECONDS).stdout.strip()

    def _slurmdbd(self) -> dict[str, Any] | None:
        if "slurmdbd" not in self.setting("AccountingStorageType"):
            return None
        host = self.setting("AccountingStorageHost") or "localhost"
        port = int(self.setting("AccountingStoragePort") or 0) or _DBD_PORT
        return {"host": host, "port": port, "outcome": connect(Target(host, port)).value}

    def log(self, since: float = 0.0) -> list[tuple[float, str]]:
        """Return what slurmctld has logged in a day, or since a time; empty where that cannot be read."""
        seconds = min(_LOG_SECONDS, time.time() - since)
        try:
            return slurm_facts.log_lines(self._run, "slurmctld", self.setting("SlurmctldLogFile"), seconds=seconds)
        except (CommandError, OSError):
            return []

    def logged(self, peers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return ``refused``, ``hung_up`` and ``other_conf``: what slurmctld's log tells, see ``controller_log``."""
        lines = self.log()
        names: dict[str, str] = {}
        for name, node in self.nodes.items():
            where = peers.get(name, {}).get("where", "")
            names |= {known: name for known in (name, node.state.host, node.state.address, where) if known}
        serving = {name for name, node in self.nodes.items() if node.state.serves}
        started = {name: node.started for name, node in self.nodes.items()}

        def holding(found: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
            return controller_log.holding(found, started, serving, time.time())

        return {
            "refused": holding(controller_log.refused(lines, names)),
            "hung_up": holding(controller_log.hung_up(lines, names)),
            "other_conf": controller_log.other_configurations(lines, started),
        }
