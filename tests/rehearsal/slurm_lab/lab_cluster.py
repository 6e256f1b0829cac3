"""A Slurm cluster of one head and one worker on two lab machines: real munged, slurmctld and slurmd, no systemd."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from tests.rehearsal.slurm_lab import lab_slurm
from tests.rehearsal.slurm_lab.lab_machine import LabMachine

HEAD_ADDRESS = "192.168.77.1"
WORKER_ADDRESS = "192.168.77.2"
_SLURM_CONF = f"""\
ClusterName=lab
SlurmctldHost=head({HEAD_ADDRESS})
{lab_slurm.SLURM_CONF}NodeName=worker NodeAddr={WORKER_ADDRESS} CPUs=1
PartitionName=lab Nodes=worker Default=YES
"""
_IDLE_SECONDS = 60.0


class LabCluster:
    """The cluster, running from ``__enter__`` to ``__exit__``; every other setting is Slurm's default.

    Args:
        root: root file system of a Debian 13 with slurmctld, slurmd, slurm-client and munge, never written to.
    """

    def __init__(self, root: Path) -> None:
        self.head = LabMachine("head", root)
        self.worker = LabMachine("worker", root)
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.head)
            starting.enter_context(self.worker)
            self._connect()
            self._start_daemons()
            self.await_idle()
            self._running = starting.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._running.close()

    def kill(self) -> None:
        """End both machines, whatever runs on them; also from another thread."""
        for machine in (self.head, self.worker):
            machine.kill()

    def _connect(self) -> None:
        ends = (str(self.head.pid1), str(self.worker.pid1))
        link = ["ip", "link", "add", "eth0", "netns", ends[0], "type", "veth", "peer", "name", "eth0", "netns", ends[1]]
        subprocess.run(link, check=True, capture_output=True, text=True)
        for machine, address in ((self.head, HEAD_ADDRESS), (self.worker, WORKER_ADDRESS)):
            machine.network(["ip", "address", "add", f"{address}/24", "dev", "eth0"])
            machine.network(["ip", "link", "set", "eth0", "up"])

    def _start_daemons(self) -> None:
        key = secrets.token_hex(64)
        for machine in (self.head, self.worker):
            hosts = f"{HEAD_ADDRESS} head\n{WORKER_ADDRESS} worker\n"
            lab_slurm.configure(machine, hosts=hosts, slurm_conf=_SLURM_CONF)
            lab_slurm.give_key(machine, key)
            machine.check([*lab_slurm.MUNGED, "munged"])
        self.head.check(["slurmctld"])
        self.worker.check(["slurmd", "-N", "worker"])

    def await_idle(self) -> None:
        """Wait until the worker can take a job.

        Raises:
            RuntimeError: it is not idle after a minute; with the ends of the daemons' logs.
        """
        deadline = time.monotonic() + _IDLE_SECONDS
        state = ""
        while time.monotonic() < deadline:
            state = self.head.run(["sinfo", "--noheader", "--format=%T"], timeout=60).stdout.strip()
            if state == "idle":
                return
            time.sleep(0.2)
        logs = self.head.read("/var/log/slurm/slurmctld.log") + self.worker.read("/var/log/slurm/slurmd.log")
        raise RuntimeError(f"the lab's worker is {state or 'unknown'} after {_IDLE_SECONDS:.0f} s: {logs[-4000:]}")

    @contextmanager
    def closed(self, flow_id: str) -> Iterator[Callable[[], int]]:
        """Drop new connections of one flow to the head, silently as a security group does, until the block ends.

        slurmctld's port stays open: it lies in the default srun range, but has a rule of its own.

        Yields:
            a function that returns how many packets were dropped.
        """
        ports = SlurmPorts()
        flow = next(flow for flow in cluster_flows(ports) if flow.id == flow_id)
        # slurmctld beside srun is no business of a security group: only what comes from the worker
        rule = f"iifname eth0 tcp dport {flow.ports} tcp dport != {ports.slurmctld} ct state new counter drop"
        chain = f"chain input {{\ntype filter hook input priority 0\n{rule}\n}}"
        self.head.network(["nft", "-f", "-"], input=f"table inet lab {{\n{chain}\n}}\n")
        try:
            yield self._dropped_packets
        finally:
            self.head.network(["nft", "delete", "table", "inet", "lab"])

    def _dropped_packets(self) -> int:
        listed = json.loads(self.head.network(["nft", "--json", "list", "table", "inet", "lab"]))["nftables"]
        (rule,) = [item["rule"] for item in listed if "rule" in item]
        return sum(int(part["counter"]["packets"]) for part in rule["expr"] if "counter" in part)
