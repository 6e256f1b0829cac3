"""Prove that the connections Slurm opens are let through, from CloudFormation templates or in a live account.

TEMPLATE   CloudFormation in JSON or YAML, whoever wrote it; several that belong together: nested stacks, stacks that
           import from each other. Head and workers are guessed where you do not name them, and the guess is shown.

Exit status: 0 if every connection is let through; 1 if one is closed, with --strict also if a rule lets in more than
Slurm needs; 2 if something is unknown or the input cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_cluster.model.flows import UNPRIVILEGED_TCP, PortRange, SlurmPorts
from slurm_cluster.reachability import picture, sarif, table
from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.proof import Proof
from slurm_cluster.reachability.prover import prove, prove_network
from slurm_cluster.reachability.templates import load

_PROVEN, _CLOSED, _UNKNOWN = 0, 1, 2
_FORMATS = ("table", "json", "sarif", "svg")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if problem := _problem(arguments):
        parser.error(problem)
    try:
        proof = _proof(arguments)
        _write(_rendered(proof, arguments), arguments.output)
    except InputError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return _UNKNOWN
    return exit_status(proof, strict=arguments.strict)


def exit_status(proof: Proof, *, strict: bool) -> int:
    """Return 0 for a proof, 1 where something is certainly wrong, 2 where nobody can tell."""
    if proof.closed:
        return _CLOSED
    if proof.unknown:
        return _UNKNOWN
    return _CLOSED if strict and proof.wider else _PROVEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slurm_cluster.reachability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE", help="a template's file")
    parser.add_argument(
        "--parameter",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="value of a template parameter, over its default; may be repeated",
    )
    roles = parser.add_argument_group("who is what")
    roles.add_argument(
        "--head",
        action="append",
        metavar="ID",
        help="logical id (or sg-..., i-...) of the head node's security group or instance; may be repeated",
    )
    roles.add_argument(
        "--workers",
        action="append",
        metavar="ID",
        help="the same of the workers, also a launch template or auto scaling group; may be repeated",
    )
    roles.add_argument(
        "--srun-ports",
        type=_ports,
        default=UNPRIVILEGED_TCP,
        metavar="FIRST-LAST",
        help=f"SrunPortRange of your slurm.conf; without one, srun takes any of {UNPRIVILEGED_TCP} (default)",
    )
    daemons = SlurmPorts()
    roles.add_argument("--slurmctld-port", type=_port, default=daemons.slurmctld, metavar="PORT", help="SlurmctldPort")
    roles.add_argument("--slurmd-port", type=_port, default=daemons.slurmd, metavar="PORT", help="SlurmdPort")
    live = parser.add_argument_group("a live account, in place of templates (needs boto3 and read access to EC2)")
    live.add_argument("--stack", metavar="NAME", help="a CloudFormation stack and what is nested in it")
    live.add_argument("--instance-ids", nargs="+", metavar="ID", help="instances of the cluster, the head's among them")
    live.add_argument("--region", metavar="REGION", help="its Region; by default that of your AWS configuration")
    output = parser.add_argument_group("what to show")
    output.add_argument("--format", choices=_FORMATS, default="table", help="default: table")
    output.add_argument("--output", type=Path, metavar="FILE", help="write there; by default to standard output")
    output.add_argument("--strict", action="store_true", help="fail also where a rule lets in more than Slurm needs")
    return parser


def _problem(arguments: argparse.Namespace) -> str | None:
    live = [name for name in ("stack", "instance_ids") if getattr(arguments, name)]
    options = [f"--{name.replace('_', '-')}" for name in live]
    if arguments.templates and live:
        return f"templates and {' and '.join(options)} were given: give templates, or what to look at in the account"
    if not arguments.templates and not live:
        return "no template was given: give one or more files, or --stack or --instance-ids for a live account"
    if len(live) > 1:
        return "--stack and --instance-ids were given: give one of them"
    if live and arguments.parameter:
        return f"--parameter was given with {options[0]}: a live account has its values, leave --parameter out"
    if arguments.region and not live:
        return "--region was given with templates: it is for --stack and --instance-ids, leave it out"
    return None


def _proof(arguments: argparse.Namespace) -> Proof:
    ports = SlurmPorts(slurmctld=arguments.slurmctld_port, slurmd=arguments.slurmd_port, srun=arguments.srun_ports)
    head, workers = _ids(arguments.head), _ids(arguments.workers)
    if arguments.templates:
        templates = load(arguments.templates, dict(arguments.parameter))
        return prove(templates, head=head, workers=workers, ports=ports)
    try:
        # templates need no boto3
        from slurm_cluster.reachability import live
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed, which asks AWS: pip install boto3, or give templates"
        ) from error

    network = live.read(stack=arguments.stack, instance_ids=arguments.instance_ids or (), region=arguments.region)
    return prove_network(network, head=head, workers=workers, ports=ports)


def _ids(values: Sequence[str] | None) -> list[str] | None:
    return [item for value in values for item in value.split(",") if item] if values else None


def _rendered(proof: Proof, arguments: argparse.Namespace) -> str:
    title = _title(arguments)
    if arguments.format == "json":
        return json.dumps(proof.to_dict(), indent=2) + "\n"
    if arguments.format == "sarif":
        return sarif.render(proof, _sources(arguments.templates))
    if arguments.format == "svg":
        return picture.render(proof, title=title)
    return table.render(proof, title=title, colour=_is_for_a_terminal(arguments.output))


def _title(arguments: argparse.Namespace) -> str:
    if arguments.stack:
        return f"stack {arguments.stack}"
    return ", ".join(arguments.instance_ids or arguments.templates)


def _sources(templates: Sequence[str]) -> Mapping[str, str]:
    return {name: Path(name).read_text(encoding="utf-8") for name in templates}


def _is_for_a_terminal(output: Path | None) -> bool:
    # https://no-color.org
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--output {output} cannot be written: {error.strerror}; give a file in a folder that exists"
        ) from error


def _key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as VpcCidr=10.0.0.0/16")
    return key, value


def _port(text: str) -> int:
    ports = _ports(text)
    if ports.first != ports.last:
        raise argparse.ArgumentTypeError(f"{text!r} is not one port: give a number from 1 to 65535")
    return ports.first


def _ports(text: str) -> PortRange:
    try:
        return PortRange.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not FIRST-LAST, such as 61000-63999, of ports to 65535"
        ) from error
