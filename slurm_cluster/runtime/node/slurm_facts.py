"""What Slurm on a machine says of itself, whoever set it up: configuration, daemons, logs."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from slurm_cluster.model.flows import ALL_TCP, UNPRIVILEGED_TCP, PortRange, SlurmPorts
from slurm_cluster.runtime.node import probe_facts
from slurm_cluster.runtime.node.commands import CommandError, Runner

_SECONDS = 15
_LOG_BYTES = 256 * 1024
_LINE_LENGTH = 300
_SETTING = re.compile(r"^(\S+)\s+= (.*)$", re.MULTILINE)
_HASH = re.compile(r"^Different Ours=(\S+) Slurmctld=(\S+)")
_STAMP = re.compile(r"^\[?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?\]?\s*")
_JOURNAL_COMMAND = ("journalctl", "--boot", "--lines=2000", "--output=json", "--no-pager", "--quiet")
_MOST_DIFFERENCES = 3
_LAST_WORDS = 5


def settings(run: Runner) -> dict[str, str]:
    """Return the configuration that slurmctld uses, ``scontrol show config``; empty where it does not answer."""
    done = run(["scontrol", "show", "config"], check=False, timeout=_SECONDS)
    return dict(_SETTING.findall(done.stdout)) if done.returncode == 0 else {}


def local_settings(path: Path) -> dict[str, str]:
    """Return the settings of slurm.conf itself, in the spelling of the file, records such as NodeName left out."""
    found = {}
    for line in meaningful(path.read_text(errors="replace")):
        key, _, value = line.partition("=")
        if key.strip().lower() not in ("nodename", "partitionname", "nodeset", "downnodes"):
            found[key.strip()] = value.strip()
    return found


def slurm_conf() -> Path:
    """Return the file that Slurm's commands read here: ``SLURM_CONF``, which a job has from slurmd, or the usual."""
    named = os.environ.get("SLURM_CONF")
    usual = [Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"), Path("/opt/slurm/etc/slurm.conf")]
    if named:
        return Path(named)
    return next((path for path in usual if path.exists()), usual[0])


def value(found: Mapping[str, str], name: str) -> str:
    """Return a setting, empty where it has none; names are looked up whatever their case, units are cut off."""
    text = next((text for key, text in found.items() if key.lower() == name.lower()), "")
    return "" if text in ("(null)", "N/A") else text


def ports(found: Mapping[str, str]) -> SlurmPorts:
    """Return the ports of a cluster with these settings; for one that is no port, what Slurm takes without it.

    With such a setting slurmctld does not start, and then it has to be found out why.
    """

    def first(name: str, default: int) -> int:
        numbers = re.findall(r"\d+", value(found, name))
        return int(numbers[0]) if numbers and 0 < int(numbers[0]) <= ALL_TCP.last else default

    plain = SlurmPorts()
    narrow = re.fullmatch(r"(\d+)-(\d+)", value(found, "SrunPortRange"))
    bounds = (int(narrow[1]), int(narrow[2])) if narrow else (0, 0)
    srun = PortRange(*bounds) if 0 < bounds[0] <= bounds[1] <= ALL_TCP.last else UNPRIVILEGED_TCP
    slurmctld, slurmd = first("SlurmctldPort", plain.slurmctld), first("SlurmdPort", plain.slurmd)
    return SlurmPorts(slurmctld=slurmctld, slurmd=slurmd, srun=srun)


def meaningful(text: str) -> list[str]:
    """Return the lines of slurm.conf that say something, in one spelling of blanks."""
    lines = (re.sub(r"(?<!\\)#.*", "", line).strip() for line in text.splitlines())
    return [" ".join(line.split()) for line in lines if line]


def configuration(run: Runner, reference: Iterable[str] = ()) -> dict[str, Any] | None:
    """Return whether slurm.conf here is the one that slurmctld runs with, by Slurm's own hash; None if it does not say.

    Args:
        run: runs programs.
        reference: lines of slurmctld's file, to say what differs.

    Returns:
        ``match``, and where it does not: ``file`` and ``differences``, ``+`` for a line that only this machine has.
    """
    said = value(settings(run), "HASH_VAL")
    if not said:
        return None
    if not _HASH.match(said):
        return {"match": True}
    path = slurm_conf()
    ours, theirs = meaningful(path.read_text(errors="replace")), list(reference)
    differences = [f"+ {line}" for line in ours if line not in theirs] + [
        f"- {line}" for line in theirs if line not in ours
    ]
    shown = [line[:100] for line in differences[:_MOST_DIFFERENCES]] if theirs else []
    return {"match": False, "file": str(path), "differences": shown}


def daemon(run: Runner, name: str, *, process: str = "", log: str = "") -> dict[str, str]:
    """Return what became of a daemon, as ``probe_facts.unit`` does; also of one that no systemd started.

    Args:
        run: runs programs.
        name: of its unit, without the ending.
        process: of its program, by default the same.
        log: file whose end tells why it is not there.
    """
    state = process_state(process or name)
    try:
        unit = probe_facts.unit(run, f"{name}.service")
        known = unit["file"] or unit["active"] == "active"
    except CommandError:
        unit, known = dict[str, str](), False
    if state in ("T", "t"):
        return {"active": "stopped", "sub": "by a signal", "result": "-", "file": "", "journal": ""}
    if state and state != "Z":
        return {"active": "active", "sub": "running", "result": "success", "file": unit.get("file", ""), "journal": ""}
    if known:
        return unit
    return {"active": "inactive", "sub": "no process", "result": "-", "file": "", "journal": last_error(log)}


def process_state(name: str, proc: Path = Path("/proc")) -> str:
    """Return the state letter of the first process of that name, see proc(5); empty if there is none.

    Those inside containers are another machine's.
    """
    for status in sorted(proc.glob("[0-9]*/stat")):
        try:
            if _namespace(status.parent) not in ("", _namespace(proc / "self")):
                continue
            command, _, rest = status.read_text(errors="replace").partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has ended
        # Debian's programs have a name of their own behind the usual one
        if command in (name, f"{name}-wlm"):
            return rest.split()[0]
    return ""


def _namespace(process: Path) -> str:
    """Return the process namespace of a process, empty where only its owner may know."""
    try:
        return str((process / "ns" / "pid").readlink())
    except PermissionError:
        return ""


def log_lines(run: Runner, daemon: str, path: str, *, seconds: float) -> list[tuple[float, str]]:
    """Return what a daemon has logged in the last ``seconds``, as (time, line): from its file, or else the journal.

    Lines without a time stamp of their own get that of the line before.
    """
    if path and Path(path).is_file():
        lines = list(_stamped(_end(path)))
    else:
        done = run([*_JOURNAL_COMMAND, f"--identifier={daemon}"], check=False, timeout=_SECONDS)
        lines = list(_journal(done.stdout.splitlines()))
    return [(when, line) for when, line in lines if when >= time.time() - seconds]


def errors(run: Runner, daemon: str, path: str) -> list[str]:
    """Return the last errors that a daemon has logged in ten minutes, each once."""
    lines = [line for _, line in log_lines(run, daemon, path, seconds=600) if re.search(r"error|fatal", line)]
    return [line[:_LINE_LENGTH] for line in dict.fromkeys(lines)][-_LAST_WORDS:]


def last_error(path: str) -> str:
    """Return the error with which a log file ends, or else its last line; empty if it cannot be read."""
    try:
        lines = _end(path)
    except OSError:
        return ""
    end = [line.strip()[-_LINE_LENGTH:] for line in lines[-_LAST_WORDS:] if line.strip()]
    return next((line for line in reversed(end) if re.search(r"error|fatal", line)), end[-1] if end else "")


def _end(path: str) -> list[str]:
    """Return the last lines of a file."""
    with Path(path).open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_BYTES))
        return stream.read().decode(errors="replace").splitlines()


def _stamped(lines: Iterable[str]) -> Iterable[tuple[float, str]]:
    when = 0.0
    for line in lines:
        stamp = _STAMP.match(line)
        if stamp:
            when = datetime.fromisoformat(stamp[1]).timestamp()
        yield when, line[stamp.end() if stamp else 0 :]


def _journal(lines: Iterable[str]) -> Iterable[tuple[float, str]]:
    for line in lines:
        try:
            entry = json.loads(line)
            yield int(entry["__REALTIME_TIMESTAMP"]) / 1e6, str(entry["MESSAGE"])
        except (ValueError, KeyError, TypeError):
            continue
