"""The doctor's part on a worker: facts, and connections tried while the others try theirs.

It is started by ``payload.script``, with what it needs in environment variables, and answers with one JSON object: on
standard output by ssh; from a batch job over a connection to the doctor, and where that is closed as the comment of the
job. A comment holds 1,024 characters, so the answer comes in pieces; the head takes each and puts ``ACK`` in its place.
That needs no connection but the one that every command of Slurm needs.
"""

from __future__ import annotations

import base64
import json
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slurm_cluster.doctor import answers
from slurm_cluster.model.flows import PortRange
from slurm_cluster.runtime.node import host_facts, probe_connections, probe_facts, slurm_facts
from slurm_cluster.runtime.node.commands import CommandError, Runner, run

FACT_SECONDS = 8.0
SPOOL = "/var/spool/slurmd"
NO_INTERPRETER, NO_SCONTROL, NOT_HEARD = 40, 41, 42
"""Exit statuses: nothing could find out anything there; the answer could not be given back."""

_PAUSE = 0.3
_ACK_SECONDS = 20.0
_UPDATE_SECONDS = 25.0


def main(request: Mapping[str, str]) -> int:
    """Find out, answer, and return the exit status."""
    found = examine(request, run)
    if "DOCTOR_JOB" not in request:
        print(json.dumps(found))
        return 0
    text = json.dumps(found, separators=(",", ":"))
    return 0 if hand_over(text, request) else send(text, request["SLURM_JOB_ID"], run)


def examine(request: Mapping[str, str], run: Runner) -> dict[str, Any]:
    """Return ``facts`` about this machine and ``meet``, what it found out about others."""
    head, wanted = request["DOCTOR_HEAD"], float(request["DOCTOR_SECONDS"])
    reference = base64.b64decode(request.get("DOCTOR_CONF", "")).decode().splitlines()
    listen, watch = (_numbers(request[name]) for name in ("DOCTOR_LISTEN", "DOCTOR_WATCH"))
    targets = [probe_connections.target(text) for text in request["DOCTOR_CONNECT"].split()]
    spool = request.get("DOCTOR_SPOOL") or SPOOL
    paths = [path for path in host_facts.written(spool) if Path(path).exists()]
    facts: dict[str, Callable[[], Any]] = {
        "hostname": socket.gethostname,
        "address": lambda: host_facts.address_towards(head),
        "addresses": host_facts.addresses,
        "status": probe_facts.status,
        "release": lambda: run(["slurmd", "-V"], timeout=FACT_SECONDS).stdout.strip(),
        **host_facts.of_file_systems(paths),
        "configuration": lambda: slurm_facts.configuration(run, reference),
        "ssm_agent": lambda: probe_facts.ssm_agent(run),
    }
    if "DOCTOR_JOB" not in request:
        # what runs a job has no need to be asked how it is
        log = request.get("DOCTOR_LOG", "")
        facts["munge"] = lambda: slurm_facts.daemon(run, "munge", process="munged")
        facts["slurm"] = lambda: slurm_facts.daemon(run, "slurmd", log=log)
        facts["listening"] = lambda: host_facts.listening("slurmd")
        facts["log"] = lambda: slurm_facts.errors(run, "slurmd", log)
    meet: dict[str, Callable[[], Any]] = {
        "meeting": lambda: probe_connections.meet(listen, targets, seconds=wanted, watch=watch),
        "names": lambda: {name: probe_facts.resolve(run, name) for name in request["DOCTOR_RESOLVE"].split()},
    }
    if request.get("DOCTOR_CREDENTIAL"):
        meet["credential"] = lambda: probe_facts.decode(run, request["DOCTOR_CREDENTIAL"])
    if narrow := request.get("DOCTOR_SRUN"):
        # before the meeting takes some of them
        free = host_facts.free_ports(PortRange.parse(narrow))
        facts["srun_ports"] = lambda: free
    both = probe_facts.gather(
        {**{f"facts:{name}": fact for name, fact in facts.items()}, **{f"meet:{k}": v for k, v in meet.items()}},
        seconds=max(FACT_SECONDS, wanted + 4),
    )
    result: dict[str, Any] = {"facts": {}, "meet": {}}
    for name, value in both.items():
        kind, _, rest = name.partition(":")
        result[kind][rest] = value
    result["facts"]["time"] = time.time()
    return result


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def hand_over(text: str, request: Mapping[str, str]) -> bool:
    """Give an answer to the head over a connection of its own; return whether it took it, see ``Collector``."""
    if not request.get("DOCTOR_RETURN"):
        return False
    to, data = probe_connections.target(request["DOCTOR_RETURN"]), text.encode()
    try:
        with socket.create_connection((to.host, to.port), timeout=probe_connections.ATTEMPT_SECONDS) as connection:
            connection.sendall(f"{request['DOCTOR_TOKEN']} {request['DOCTOR_NODE']} {len(data)}\n".encode() + data)
            return connection.recv(64) != b""
    except OSError:
        return False


def send(text: str, job: str, run: Runner, *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Give an answer to the head as the comment of a job; return the exit status for it."""
    pieces = answers.pieces(base64.b64encode(zlib.compress(text.encode(), 9)).decode())
    for piece in pieces:
        try:
            done = run(["scontrol", "update", f"JobId={job}", f"Comment={piece}"], check=False, timeout=_UPDATE_SECONDS)
        except CommandError as problem:
            return NO_SCONTROL if "No such file" in str(problem) else NOT_HEARD
        if done.returncode != 0 or not _taken(piece, job, run, sleep):
            return NOT_HEARD
    return 0


def _taken(piece: str, job: str, run: Runner, sleep: Callable[[float], None]) -> bool:
    deadline = time.monotonic() + _ACK_SECONDS
    while time.monotonic() < deadline:
        shown = run(["scontrol", "--oneliner", "show", "job", job], check=False, timeout=_UPDATE_SECONDS).stdout
        if answers.comment(shown) == answers.ACK:
            return True
        sleep(_PAUSE)
    return False
