"""Command line of the rehearsal.

``run`` deploys the app to an emulated AWS on this machine, boots its nodes, runs the smoke test and removes everything.
Exit status: 0 only if the smoke test passed and nothing is left; 1 if not; 2 for wrong arguments; 128 + the signal's
number after SIGINT, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm_cluster.rehearsal import cgroups, report
from slurm_cluster.rehearsal.image import replaced
from slurm_cluster.rehearsal.interrupts import Interrupted
from slurm_cluster.rehearsal.session import Rehearsal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments.app, dict(arguments.context))
    except Interrupted as interrupted:
        print(f"rehearsal {interrupted}; everything it made is removed", file=sys.stderr)
        return 128 + interrupted.number
    except Exception as error:
        print(f"rehearsal failed: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m slurm_cluster.rehearsal", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="deploy, boot, run srun hostname on every static node, remove everything")
    run.add_argument("--app", type=Path, default=Path(), metavar="DIR", help="directory of cdk.json (default: here)")
    run.add_argument(
        *("-c", "--context"),
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="CDK context of the app, as of cdk deploy; may be repeated",
    )
    return parser


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _say(line: str) -> None:
    print(line, flush=True)


def _run(app_dir: Path, context: dict[str, str]) -> int:
    if not (app_dir / "cdk.json").is_file():
        raise FileNotFoundError(f"{app_dir.resolve()} has no cdk.json: give the app's directory with --app")
    with Rehearsal.deployed(app_dir, context=context, emit=_say) as rehearsal:
        result = rehearsal.smoke_test()
        for line in report.smoke_test_lines(result):
            _say(line)
        refused = rehearsal.refused()
        differences = rehearsal.differences()
        if not result.passed:
            rehearsal.explain()
        rehearsal.destroy()
    for line in (
        *report.timeline_lines(rehearsal.progress.spans()),
        *refused,
        *report.limits_lines(replaced(cgroups.version()), differences),
    ):
        _say(line)
    _say("passed; nothing is left" if result.passed else "FAILED: the smoke test did not pass")
    return 0 if result.passed else 1
