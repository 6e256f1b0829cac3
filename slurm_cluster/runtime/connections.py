"""Which connection between two machines is blocked, and where its packets end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from slurm_cluster.model.flows import Flow, PortRange, Rule, SlurmPorts, cluster_flows, rules
from slurm_cluster.runtime.evidence import HEAD, Evidence


class End(StrEnum):
    """Where a connection's first packet ended."""

    SERVED = "served"
    """It was answered, by acceptance or refusal by a port that nobody listened on: nothing is in its way."""

    NOBODY = "nobody"
    """The machine refused it: no program listens on a daemon's port."""

    ON_THE_WAY = "on the way"
    """It left and never arrived although the other machine was looking."""

    AT_THE_HOST = "at the host"
    """It arrived, and the other machine itself dropped or rejected it."""

    AT_THE_OPENER = "at the opener"
    """It never left the machine that should have sent it."""

    SOMEWHERE = "somewhere"
    """It brought no answer although the other machine is alive, and one of the two could not look for it."""

    UNKNOWN = "unknown"
    """It brought no answer, and of the other end nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """One connection that was tried between two machines.

    Args:
        opener: who sent the first packet.
        listener: who should have answered.
        port: port on the listener.
        flow: what Slurm needs it for.
        end: what became of it.
    """

    opener: str
    listener: str
    port: int
    flow: Flow
    end: End


def tried(evidence: Evidence) -> list[Connection]:
    """Return every connection between head and workers that was tried."""
    return list(_tried(evidence))


def _tried(evidence: Evidence) -> Iterator[Connection]:
    meetings = {name: meeting for name in evidence.machines if (meeting := evidence.met(name, "meeting"))}
    # where two machines claim one address, the first that is asked counts
    owner = {where: name for name in [*evidence.machines][::-1] for where in evidence.addresses(name)}
    flows = cluster_flows(evidence.ports)
    for opener, meeting in meetings.items():
        for item in meeting["connections"]:
            listener, port = owner.get(item["host"]), item["port"]
            flow = _flow(flows, evidence, opener, listener, port) if listener is not None else None
            if listener is None or flow is None:
                continue
            there = meetings.get(listener, {})
            seen = there.get("arrived", [])
            arrived = any([where, port] in seen for where in evidence.addresses(opener))
            yield Connection(
                opener=opener,
                listener=listener,
                port=port,
                flow=flow,
                end=_end(
                    item["outcome"],
                    left=item["left"],
                    arrived=arrived if there.get("watching") else None,
                    listening=port in there.get("listening", []),
                    daemon=port in (evidence.ports.slurmctld, evidence.ports.slurmd),
                    alive=_alive(evidence, listener),
                ),
            )


def _alive(evidence: Evidence, node: str) -> bool:
    """Return whether a machine has shown a sign of life besides the connections in question, see doctor.peers."""
    return bool((evidence.fact(HEAD, "alive") or {}).get(node))


def _end(outcome: str, *, left: bool | None, arrived: bool | None, listening: bool, daemon: bool, alive: bool) -> End:
    """Return what became of a connection.

    Args:
        outcome: what its opener saw, see probe_connections.Outcome.
        left: whether its SYN was seen to leave, None if its opener could not look.
        arrived: whether the other machine saw its SYN, None if that was not looking.
        listening: whether the other machine's probe listened on the port.
        daemon: whether it is the port of a daemon.
        alive: whether the other machine has shown a sign of life.
    """
    if outcome == "open":
        return End.SERVED
    if outcome in ("refused", "unreachable") and left is False:
        return End.AT_THE_OPENER  # its own machine said so
    if outcome == "refused":
        if listening:
            # Somebody refused what the probe would have accepted. It was the host if the SYN came that far.
            return End.AT_THE_HOST if arrived else End.UNKNOWN
        return End.NOBODY if daemon else End.SERVED
    if outcome in ("timeout", "unreachable") and arrived:
        return End.AT_THE_HOST
    if outcome == "timeout" and left is False:
        return End.AT_THE_OPENER
    if outcome == "timeout" and left and arrived is False:
        return End.ON_THE_WAY
    if outcome == "timeout" and alive:
        return End.SOMEWHERE
    return End.UNKNOWN


def _flow(flows: Sequence[Flow], evidence: Evidence, opener: str, listener: str, port: int) -> Flow | None:
    """Return the first flow that needs this connection; a daemon's port is never srun's."""
    wanted = PortRange(port, port)
    pair = (evidence.role(opener), evidence.role(listener))
    fitting = [flow for flow in flows if (flow.opener, flow.listener) == pair and wanted in flow.ports]
    return min(fitting, key=lambda flow: flow.ports.last - flow.ports.first, default=None)


def rule_for(flow: Flow, ports: SlurmPorts) -> Rule:
    """Return the security-group rule that the cluster has for a flow."""
    return next(rule for rule in rules(cluster_flows(ports)) if flow in rule.flows)


def label(node: str) -> str:
    """Return what a machine is called in a sentence."""
    return "the head" if node == HEAD else node


def daemon_of(node: str) -> str:
    """Return the daemon of Slurm that a machine runs."""
    return "slurmctld" if node == HEAD else "slurmd"
