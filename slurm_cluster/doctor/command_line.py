"""``slurm-doctor``: its options, and its exit status."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from slurm_cluster.doctor import table
from slurm_cluster.doctor.examination import Doctor, Examination, Options
from slurm_cluster.doctor.probes import rows
from slurm_cluster.doctor.report import UNSURE, Report
from slurm_cluster.model.node_files import OVERRIDE_DIR
from slurm_cluster.runtime.node.commands import Runner, run
from slurm_cluster.runtime.verdict import findings

_SLURM_FOLDERS = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/slurm/bin",
    "/opt/slurm/sbin",
)
_EPILOG = """\
exit status: 0 healthy; 1 a fault was found; 2 it could not be told, or this was not asked rightly
Run it as root on the machine of slurmctld. As another user it looks at less, and says at what not.
"""


def start() -> None:
    """Run the command and end the process, whatever still waits for a dead file server."""
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has read enough
        status = UNSURE
    os._exit(status)


def main(arguments: Sequence[str], run: Runner = run) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    os.environ["PATH"] = os.pathsep.join(
        dict.fromkeys((*os.environ.get("PATH", "").split(os.pathsep), *_SLURM_FOLDERS))
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    began = time.monotonic()
    nodes = table.expanded(run, options.nodes)
    doctor = Doctor(run, Options(nodes=nodes, most=options.most, user=options.user, ssh=options.ssh))
    try:
        found = doctor.examine()
    except KeyboardInterrupt:
        print("slurm-doctor: stopped; its jobs are cancelled", file=sys.stderr)
        return UNSURE
    faults = findings(found.evidence)
    report = Report(
        faults=faults, rows=rows(found, faults), notes=_notes(found), seconds=round(time.monotonic() - began, 1)
    )
    if options.evidence:
        try:
            with open(options.evidence, "w") as stream:  # noqa: PTH123 - may be /dev/stdout
                json.dump(found.evidence.to_dict(), stream, indent=1)
        except OSError as problem:
            print(f"slurm-doctor: {options.evidence} cannot be written: {problem.strerror}", file=sys.stderr)
    print(json.dumps(report.to_dict(), indent=1) if options.json else report.text())
    return report.status


def _stop(number: int, frame: FrameType | None) -> None:
    """End as by Ctrl-C, so that jobs are cancelled."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-doctor",
        description="Say what is wrong with the Slurm cluster whose slurmctld runs on this machine. Changes nothing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "nodes", nargs="*", metavar="NODE", help="look at these nodes only (default: all); node[1-3] is allowed"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--most", type=_positive, default=8, metavar="N", help="workers to ask (default: 8)")
    parser.add_argument("--user", type=_user, default="", help="submit jobs as this user, where root may not")
    parser.add_argument("--ssh", action="store_true", help="enter nodes by ssh on which no job can run")
    parser.add_argument("--evidence", metavar="FILE", help="also write all that was found out, as JSON")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not allowed: give 1 or more")
    return number


def _user(text: str) -> str:
    try:
        if text:
            pwd.getpwnam(text)
    except KeyError:
        raise argparse.ArgumentTypeError(f"there is no user {text!r} on this machine") from None
    return text


def _notes(found: Examination) -> list[str]:
    notes = []
    if shutil.which("scontrol") is None:
        notes.append(
            "No scontrol is on this machine: is it that of slurmctld? Slurm in a folder of its own must be in PATH."
        )
    if not found.root:
        notes.append(
            "Not root: packets and other users' files could not be looked at. A blocked connection is still found, but "
            "not whether a host or the network drops it."
        )
    overrides = sorted(OVERRIDE_DIR.glob("*")) if OVERRIDE_DIR.is_dir() else []
    if overrides:
        notes.append(f"The site's own settings are added to the rendered files: {', '.join(map(str, overrides))}.")
    return notes
