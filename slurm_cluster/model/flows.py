"""The flow table: every TCP connection that a working Slurm cluster opens, once.

Security groups, slurm.conf ports, probes, the documented port table and the rehearsal's tests are all derived from
``cluster_flows``. Sources are SchedMD's network guide (https://slurm.schedmd.com/network.html), the man pages
slurm.conf(5) and srun(1), and the Slurm source files that the rows name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a machine is to Slurm; each role has one security group."""

    HEAD = "head"
    WORKER = "worker"


@dataclass(frozen=True, order=True)
class PortRange:
    """TCP ports ``first`` to ``last``, both included.

    Raises:
        ValueError: a port is no whole number from 0 to 65535, or ``first`` is above ``last``.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        # bool is an int, and a port of 1 is not what True means
        if {type(self.first), type(self.last)} != {int} or not 0 <= self.first <= self.last <= 65535:
            raise ValueError(
                f"port range {self.first!r}-{self.last!r} is not valid: "
                "give two ports from 0 to 65535, the lower one first"
            )

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Read what ``str`` gives, ``1024-65535`` or ``61000``.

        Raises:
            ValueError: it is neither.
        """
        first, dash, last = text.partition("-")
        return cls(int(first), int(last if dash else first))

    def __contains__(self, other: PortRange) -> bool:
        return self.first <= other.first and other.last <= self.last

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


ALL_TCP = PortRange(0, 65535)
UNPRIVILEGED_TCP = PortRange(1024, 65535)
KERNEL_TCP = PortRange(32768, 60999)
"""From where Linux takes the ports of outgoing connections unless told otherwise: net.ipv4.ip_local_port_range,
https://docs.kernel.org/networking/ip-sysctl.html."""


@dataclass(frozen=True, kw_only=True)
class SlurmPorts:
    """The ports that a cluster's Slurm uses.

    Args:
        slurmctld: port of the controller; Slurm's default, 6817 (slurm.conf(5) SlurmctldPort).
        slurmd: port of each node daemon; Slurm's default, 6818 (slurm.conf(5) SlurmdPort).
        srun: ports on which srun and salloc listen for I/O, task messages and grants. The default, 1024-65535, leaves
            the choice to the kernel; a narrower range is also written as SrunPortRange.
    """

    slurmctld: int = 6817
    slurmd: int = 6818
    srun: PortRange = UNPRIVILEGED_TCP


@dataclass(frozen=True, kw_only=True)
class Flow:
    """One kind of TCP connection between two roles.

    Args:
        id: stable name, used by probes, tests and documents.
        opener: role that sends the SYN.
        listener: role whose security group must let it in.
        ports: ports on the listener.
        purpose: what Slurm does over it.
        symptom: what a user sees when it is blocked.
        source: where the fact is documented or implemented.
    """

    id: str
    opener: Role
    listener: Role
    ports: PortRange
    purpose: str
    symptom: str
    source: str


def cluster_flows(ports: SlurmPorts) -> tuple[Flow, ...]:
    """Return the flows that every cluster has: head and workers, with jobs submitted on the head or inside jobs."""
    slurmctld = PortRange(ports.slurmctld, ports.slurmctld)
    slurmd = PortRange(ports.slurmd, ports.slurmd)
    return (
        Flow(
            id="controller-rpc",
            opener=Role.WORKER,
            listener=Role.HEAD,
            ports=slurmctld,
            purpose="node registration, configuration fetch, job completion, every Slurm command on a worker",
            symptom="Unable to register: Unable to contact slurm controller (connect failure)",
            source="https://slurm.schedmd.com/network.html slurmctld; src/slurmd/slurmd/slurmd.c",
        ),
        Flow(
            id="node-rpc",
            opener=Role.HEAD,
            listener=Role.WORKER,
            ports=slurmd,
            purpose="ping, launch, signal and termination of jobs and steps",
            symptom="Nodes not responding, setting DOWN; Task launch failed: Communication connection failure",
            source="https://slurm.schedmd.com/network.html slurmd; src/slurmctld/agent.c",
        ),
        Flow(
            id="message-tree",
            opener=Role.WORKER,
            listener=Role.WORKER,
            ports=slurmd,
            purpose="fan-out beyond TreeWidth nodes, launch by an srun inside a job, step completion",
            symptom="_forward_thread: failed to NODE: Connection timed out, only beyond TreeWidth nodes",
            source="slurm.conf(5) TreeWidth; src/common/forward.c",
        ),
        Flow(
            id="srun-io",
            opener=Role.WORKER,
            listener=Role.HEAD,
            ports=ports.srun,
            purpose="task I/O, launch and exit messages, terminal and PMI of an srun on the head",
            symptom="connect io: Connection timed out; srun prints nothing for ten minutes and may exit 0",
            source="https://slurm.schedmd.com/network.html srun; slurm.conf(5) SrunPortRange; "
            "src/slurmd/slurmstepd/io.c",
        ),
        Flow(
            id="srun-io-in-job",
            opener=Role.WORKER,
            listener=Role.WORKER,
            ports=ports.srun,
            purpose="the same for an srun inside a job, which listens on a worker",
            symptom="srun inside a job hangs when the job has two nodes or more",
            source="https://slurm.schedmd.com/network.html srun; src/slurmd/slurmstepd/io.c",
        ),
        Flow(
            id="controller-to-srun-in-job",
            opener=Role.HEAD,
            listener=Role.WORKER,
            ports=ports.srun,
            purpose="allocation grant, step wake-up and time-out to an srun or salloc inside a job",
            symptom="Killing interactive JobId: Communication connection failure; a second step never starts",
            source="src/api/allocate.c; src/slurmctld/srun_comm.c; src/slurmctld/agent.c",
        ),
        Flow(
            id="mpi",
            opener=Role.WORKER,
            listener=Role.WORKER,
            ports=ALL_TCP,
            purpose="MPI, PMIx direct connections, and the rendezvous of distributed training",
            symptom="MPI_Init or init_process_group hangs on two nodes and works on one",
            source="https://slurm.schedmd.com/mpi_guide.html; src/plugins/mpi/pmix/pmixp_dconn_tcp.c",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One security-group rule and the flows that need it."""

    opener: Role
    listener: Role
    ports: PortRange
    flows: tuple[Flow, ...]


def rules(flows: Iterable[Flow]) -> tuple[Rule, ...]:
    """Return the fewest rules per pair of groups that cover ``flows``.

    Daemon ports and the srun range stay rules of their own although the wide default range contains the daemon ports,
    so that narrowing the range takes nothing away. Only all of TCP absorbs the other ranges of its pair.
    """
    ordered = tuple(flows)
    pairs = dict.fromkeys((flow.opener, flow.listener) for flow in ordered)
    found = []
    for opener, listener in pairs:
        between = tuple(flow for flow in ordered if (flow.opener, flow.listener) == (opener, listener))
        if any(flow.ports == ALL_TCP for flow in between):
            found.append(Rule(opener=opener, listener=listener, ports=ALL_TCP, flows=between))
            continue
        for ports in dict.fromkeys(flow.ports for flow in between):
            served = tuple(flow for flow in between if flow.ports == ports)
            found.append(Rule(opener=opener, listener=listener, ports=ports, flows=served))
    return tuple(found)
