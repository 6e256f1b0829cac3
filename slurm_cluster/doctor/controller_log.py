"""What slurmctld's log tells of nodes: whose messages it refuses, and whose configuration is another."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

RECENT_SECONDS = 600
"""slurmctld asks a node that does not answer every 100 seconds (SlurmdTimeout / 3); slurmd tries every 128 at most."""

_SERVING_SECONDS = 60

_PEER = re.compile(r"\[\[([^\]]+)\]:\d+\]")
_REFUSED = re.compile(
    r"authentication error|Protocol authentication|Incompatible versions|protocol_version|unpack_header"
)
_HUNG_UP = re.compile(r"slurm_receive_msgs: \[\[([^\]]+)\]:\d+\] failed: Zero Bytes were transmitted or received")
"""In the plural it is about the answer to a message that slurmctld has sent."""

_CAUSE = re.compile(r"Munge decode failed: (.*)|(Incompatible versions.*)|(.*protocol_version \d+ not supported.*)")
_CREDENTIAL = re.compile(r"_print_cred: (ENCODED|DECODED): (.+)")
_OTHER_CONF = re.compile(r"Node (\S+) appears to have a different slurm\.conf than the slurmctld\.")
_LINE_LENGTH = 200

Lines = Iterable[tuple[float, str]]


def refused(lines: Lines, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the nodes whose messages were refused: ``kind`` (key, clock, version), ``line``, ``skew`` and ``when``.

    Args:
        lines: what slurmctld logged.
        names: node name by each of its names and addresses.
    """
    found: dict[str, dict[str, Any]] = {}
    cause = ""
    times: dict[str, float] = {}
    for when, line in lines:
        if said := _CAUSE.search(line):
            cause, times = next(text for text in said.groups() if text), {}
        elif stamp := _CREDENTIAL.search(line):
            times[stamp[1]] = _time(stamp[2])
        peer = _PEER.search(line)
        if peer and _REFUSED.search(line) and cause and (node := _node(names, peer[1])):
            skew = times.get("ENCODED", 0) - times.get("DECODED", 0)
            found[node] = {"kind": _kind(cause), "line": cause[:_LINE_LENGTH], "skew": round(abs(skew)), "when": when}
    return {node: item for node, item in found.items() if item["kind"]}


def hung_up(lines: Lines, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the nodes whose slurmd ended connections without an answer to the message: ``line`` and ``when``.

    So it does with every message that it cannot authenticate, or whose protocol it does not know. Once is no sign: it
    may have been restarted just then.

    Args:
        lines: what slurmctld logged.
        names: node name by each of its names and addresses.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for when, line in lines:
        said = _HUNG_UP.search(line)
        if said and (node := _node(names, said[1])):
            found.setdefault(node, []).append({"line": line[:_LINE_LENGTH], "when": when})
    return {node: items[-1] for node, items in found.items() if len(items) > 1}


def _node(names: Mapping[str, str], peer: str) -> str | None:
    """Return the node that a log line calls by one of its names, also with a domain behind it."""
    return names.get(peer) or names.get(peer.split(".")[0])


def _kind(cause: str) -> str:
    low = cause.lower()
    if "expired" in low or "rewound" in low:
        return "clock"
    if "invalid credential" in low:
        return "key"
    return "version" if "version" in low else ""


def _time(text: str) -> float:
    try:
        return datetime.strptime(text.strip(), "%a %b %d %H:%M:%S %Y").timestamp()
    except ValueError:
        return 0.0


def other_configurations(lines: Lines, started: Mapping[str, float]) -> dict[str, str]:
    """Return the nodes that have registered with another slurm.conf and were not started anew since, with the line.

    Args:
        lines: what slurmctld logged.
        started: when each node's slurmd was started, seconds since the epoch; of others nothing is said.
    """
    found = {}
    for when, line in lines:
        said = _OTHER_CONF.search(line)
        # slurmd starts a moment before it registers, and both times are cut to seconds
        if said and said[1] in started and when >= started[said[1]] - 2:
            found[said[1]] = said[0]
    return found


def of_job(lines: Lines, job: str, node: str) -> list[str]:
    """Return the errors that were logged of a job, or of its node by name; its configuration is another matter."""
    about = re.compile(rf"JobId={job}\b|\b{re.escape(node)}\b")
    errors = [line for _, line in lines if about.search(line) and "error" in line.lower()]
    return [line[:_LINE_LENGTH] for line in errors if not _OTHER_CONF.search(line)]


def holding(
    found: Mapping[str, dict[str, Any]], started: Mapping[str, float], serving: Collection[str], now: float
) -> dict[str, dict[str, Any]]:
    """Return what of ``refused`` still holds.

    A node whose slurmd has been started and has registered since is mended, and so is one that serves and was refused
    longer ago than slurmd waits in the first minutes of its trouble.

    Args:
        found: what ``refused`` returned.
        started: when the slurmd that last registered was started, by node.
        serving: nodes that slurmctld reaches.
        now: seconds since the epoch.
    """
    limits = {node: _SERVING_SECONDS if node in serving else RECENT_SECONDS for node in found}
    return {
        node: item
        for node, item in found.items()
        if now - item["when"] <= limits[node] and started.get(node, 0) <= item["when"]
    }
