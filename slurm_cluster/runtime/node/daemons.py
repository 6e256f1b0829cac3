"""Starting Slurm's daemons when everything they need is there, and seeing that they serve."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

from slurm_cluster.model.spec import ClusterSpec
from slurm_cluster.runtime.node import files, node_table, packages, units
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError

SLURMD = "slurmd.service"
SLURMD_DEFAULTS = Path("/etc/default/slurmd")
_HEAD_SECONDS = 1800
_REGISTRATION_SECONDS = 1800
_PAUSE = 2

_UNREGISTERED = frozenset({"POWERED_DOWN", "NOT_RESPONDING", "DOWN"})


def wait_for_slurmctld(
    run: Runner,
    *,
    seconds: float = 120,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """On the head: wait until slurmctld answers.

    Raises:
        NodeError: it does not.
    """
    start = clock()
    while " is UP" not in run(["scontrol", "ping"], check=False, timeout=60).stdout:
        if clock() - start > seconds:
            said = units.journal(run, "slurmctld.service")
            raise NodeError(f"slurmctld runs but does not answer after {seconds:g} seconds: {said}")
        sleep(_PAUSE)


def wait_for_port(
    host: str,
    port: int,
    *,
    seconds: float = _HEAD_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """On a worker: wait until the head accepts connections.

    Raises:
        NodeError: it does not; the text tells a silent network from a machine that refuses.
    """
    start = clock()
    while True:
        try:
            with socket.create_connection((host, port), timeout=5):
                return
        except OSError as problem:
            if clock() - start > seconds:
                hint = (
                    "the head runs but not slurmctld: see the head's own failure"
                    if isinstance(problem, ConnectionRefusedError)
                    else "the head is not there yet, or a security group keeps workers from this port"
                )
                raise NodeError(
                    f"no connection to {host}:{port} after {seconds:g} seconds ({problem}): {hint}"
                ) from None
        sleep(_PAUSE)


def require_same_release(
    run: Runner,
    spec: ClusterSpec,
    *,
    seconds: float = 120,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """On a worker: ask the controller for its release and compare it with the one installed here.

    It is also the first authenticated call, so a wrong key or clock shows here and not in a job.

    Raises:
        NodeError: the controller refuses this node, or runs another release line.
    """
    own = packages.slurm_version(run)
    server = f"{spec.head_host}:{spec.ports.slurmctld}"
    start = clock()
    while True:
        try:
            text = run(["scontrol", "show", "config"], env={"SLURM_CONF_SERVER": server}, timeout=60).stdout
            break
        except CommandError as problem:
            if clock() - start > seconds:
                raise NodeError(
                    f"slurmctld at {server} does not answer this node (Slurm {own}): {problem}; "
                    "an authentication error means another munge key or a clock that is off by minutes"
                ) from problem
        sleep(_PAUSE)
    found = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", text, re.MULTILINE)
    head = found.group(1) if found else "unknown"
    if _line(head) != _line(own):
        raise NodeError(
            f"this worker has Slurm {own} and the head has {head}: use one image generation for both, "
            "or replace the head first"
        )


def _line(version: str) -> list[str]:
    """Return the release line: SchedMD supports daemons of one line with each other in any patch level."""
    return version.split(".")[:2]


def start_slurmd(run: Runner, spec: ClusterSpec, node_name: str, *, defaults: Path = SLURMD_DEFAULTS) -> bool:
    """Start slurmd, which takes its configuration from the head; return whether it was (re)started.

    Raises:
        NodeError: it does not run.
    """
    options = f"--conf-server {spec.head_host}:{spec.ports.slurmctld} -N {node_name}"
    changed = files.replace(defaults, f'# Written by slurm-cluster.\nSLURMD_OPTIONS="{options}"\n')
    if units.is_active(run, SLURMD) and not changed:
        return False
    # It takes its time while the head does not list this node yet.
    units.start_and_wait(run, SLURMD, seconds=_REGISTRATION_SECONDS, restart_first=changed)
    return True


def wait_for_registration(
    run: Runner,
    node_name: str,
    address: str,
    *,
    seconds: float = _REGISTRATION_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until slurmctld lists this node as registered from this address.

    A node that an administrator drained stays drained and is fine here.

    Raises:
        NodeError: slurmctld refuses the registration, or knows nothing of it in time.
    """
    start = clock()
    while True:
        done = run(["scontrol", "--oneliner", "show", "node", node_name], check=False, timeout=60)
        found = node_table.parse(done.stdout).get(node_name)
        reason = found.reason if found else ""
        if found and found.refused:
            raise NodeError(
                f"slurmctld refuses {node_name}: {reason or 'no reason given'}: "
                "its instance type must be the one of its partition"
            )
        if found and found.address == address and not found.flags & _UNREGISTERED:
            return
        if clock() - start > seconds:
            raise NodeError(
                f"{node_name} does not become registered: state {found.state if found else 'unknown to slurmctld'}, "
                f"reason {reason or 'none'}; slurmd: {units.journal(run, SLURMD)}"
            )
        sleep(_PAUSE)
