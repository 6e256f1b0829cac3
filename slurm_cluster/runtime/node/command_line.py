"""The commands of ``slurm-cluster`` and what each of them needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from slurm_cluster.model.flows import Role
from slurm_cluster.runtime.node import (
    apply,
    bootstrap,
    bundle,
    daemons,
    gate,
    identity,
    instances,
    names,
    parameters,
    probe,
    smoke_test,
)
from slurm_cluster.runtime.node.commands import run
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.status import Status


def main(arguments: list[str]) -> int:
    """Run one command; return its exit status."""
    options = _parser().parse_args(arguments)
    if options.command == "probe":
        return probe.probe(options, run)
    node = bootstrap.Node(identity.read())

    def again() -> None:
        bundle.run_again(arguments)

    if options.command == "bootstrap":
        return bootstrap.bootstrap(node, Status(), again=again)
    if options.command == "names":
        return _names(node)
    _require_head(node.identity, options.command)
    if options.command == "apply":
        print(json.dumps(_apply(node, again)))
        return 0
    if options.command == "gate":
        return _gate(node, options, again)
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
    entrance = commands.add_parser(
        "gate", help="head: apply, wait for the workers and run the smoke test, once a request"
    )
    entrance.add_argument("--request-id", required=True, metavar="ID", help="the same id is answered without new work")
    entrance.add_argument("--phase", required=True, choices=("create", "update"))
    entrance.add_argument(
        "--on-update", default=gate.OnUpdate.FREE.value, choices=[item.value for item in gate.OnUpdate]
    )
    entrance.add_argument(
        "--wait", type=float, default=300, metavar="SECONDS", help="for bootstrap and workers (default: 300)"
    )
    entrance.add_argument(
        "--limit",
        type=int,
        default=smoke_test.LIMIT_SECONDS,
        metavar="SECONDS",
        help=f"after which a launch has failed (default: {smoke_test.LIMIT_SECONDS})",
    )
    entrance.add_argument(
        "--apply-only", action="store_true", help="pass when the configuration is applied, without any test"
    )
    probe.add_parser(commands)
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


def _apply(node: bootstrap.Node, again: Callable[[], None]) -> dict[str, Any]:
    if bootstrap.use_named_bundle(node):
        again()
    applied = apply.apply(
        run,
        node.aws.ssm,
        node.aws.ec2,
        parameter_path=node.identity.parameter_path,
        spec=node.spec,
        head=node.head_facts,
    )
    daemons.wait_for_slurmctld(run)
    return applied.to_dict()


def _gate(node: bootstrap.Node, options: argparse.Namespace, again: Callable[[], None]) -> int:
    with gate.request(options.request_id) as request:
        result = request.result
        if result is None:
            cluster = gate.Cluster(
                run=run,
                job_user=lambda: node.spec.job_user,
                apply=lambda: _apply(node, again),
                partitions=lambda: parameters.partitions(node.aws.ssm, node.identity.parameter_path),
                addresses=lambda: instances.worker_addresses(node.aws.ec2, node.spec.cluster_id),
            )
            free_only = (options.phase, options.on_update) == ("update", gate.OnUpdate.FREE)
            passage = gate.Gate(
                cluster,
                free_only=free_only,
                wait_seconds=options.wait,
                limit=options.limit,
                apply_only=options.apply_only,
            )
            result = passage.pass_through()
            request.keep(result)
    print(gate.text({"request_id": options.request_id, "phase": options.phase, **result}))
    return 0 if result["passed"] else 1
