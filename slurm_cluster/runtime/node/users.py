"""Users that must be the same on all nodes, made before the packages that would choose their own numbers."""

from __future__ import annotations

import grp
import pwd

from slurm_cluster.runtime.node.commands import Runner
from slurm_cluster.runtime.node.errors import NodeError

SLURM_ID = 64030
"""uid and gid that Debian reserves for Slurm's user (package slurm-wlm-basic-plugins)."""

MUNGE_ID = 950
"""uid and gid of munge where the image has none: between the ends from which Debian gives out system ids."""

JOB_USER_ID = 1000


def ensure(run: Runner, job_user: str) -> None:
    """Make the users of Slurm and munge, and check the one that runs jobs.

    Slurm's numbers must be equal everywhere: slurmd takes orders from that uid alone. Munge's matter to one machine
    only, so an image that has munge under another number keeps it.

    Raises:
        NodeError: a name or a number is taken otherwise.
    """
    _system_user(run, "slurm", SLURM_ID)
    if _user_or_none("munge") is None:
        _system_user(run, "munge", MUNGE_ID)
    user = _user_or_none(job_user)
    if user is None or user.pw_uid != JOB_USER_ID:
        found = "does not exist" if user is None else f"has uid {user.pw_uid}"
        raise NodeError(
            f"the job user {job_user!r} {found}: it must have uid {JOB_USER_ID} on every node; "
            "name the image's default user in the operating system of the cluster"
        )


def _user_or_none(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _system_user(run: Runner, name: str, number: int) -> None:
    user = _user_or_none(name)
    if user is not None:
        if (user.pw_uid, user.pw_gid) != (number, number):
            raise NodeError(
                f"user {name} has uid {user.pw_uid} and gid {user.pw_gid} in this image, every node needs "
                f"{number} and {number}: make the image with these numbers, or without the package"
            )
        return
    _require_free(name, number)
    run(["groupadd", "--system", "--gid", str(number), name])
    run(
        [
            *("useradd", "--system", "--uid", str(number), "--gid", str(number), "--no-create-home"),
            *("--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", name),
        ]
    )


def _require_free(name: str, number: int) -> None:
    for kind, lookup in (("uid", pwd.getpwuid), ("gid", grp.getgrgid)):
        try:
            holder = lookup(number)[0]
        except KeyError:
            continue
        raise NodeError(f"{kind} {number}, needed for {name}, belongs to {holder!r} in this image: free it there")
