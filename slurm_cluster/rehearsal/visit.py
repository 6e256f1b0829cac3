"""What people and programs see and do in a session that another process owns."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slurm_cluster.rehearsal import node_exec
from slurm_cluster.rehearsal.cloud.server import access_variables
from slurm_cluster.rehearsal.sessions import LivingSession, SeenMachine

_SIGNAL_STATUS = 128


def lines(session: LivingSession) -> Iterator[str]:
    """Yield the session and its machines, a line each."""
    record = session.record
    if record is None:
        yield f"session {session.id}: {session.state.value} (process {session.owner})"
        return
    minutes = (time.time() - record.began) / 60
    yield f"session {session.id}: {session.state.value}, began {minutes:.0f} minutes ago (process {session.owner})"
    yield f"  app        {record.app}"
    yield f"  image      {record.image.value}"
    yield f"  AWS APIs   {' '.join(f'{name}={value}' for name, value in access_variables(record.endpoint).items())}"
    machines, problem = _machines(session)
    if problem:
        yield f"  {problem}"
    width = max((len(name) for name in machines), default=0)
    for name, seen in machines.items():
        yield f"  {name:<{width}}  {seen.instance.id:<19}  {seen.instance.private_ip:<15}  {seen.describe()}"


def as_dict(session: LivingSession) -> dict[str, Any]:
    """Return the session and its machines as JSON can hold them."""
    record = session.record
    machines, problem = _machines(session)
    return {
        "session": session.id,
        "owner": session.owner,
        "state": session.state.value,
        "app": record.app if record else None,
        "image": record.image.value if record else None,
        "endpoint": record.endpoint if record else None,
        "variables": access_variables(record.endpoint) if record else {},
        "began": record.began if record else None,
        "problem": problem,
        "nodes": {
            name: {
                "instance_id": seen.instance.id,
                "private_ip": seen.instance.private_ip,
                "instance_state": seen.instance.state,
                "state": seen.describe(),
            }
            for name, seen in machines.items()
        },
    }


def _machines(session: LivingSession) -> tuple[dict[str, SeenMachine], str | None]:
    try:
        return session.machines(), None
    except (BotoCoreError, ClientError) as error:  # a session that failed, or ends at this moment
        return {}, f"its emulated AWS does not answer: {error}"


def enter(pid1: int, user: str, program: list[str]) -> int:
    """Run a program in a node with this process's input and output; return its exit status.

    Args:
        pid1: pid of the node's init process on this machine.
        user: who runs it there.
        program: with its arguments; none means a log-in shell, on a terminal of its own if this process has one.
    """
    argv = program or ["bash", "--login"]
    if user != "root":
        argv = ["runuser", "-u", user, "--", *program] if program else ["runuser", "-l", user]
    elif not program:
        argv = ["env", "HOME=/root", *argv]
    if sys.stdin.isatty() and sys.stdout.isatty():
        # The terminal is this machine's: job control needs one of the node's, which script makes there.
        terminal_type = f"TERM={os.environ.get('TERM', 'dumb')}"
        argv = ["env", terminal_type, "script", "--quiet", "--return", "--command", shlex.join(argv), "/dev/null"]
    done = subprocess.run(node_exec.command(pid1, argv))
    return done.returncode if done.returncode >= 0 else _SIGNAL_STATUS - done.returncode
