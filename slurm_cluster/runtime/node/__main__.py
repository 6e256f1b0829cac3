"""``slurm-cluster``: the programs of a node."""

from __future__ import annotations

import os
import sys

from slurm_cluster.runtime.node import prolog
from slurm_cluster.runtime.node.commands import run
from slurm_cluster.runtime.node.errors import NodeError


def main(arguments: list[str]) -> int:
    """Run one command; return its exit status."""
    if arguments == ["prolog"]:
        prolog.run_prolog(run, os.environ)
        return 0
    # Every start of a job waits for the prolog: only the other commands load boto3.
    from slurm_cluster.runtime.node import command_line

    return command_line.main(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except NodeError as error:
        print(f"slurm-cluster: {error}", file=sys.stderr)
        sys.exit(1)
