"""What to show of nodes that are not ready: the step, the reason, and the log lines that matter."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from slurm_cluster.rehearsal.fleet import Member
from slurm_cluster.rehearsal.machine import MachineError, console_tail
from slurm_cluster.rehearsal.network.groups import Refused

_LINES = 20
_LOG_LINES = 200
_ADDRESS_TABLES = "ci-info:"
"""Begin of the lines in which cloud-init tells its addresses and routes."""
_USER_DATA_LOG = Path("var/log/cloud-init-output.log")
_FAILED_UNITS = "systemctl list-units --failed --plain --no-legend --no-pager | cut -d' ' -f1"
_EXEC_SECONDS = 10.0


def node_lines(member: Member) -> Iterator[str]:
    """Yield why a node is not ready, a line each; nothing if it is."""
    if member.ready:
        return
    label = member.instance.label
    status = member.progress.status if member.progress else None
    if member.failure:
        yield f"{label}: {member.failure}"
    elif status is None:
        yield f"{label}: bootstrap has not begun; instance {member.instance.id} is {member.instance.state}"
    else:
        yield f"{label}: bootstrap is still in step {status.step}"
    log = member.machine.root / _USER_DATA_LOG
    said = [line for line in console_tail(log, _LOG_LINES) if not line.startswith(_ADDRESS_TABLES)][-_LINES:]
    if said:
        yield from _tail(f"{label}: last lines of /{_USER_DATA_LOG}", said)
    else:
        yield from _tail(f"{label}: last lines of its console", console_tail(member.machine.console_log, _LINES))
    for unit in _output(member, ["sh", "-c", _FAILED_UNITS]):
        journal = _output(member, ["journalctl", f"--unit={unit}", f"--lines={_LINES}", "--no-pager", "--output=cat"])
        yield from _tail(f"{label}: unit {unit} failed; its journal", journal)


def refused_lines(refused: Iterable[Refused], label_of: Callable[[str], str]) -> Iterator[str]:
    """Yield who was refused what by the network.

    Args:
        refused: what was dropped.
        label_of: returns what people call an address.
    """
    for item in refused:
        port = "" if item.port is None else f" port {item.port}"
        yield (
            f"refused: {label_of(item.source)} to {label_of(item.destination)}, {item.protocol}{port}: "
            f"{item.reason} ({item.packets} packets)"
        )


def _tail(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  | {line}" for line in lines)


def _output(member: Member, argv: list[str]) -> list[str]:
    """Return what a program in the node prints; nothing if the node cannot run it, as it may be what is broken."""
    try:
        return member.machine.exec(argv, timeout=_EXEC_SECONDS).stdout.splitlines()
    except (MachineError, subprocess.TimeoutExpired):
        return []
