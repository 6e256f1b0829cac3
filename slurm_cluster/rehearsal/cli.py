"""Rehearse a CDK app on this machine, without an AWS account.

run     deploy the app to an emulated AWS, boot its machines, run the smoke test, destroy, remove everything
up      deploy the app and keep it until ``down``
status  show the sessions that live on this machine and their nodes
shell   open a shell on a node
exec    run a program on a node
down    remove a session

NODE is a node name (the head node is ``head``), an instance id or the Name tag of an instance.

Exit status: 0 if all went well; of ``run`` only if the smoke test passed and nothing is left, of ``up`` if every node
is ready. 1 if not; 2 for wrong arguments; 128 + the signal's number after SIGINT, SIGTERM or SIGHUP. ``shell`` and
``exec`` end with the status of what they ran.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slurm_cluster.rehearsal import detached, owner, visit
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.interrupts import Interrupted
from slurm_cluster.rehearsal.owner import Plan, Verb
from slurm_cluster.rehearsal.sessions import choose, living

_DEFAULT_HOURS = 12.0
_DOWN_SECONDS = 180.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except Interrupted as interrupted:
        print(f"rehearsal {interrupted}; everything it made is removed", file=sys.stderr)
        return 128 + interrupted.number
    except Exception as error:
        print(f"rehearsal failed: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slurm_cluster.rehearsal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="deploy, boot, run srun hostname on every static node, remove everything")
    run.set_defaults(command=_run, verb=Verb.RUN)
    up = commands.add_parser("up", help="deploy, boot, and keep it until down")
    up.set_defaults(command=_run, verb=Verb.UP)
    for deploying in (run, up):
        _add_deploy_options(deploying)

    status = commands.add_parser("status", help="show the sessions on this machine and their nodes")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(command=lambda arguments: _status(as_json=arguments.json))

    shell = commands.add_parser("shell", help="open a shell on a node")
    shell.set_defaults(command=lambda arguments: _visit(arguments, []))
    execute = commands.add_parser("exec", help="run a program on a node")
    execute.set_defaults(command=lambda arguments: _visit(arguments, _program(execute, arguments.program)))
    for visiting in (shell, execute):
        _add_session_option(visiting)
        visiting.add_argument("-u", "--user", default="root", help="who to be on the node (default: root)")
        visiting.add_argument("node", metavar="NODE")
    execute.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT ...]")

    down = commands.add_parser("down", help="remove a session and everything of it")
    _add_session_option(down)
    down.add_argument("--all", action="store_true", help="every session on this machine")
    down.set_defaults(command=_down)
    return parser


def _add_deploy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", type=Path, default=Path(), metavar="DIR", help="directory of the app (default: here)")
    parser.add_argument(
        *("-c", "--context"),
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="CDK context of the app, as of cdk deploy; may be repeated",
    )
    parser.add_argument(
        "--image",
        type=ImageKind,
        choices=list(ImageKind),
        default=ImageKind.BAKED,
        metavar="{baked,stock}",
        help="baked (default): packages are in the nodes' image; stock: nodes install them, as on EC2",
    )
    parser.add_argument(
        "--keep-on-failure",
        action="store_true",
        help="keep what failed, to be looked into by status, shell and exec until down",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    parser.add_argument("--timeline", type=Path, metavar="FILE.svg", help="draw what took how long there")
    parser.add_argument(
        "--hours",
        type=_positive,
        default=_DEFAULT_HOURS,
        help=f"how long a session that is kept lives at most (default: {_DEFAULT_HOURS:g})",
    )


def _add_session_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", metavar="ID", help="as status shows it; needed only where several live")


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _program(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    program = words[1:] if words[:1] == ["--"] else words
    if not program:
        parser.error("give the program after --, as in: exec head -- sinfo")
    if words[0].startswith("-") and words[:1] != ["--"]:
        parser.error(f"{words[0]} comes after NODE, where the program begins: give options before NODE")
    return program


def _say(line: str) -> None:
    print(line, flush=True)


def _run(arguments: argparse.Namespace) -> int:
    plan = Plan(
        verb=arguments.verb,
        app_dir=arguments.app.resolve(),
        context=dict(arguments.context),
        image=arguments.image,
        keep_on_failure=arguments.keep_on_failure,
        json=_fresh(arguments.json),
        timeline=_fresh(arguments.timeline),
        hours=arguments.hours,
    )
    if plan.verb is Verb.UP or plan.keep_on_failure:
        return detached.perform(plan, lambda text: print(text, end="", flush=True))
    owner.perform(plan, _say)
    return 0


def _fresh(path: Path | None) -> Path | None:
    """Return the absolute path of a file to be written, not there yet; a mistake shall not show minutes later."""
    if path is None:
        return None
    absolute = path.resolve()
    if absolute.is_dir() or not absolute.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: give a file in a directory that exists")
    if absolute.is_file():
        absolute.unlink()  # a rehearsal that ends before its report would leave that of an earlier one
    return absolute


def _status(*, as_json: bool) -> int:
    sessions = living()
    if as_json:
        print(json.dumps([visit.as_dict(session) for session in sessions], indent=2))
    elif not sessions:
        print("no session lives on this machine")
    else:
        for session in sessions:
            for line in visit.lines(session):
                print(line)
    return 0


def _visit(arguments: argparse.Namespace, program: list[str]) -> int:
    machine = choose(arguments.session).machine(arguments.node)
    return visit.enter(machine.pid1, arguments.user, program)


def _down(arguments: argparse.Namespace) -> int:
    for session in living() if arguments.all else [choose(arguments.session)]:
        session.end(_DOWN_SECONDS)
        print(f"session {session.id} is removed")
    return 0
