"""Jobs stay users: on a worker, the user who runs jobs cannot become root.

Images of EC2 let their default user become root without a password. A job would then read the munge key and the
instance role's credentials past the metadata guard. On the head, where no job runs, the operator keeps that right; on
a worker, root is reached by Session Manager or Run Command.
"""

from __future__ import annotations

from pathlib import Path

from slurm_cluster.runtime.node import files

SUDOERS_FILE = Path("/etc/sudoers.d/zz-slurm-cluster")
"""Read after cloud-init's file: of two rules that match, the last one counts (sudoers(5))."""


def withdraw_sudo(job_user: str) -> None:
    """Let ``job_user`` run nothing as another user."""
    files.replace(SUDOERS_FILE, f"{job_user} ALL=(ALL:ALL) !ALL\n", mode=0o440)
