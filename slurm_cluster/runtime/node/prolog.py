"""Slurm's prolog: makes the names of a job's nodes resolve on this one before the job starts.

slurmd runs it as root on every node of the job (slurm.conf(5) Prolog, PrologFlags=Contain). Where it fails, slurmd
drains the node and the job runs again elsewhere, so it has patience with a controller that is restarting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from slurm_cluster.runtime.node import hosts, names
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError

COMMAND = Path("/usr/local/sbin/slurm-cluster-prolog")
_SECONDS = 120

SCRIPT = """\
#!/bin/sh
# A job on one node needs no other name.
[ "$SLURM_JOB_NODELIST" = "$SLURMD_NODENAME" ] && exit 0
# Where every node of the job is in the file already, as after the first job, Python need not start: srun looks
# once a second whether a prolog that took longer than some 50 ms has ended.
scontrol --oneliner show nodes "$SLURM_JOB_NODELIST" | awk '
    FNR == NR {{ for (i = 2; i <= NF; i++) if (!($i in known)) known[$i] = $1; next }}
    NF {{
        name = address = ""
        for (i = 1; i <= NF; i++) {{
            if (name == "" && $i ~ /^NodeName=/) name = substr($i, 10)
            if (address == "" && $i ~ /^NodeAddr=/) address = substr($i, 10)
        }}
        nodes++
        if (known[name] != address) exit missing = 1
    }}
    END {{ exit missing || !nodes }}
' {hosts} - || exec {command} prolog
"""
"""What slurmd runs; to be formatted with the hosts file and the command."""


def run_prolog(
    run: Runner,
    environment: Mapping[str, str],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Add the names of the job's nodes to /etc/hosts; return whether the file changed.

    Args:
        run: runs programs.
        environment: what slurmd set, see prolog_epilog(7).
        sleep: waits between attempts.
        clock: seconds of a steady clock.

    Raises:
        NodeError: the controller did not say where the nodes are.
    """
    node_list = environment["SLURM_JOB_NODELIST"]
    start = clock()
    while True:
        try:
            text = run(["scontrol", "--oneliner", "show", "nodes", node_list], timeout=60).stdout
        except CommandError as problem:
            if clock() - start > _SECONDS:
                raise NodeError(f"names of {node_list} are not known: {problem}") from problem
            sleep(5)
        else:
            break
    table = names.node_table(text)
    return hosts.update(lambda entries: hosts.merge(entries, table))
