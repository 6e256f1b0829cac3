"""What a machine can say about itself without asking another."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import SLURMD_SPOOL_DIR, SSM_AGENT_UNITS, STATE_VOLUME_DIR, STATUS_FILE
from slurm_cluster.runtime.node import host_facts, node_table, units
from slurm_cluster.runtime.node.commands import CommandError, Runner, last_words
from slurm_cluster.runtime.node.identity import NodeIdentity
from slurm_cluster.runtime.node.status import BOOT_ID_FILE

_SECONDS = 10
_SHOWN_NODES = 100
_SHOWN_LINES = 8
_LINE_LENGTH = 300
_UNIT = re.compile(r"^(ActiveState|SubState|Result|UnitFileState)=(.*)$", re.MULTILINE)
_NEEDS_HELP = re.compile(r"error|fatal|munge|credential|not responding", re.IGNORECASE)
_ANY_ADDRESS = "192.0.2.1"
"""Of a range that no network has: only the route to it is looked up, nothing is sent."""


def gather(asked: Mapping[str, Callable[[], Any]], *, seconds: float | None = None) -> dict[str, Any]:
    """Return every fact by name, all asked for at the same time; ``{"error": ...}`` for one that cannot be had.

    Args:
        asked: how to get each.
        seconds: after which those that are still missing are given up; by default each has a limit of its own.
    """
    found: dict[str, Any] = {}

    def ask(name: str, fact: Callable[[], Any]) -> None:
        try:
            found[name] = fact()
        except Exception as problem:
            found[name] = {"error": str(problem) or type(problem).__name__}

    # nobody waits for these threads when the program ends: one may wait for a dead file server
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in asked.items()]
    deadline = None if seconds is None else time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(None if deadline is None else max(0, deadline - time.monotonic()))
    late = {"error": f"no answer after {seconds:g} seconds"} if seconds is not None else {}
    return {name: found.get(name, late) for name in asked}


def all_of(run: Runner, who: NodeIdentity) -> dict[str, Callable[[], Any]]:
    """Return all facts about this machine, by name, to be gathered."""
    head = who.role is Role.HEAD
    daemon = "slurmctld" if head else "slurmd"
    own = STATE_VOLUME_DIR if head else SLURMD_SPOOL_DIR
    facts: dict[str, Callable[[], Any]] = {
        "node": lambda: who.node_name or who.role.value,
        "hostname": socket.gethostname,
        "address": address,
        "time": time.time,
        "clock": lambda: run(["timedatectl", "show", "--property=NTPSynchronized"], timeout=_SECONDS).stdout.strip(),
        "status": status,
        **host_facts.of_file_systems(host_facts.written(str(own))),
        "munge": lambda: unit(run, "munge.service"),
        "slurm": lambda: unit(run, f"{daemon}.service"),
        "release": lambda: run([daemon, "-V"], timeout=_SECONDS).stdout.strip(),
        "listening": lambda: host_facts.listening(daemon),
        "credential": lambda: encode(run),
        "log": lambda: complaints(run, daemon),
    }
    if head:
        facts["controller"] = lambda: " is UP" in run(["scontrol", "ping"], check=False, timeout=30).stdout
        facts["nodes"] = lambda: nodes(run)
        facts["head_host"] = lambda: head_host(who)
    return facts


def address() -> str:
    """Return the address from which this machine's connections come."""
    return host_facts.address_towards(_ANY_ADDRESS)


def status(path: Path = STATUS_FILE, boot_id_file: Path = BOOT_ID_FILE) -> dict[str, Any]:
    """Return how far bootstrap is in this boot: ``state`` (``none`` before it begins), ``step``, its ``seconds``.

    ``trouble`` is why a step that tries again has not succeeded yet, empty where it has not tried twice.
    """
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        value = {}
    if value.get("boot_id") != boot_id_file.read_text().strip():
        return {"state": "none", "step": "", "reason": None, "trouble": "", "seconds": 0}
    began = value["steps"][-1]["started"] if value["steps"] else time.time()
    return {
        "state": value["state"],
        "step": value["step"],
        "reason": value["reason"],
        "trouble": value.get("trouble", ""),
        "seconds": round(max(0, time.time() - began), 1),
    }


