"""What the head alone can see of a node: whether it lives, and whether its slurmd answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from slurm_cluster.model.flows import SlurmPorts
from slurm_cluster.runtime.node import host_facts
from slurm_cluster.runtime.node.probe_connections import Outcome, Target, connect

_CONNECT_SECONDS = 3.5
_ANSWER_SECONDS = 6.0
_LIFE_SECONDS = 2.0
_SSH = 22
_USUAL = (SlurmPorts().slurmd,)


def look(address: str, state: str, port: int, others: Sequence[int]) -> dict[str, Any]:
    """Look at one node.

    Args:
        address: NodeAddr, a name or an address.
        state: what slurmctld thinks of the node.
        port: of slurmd.
        others: ports on which a machine that lives might answer, if only by a refusal.

    Returns:
        ``address`` and ``state`` as given, ``where`` (its IPv4 address), ``outcome`` of connecting to slurmd,
        ``elsewhere`` (where slurmd takes connections that refuses them on its port),
        ``answers`` (whether slurmd did anything with the connection, None without one), ``seconds`` it had for that,
        ``tried`` (ports) and ``alive`` (by what it was seen to live, empty if by nothing).
    """
    found = unseen(address, state)
    try:
        found["where"] = where = socket.gethostbyname(address)
    except OSError:
        return {**found, "outcome": Outcome.UNRESOLVABLE.value}
    outcome = connect(Target(where, port), seconds=_CONNECT_SECONDS)
    found |= {"outcome": outcome.value, "tried": [port]}
    if outcome is Outcome.OPEN:
        began = time.monotonic()
        answers = hangs_up(where, port, seconds=_ANSWER_SECONDS)
        return {**found, "answers": answers, "seconds": time.monotonic() - began, "alive": f"TCP {port} is open"}
    if outcome is Outcome.REFUSED:
        found["elsewhere"] = [usual for usual in _USUAL if usual != port and _takes(where, usual)]
        return {**found, "alive": f"it refuses TCP {port}"}
    for other in (_SSH, *others):
        found["tried"].append(other)
        if connect(Target(where, other), seconds=_LIFE_SECONDS) in (Outcome.OPEN, Outcome.REFUSED):
            return {**found, "alive": f"TCP {other} answers"}
    if host_facts.answers_ping(where):
        found["alive"] = "it answers ping"
    return found


def _takes(host: str, port: int) -> bool:
    return connect(Target(host, port), seconds=_LIFE_SECONDS) is Outcome.OPEN


def unseen(address: str, state: str) -> dict[str, Any]:
    """Return what ``look`` does of a node of which nothing is known yet."""
    nothing: dict[str, Any] = {
        "where": "",
        "outcome": "",
        "elsewhere": [],
        "answers": None,
        "seconds": 0.0,
        "tried": [],
        "alive": "",
    }
    return {"address": address, "state": state, **nothing}


def hangs_up(host: str, port: int, *, seconds: float) -> bool:
    """Return whether a daemon ends a connection over which nothing will come: any that works does so at once."""
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS) as connection:
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(seconds)
            while connection.recv(4096):
                pass
            return True
    except TimeoutError:
        return False
    except OSError:
        return True
