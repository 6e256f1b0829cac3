"""The commands of ``slurm-cluster`` and what each of them needs."""

from __future__ import annotations

import argparse
import json

from slurm_cluster.model.flows import Role
from slurm_cluster.runtime.node import (
    apply,
    bootstrap,
    bundle,
    daemons,
    identity,
    names,
    parameters,
    smoke_test,
)
from slurm_cluster.runtime.node.commands import run
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.status import Status


def main(arguments: list[str]) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
    node = bootstrap.Node(identity.read())

    def again() -> None:
        bundle.run_again(arguments)

    if options.command == "bootstrap":
        return bootstrap.bootstrap(node, Status(), again=again)
    if options.command == "names":
        return _names(node)
    _require_head(node.identity, options.command)
    if options.command == "apply":
        if bootstrap.use_named_bundle(node):
            again()
        return _apply(node)
    partitions = parameters.partitions(node.aws.ssm, node.identity.parameter_path)
    result = smoke_test.smoke_test(run, node.spec.job_user, partitions, wait_seconds=options.wait)
    print(json.dumps(result.to_dict()))
    return 0 if result.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("bootstrap", help="make this machine a serving node; runs at each boot")
    commands.add_parser("apply", help="head: make Slurm's configuration what the stack says")
    commands.add_parser("names", help="keep the cluster's names in /etc/hosts current; runs as a service")
    commands.add_parser("prolog", help="make the names of a job's nodes resolve; run by slurmd")
    smoke = commands.add_parser("smoke-test", help="head: prove that jobs run on every static worker")
    smoke.add_argument(
        "--wait", type=float, default=300, metavar="SECONDS", help="how long to wait for idle workers (default: 300)"
    )
    return parser


def _require_head(who: identity.NodeIdentity, command: str) -> None:
    if who.role is not Role.HEAD:
        raise NodeError(f"{command} runs on the head, this is worker {who.node_name}")


def _names(node: bootstrap.Node) -> int:
    if node.identity.role is Role.HEAD:
        names.serve_head(run, node.spec, node.address)
    else:
        names.serve_worker(run, node.spec, node.node_name, node.address)
    return 0


def _apply(node: bootstrap.Node) -> int:
    applied = apply.apply(
        run,
        node.aws.ssm,
        node.aws.ec2,
        parameter_path=node.identity.parameter_path,
        spec=node.spec,
        head=node.head_facts,
    )
    daemons.wait_for_slurmctld(run)
    print(json.dumps(applied.to_dict()))
    return 0
