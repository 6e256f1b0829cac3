"""``slurm-cluster probe``: facts about this machine and its connections, for whoever has to say what is wrong.

It judges nothing and changes nothing. Each fact has a time limit of its own, and one that cannot be had is no obstacle
to the others.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from slurm_cluster.runtime.node import identity, probe_connections, probe_facts
from slurm_cluster.runtime.node.commands import Runner
from slurm_cluster.runtime.node.probe_facts import gather

if TYPE_CHECKING:
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(commands: Commands) -> None:
    """Add the command to those of ``slurm-cluster``."""
    parser = commands.add_parser("probe", help="print facts about this machine and its connections as JSON")
    parser.add_argument("--status", action="store_true", help="only how far bootstrap is")
    parser.add_argument("--credential", metavar="TEXT", help="decode a munge credential of another machine")
    parser.add_argument("--resolve", nargs="+", default=[], metavar="NAME", help="look names up as Slurm does")
    parser.add_argument("--listen", nargs="+", default=[], type=int, metavar="PORT", help="accept TCP connections")
    parser.add_argument("--watch", nargs="+", default=[], type=int, metavar="PORT", help="see whether SYNs arrive")
    parser.add_argument("--connect", nargs="+", default=[], metavar="HOST:PORT", help="try TCP connections")
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long to listen and to try to connect (default: 20)"
    )


def probe(options: argparse.Namespace, run: Runner) -> int:
    """Print what was asked for as one JSON object, everything about this machine if nothing was."""
    asked: dict[str, Callable[[], Any]] = {}
    if options.status:
        asked["status"] = probe_facts.status
    if options.credential:
        asked["credential"] = lambda: probe_facts.decode(run, options.credential)
    if options.resolve:
        asked["names"] = lambda: {name: probe_facts.resolve(run, name) for name in options.resolve}
    if options.listen or options.watch or options.connect:
        targets = [probe_connections.target(text) for text in options.connect]
        asked["meeting"] = lambda: probe_connections.meet(
            options.listen, targets, seconds=options.seconds, watch=options.watch
        )
    print(json.dumps(gather(asked or probe_facts.all_of(run, identity.read()))))
    return 0
