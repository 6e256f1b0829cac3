"""nftables rules that let only root (on the head also slurm) reach the instance metadata.

Whoever reaches it can take the instance role's credentials and with them the munge key: a job would become the node.
"""

from __future__ import annotations

from pathlib import Path

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import CONFIG_DIR
from slurm_cluster.runtime.node import files, units
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError
from slurm_cluster.runtime.node.users import SLURM_ID

RULES_FILE = CONFIG_DIR / "metadata-guard.nft"
TABLE = "slurm_cluster_metadata_guard"


def render(role: Role, *, job_credentials: bool) -> str:
    """Return the rules as a file for ``nft --file``; loading it twice is the same as once.

    Args:
        role: on the head slurmctld's user may ask too.
        job_credentials: whether every user may; then the table is only removed.
    """
    # Adding it first makes the deletion valid where there is none yet.
    text = f"#!/usr/sbin/nft --file\ntable inet {TABLE}\ndelete table inet {TABLE}\n"
    if job_credentials:
        return text
    allowed = f"{{ 0, {SLURM_ID} }}" if role is Role.HEAD else "{ 0 }"
    return (
        text
        + f"""\
table inet {TABLE} {{
    chain output {{
        type filter hook output priority filter; policy accept;
        ip daddr 169.254.169.254 meta skuid != {allowed} counter reject
        ip6 daddr fd00:ec2::254 meta skuid != {allowed} counter reject
    }}
}}
"""
    )


def ensure(run: Runner, role: Role, *, job_credentials: bool, rules_file: Path = RULES_FILE) -> bool:
    """Write the rules and load them; return whether they were not loaded before.

    Raises:
        NodeError: they do not load. The node must not serve then.
    """
    changed = files.replace(rules_file, render(role, job_credentials=job_credentials), mode=0o600)
    units.enable(run, units.METADATA_GUARD)
    loaded = run(["nft", "list", "table", "inet", TABLE], check=False).returncode == 0
    running = units.is_active(run, units.METADATA_GUARD)
    if not changed and running and loaded != job_credentials:
        return False
    try:
        units.restart(run, units.METADATA_GUARD)
    except NodeError as problem:
        raise NodeError(f"the instance metadata cannot be guarded, so no job may run here: {problem}") from problem
    if not job_credentials:
        try:
            run(["nft", "list", "table", "inet", TABLE])
        except CommandError as problem:
            raise NodeError(f"the metadata guard was loaded but is not there: {problem}") from problem
    return True
