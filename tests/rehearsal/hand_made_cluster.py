"""A Slurm cluster as someone sets it up by hand from Debian's packages: nothing of this package is on it.

Head and workers are lab machines (network, process, mount and host-name namespaces) on one switch, which is a network
namespace of its own. What the switch drops, the machines cannot see: so it stands for security groups.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rehearsal.slurm_lab import lab_slurm
from tests.rehearsal.slurm_lab.lab_machine import LabMachine

_NETWORK = "192.168.78"
_IDLE_SECONDS = 90.0
_SLURM_CONF = """\
ClusterName=byhand
SlurmctldHost=head
{common}ReturnToService=2
{extra}NodeName={nodes} CPUs=1
PartitionName=lab Nodes=ALL Default=YES
"""
_ORIGIN_STORY = """\
table bridge groups {{
    chain forward {{
        type filter hook forward priority 0; policy accept;
        {rules}
    }}
}}
"""


class HandMadeCluster:
    """The cluster, running from ``__enter__`` to ``__exit__``.

    Args:
        root: root file system of a Debian with Slurm and munge, never written to.
        workers: how many there are, named ``n1``, ``n2``, ...
        extra: lines to add to slurm.conf, each with its line end.
    """

    def __init__(self, root: Path, workers: int = 2, *, extra: str = "") -> None:
        self.head = LabMachine("head", root)
        self.workers = [LabMachine(f"n{number}", root) for number in range(1, workers + 1)]
        self.addresses = {machine.name: f"{_NETWORK}.{number}" for number, machine in enumerate(self.machines, 1)}
        self._switch = LabMachine("switch", root)
        self._extra = extra
        self._running = ExitStack()

    @property
    def machines(self) -> list[LabMachine]:
        """Head and workers."""
        return [self.head, *self.workers]

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for machine in (self._switch, *self.machines):
                starting.enter_context(machine)
            self._connect()
            self._configure()
            self.head.check(["slurmctld"])
            for worker in self.workers:
                worker.check(["slurmd"])
            self.await_idle()
            self._running = starting.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._running.close()

    def _connect(self) -> None:
        self._switch.network(["ip", "link", "add", "switch", "type", "bridge"])
        self._switch.network(["ip", "link", "set", "switch", "up"])
        for machine in self.machines:
            ends = (str(machine.pid1), str(self._switch.pid1))
            peer = ["peer", "name", machine.name, "netns", ends[1]]
            link = ["ip", "link", "add", "eth0", "netns", ends[0], "type", "veth", *peer]
            subprocess.run(link, check=True, capture_output=True, text=True)
            self._switch.network(["ip", "link", "set", machine.name, "master", "switch", "up"])
            machine.network(["ip", "address", "add", f"{self.addresses[machine.name]}/24", "dev", "eth0"])
            machine.network(["ip", "link", "set", "eth0", "up"])

    def _configure(self) -> None:
        key = secrets.token_hex(64)
        hosts = "".join(f"{address} {name}\n" for name, address in self.addresses.items())
        names = ",".join(worker.name for worker in self.workers)
        conf = _SLURM_CONF.format(common=lab_slurm.SLURM_CONF, nodes=names, extra=self._extra)
        for machine in self.machines:
            lab_slurm.configure(machine, hosts=hosts, slurm_conf=conf)
            self.start_munge(machine, key)

    def start_munge(self, machine: LabMachine, key: str, *, wrapper: Sequence[str] = ()) -> None:
        """Give a machine a munge key, and start munged with it anew.

        Args:
            machine: head or worker.
            key: the key's text.
            wrapper: command line that munged is started by, such as ``faketime``.
        """
        machine.run(["pkill", "-x", "munged"], timeout=10)
        machine.run(["sh", "-c", "while pgrep -x munged; do sleep 0.1; done"], timeout=10)
        machine.check(["rm", "-f", "/etc/munge/munge.key"])
        lab_slurm.give_key(machine, key)
        machine.check([*lab_slurm.MUNGED, *wrapper, "munged", "--force"])

    def restart_slurmd(self, worker: LabMachine) -> None:
        """Start a worker's slurmd anew."""
        worker.run(["pkill", "-x", "slurmd"], timeout=10)
        worker.run(["sh", "-c", "while pgrep -x slurmd; do sleep 0.1; done"], timeout=20)
        worker.check(["slurmd"])

    def await_idle(self) -> None:
        """Wait until every worker can take a job; see ``await_state``."""
        self.await_state("idle")

    def await_state(self, wanted: str) -> None:
        """Wait until every worker is in one state.

        Raises:
            RuntimeError: not all are in time; with the ends of the daemons' logs.
        """
        deadline = time.monotonic() + _IDLE_SECONDS
        states: list[str] = []
        while time.monotonic() < deadline:
            states = self.head.run(["sinfo", "--noheader", "--Node", "--format=%T"], timeout=60).stdout.split()
            if states and set(states) == {wanted}:
                return
            time.sleep(0.2)
        logs = [machine.read(f"/var/log/slurm/slurm{end}.log")[-2000:] for machine, end in self._daemons()]
        raise RuntimeError(f"the workers are {states} after {_IDLE_SECONDS:.0f} s: {' '.join(logs)}")

    @contextmanager
    def unplugged(self, machine: LabMachine) -> Iterator[None]:
        """Take a machine off the network until the block ends."""
        self._switch.network(["ip", "link", "set", machine.name, "down"])
        try:
            yield
        finally:
            self._switch.network(["ip", "link", "set", machine.name, "up"])

    @contextmanager
    def running(self, machine: LabMachine, argv: Sequence[str], *, until: str) -> Iterator[None]:
        """Run a program on a machine until the block ends, which begins when the program has printed ``until``."""
        # what enters a process namespace does so by a child, which would stay
        mortal = ["setpriv", "--pdeathsig", "KILL", *argv]
        with subprocess.Popen(machine.command(mortal), stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline().strip()
                if said != until:
                    raise RuntimeError(f"{machine.name}: {argv} said {said!r} instead of {until!r}")
                yield
            finally:
                process.kill()

    def _daemons(self) -> Iterator[tuple[LabMachine, str]]:
        yield self.head, "ctld"
        for worker in self.workers:
            yield worker, "d"

    @contextmanager
    def dropping(self, *rules: str) -> Iterator[None]:
        """Have the switch drop, silently, the first packets of TCP connections that match a rule.

        Args:
            rules: nft's matches, in which ``@NAME`` is the address of a machine, e.g. ``ip daddr @head tcp dport 22``.
        """
        texts = [f"{rule} tcp flags & (syn | ack) == syn drop" for rule in rules]
        for name in sorted(self.addresses, key=len, reverse=True):
            texts = [text.replace(f"@{name}", self.addresses[name]) for text in texts]
        self._switch.network(["nft", "-f", "-"], input=_ORIGIN_STORY.format(rules="\n        ".join(texts)))
        try:
            yield
        finally:
            self._switch.network(["nft", "delete", "table", "bridge", "groups"])