def unit(run: Runner, name: str) -> dict[str, str]:
    """Return a unit's state and, unless it runs, the end of its journal."""
    shown = run(["systemctl", "show", "--property=ActiveState,SubState,Result,UnitFileState", name], timeout=_SECONDS)
    found = {key: value.strip() for key, value in _UNIT.findall(shown.stdout)}
    said = "" if found.get("ActiveState") == "active" else units.journal(run, name)[-_LINE_LENGTH:]
    return {
        "active": found.get("ActiveState", ""),
        "sub": found.get("SubState", ""),
        "result": found.get("Result", ""),
        "file": found.get("UnitFileState", ""),
        "journal": said,
    }


def ssm_agent(run: Runner) -> dict[str, str] | None:
    """Return the unit of the SSM agent, from its package or its snap; None where it is not installed."""
    for name in SSM_AGENT_UNITS:
        found = unit(run, name)
        if found["file"]:
            return found
    return None


def encode(run: Runner, reader: int = 0) -> str:
    """Return a credential of a user who may nothing, that only one user can decode: root, or whose uid is given."""
    argv = ["runuser", "--user=nobody", "--", "munge", "--no-input", f"--restrict-uid={reader}"]
    return run(argv, timeout=_SECONDS).stdout.strip()


def decode(run: Runner, credential: str) -> dict[str, Any]:
    """Return what munge says of another machine's credential: ``status`` and, if it read it, ``age`` in seconds."""
    done = run(["unmunge", "--numeric"], input=credential, check=False, timeout=_SECONDS)
    fields = dict(re.findall(r"^(\w+):\s+(.*)$", done.stdout, re.MULTILINE))
    try:
        age = int(_seconds(fields["DECODE_TIME"])) - int(_seconds(fields["ENCODE_TIME"]))
    except (KeyError, ValueError):
        age = None
    said = fields.get("STATUS") or last_words(done).removeprefix("unmunge: ")
    return {"decoded": done.returncode == 0, "status": said, "age": age}


def _seconds(text: str) -> str:
    """Return the seconds since the epoch in munge's ``2026-11-30 18:00:00 +0000 (1796061600)``."""
    return text.rpartition("(")[2].rstrip(")").strip()


def resolve(run: Runner, name: str) -> dict[str, Any]:
    """Return the addresses of a name as programs of this machine get them, /etc/hosts included."""
    try:
        done = run(["getent", "ahostsv4", name], check=False, timeout=_SECONDS)
    except CommandError as problem:
        return {"addresses": [], "problem": str(problem)}
    addresses = list(dict.fromkeys(line.split()[0] for line in done.stdout.splitlines() if line.split()))
    return {"addresses": addresses, "problem": "" if addresses else "no such name"}


def complaints(run: Runner, daemon: str) -> list[str]:
    """Return the last log lines of a daemon and of its steps that tell of trouble."""
    argv = ["journalctl", f"--identifier={daemon}", "--identifier=slurmstepd", "--boot", "--lines=400"]
    said = run([*argv, "--output=cat", "--no-pager", "--quiet"], check=False, timeout=_SECONDS).stdout
    lines = [line.strip()[:_LINE_LENGTH] for line in said.splitlines() if _NEEDS_HELP.search(line)]
    return list(dict.fromkeys(lines))[-_SHOWN_LINES:]


def nodes(run: Runner) -> dict[str, dict[str, str]]:
    """Return slurmctld's node table, those that do not serve first."""
    table = sorted(node_table.read(run).items(), key=lambda item: item[1].serves)
    return {name: asdict(state) for name, state in table[:_SHOWN_NODES]}


def head_host(who: NodeIdentity) -> str:
    """Return the name under which workers look for the head."""
    # Only this fact needs AWS: the others must be had without it.
    from slurm_cluster.runtime.node import parameters
    from slurm_cluster.runtime.node.aws import Aws
    from slurm_cluster.runtime.node.instance_metadata import InstanceMetadata

    return parameters.cluster(Aws(InstanceMetadata().region).ssm, who.parameter_path).head_host
