"""systemd units: the cluster's own, and what the packaged ones need besides.

Slurm's and munge's units stay disabled: ``bootstrap`` starts them at every boot, in order, when what they need is
there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import COMMAND
from slurm_cluster.runtime.node import files
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError

UNIT_DIR = Path("/etc/systemd/system")
BOOTSTRAP = "slurm-cluster-bootstrap.service"
NAMES = "slurm-cluster-names.service"
METADATA_GUARD = "slurm-cluster-metadata-guard.service"

_BOOTSTRAP_TEXT = f"""\
[Unit]
Description=Make this machine a node of its Slurm cluster
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={COMMAND} bootstrap
TimeoutStartSec=infinity
# A node that rebooted while AWS could not be reached comes back by itself.
Restart=on-failure
RestartSec=60

[Install]
WantedBy=multi-user.target
"""

_NAMES_TEXT = f"""\
[Unit]
Description=Names of the Slurm cluster's machines in /etc/hosts
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={COMMAND} names
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"""

_GUARD_TEXT = """\
[Unit]
Description=Keep ordinary users off the instance metadata, and with it off the instance role
# nftables.service flushes all rules when it starts: this table comes after it, and again when it is reloaded.
After=local-fs.target nftables.service
ReloadPropagatedFrom=nftables.service
PartOf=nftables.service
Before=munge.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft --file {rules}
ExecReload=/usr/sbin/nft --file {rules}

[Install]
WantedBy=multi-user.target
"""

_MUNGE_DROP_IN = f"""\
[Unit]
# Without munge no job can start: so none starts where users can reach the instance role.
Requires={METADATA_GUARD}
After={METADATA_GUARD}

[Service]
Restart=on-failure
"""

_SLURM_DROP_IN = """\
[Unit]
StartLimitIntervalSec=0

[Service]
Restart=on-failure
RestartSec=5
TimeoutStartSec=infinity
"""

_SLURMD_DROP_IN = f"""\
{_SLURM_DROP_IN}\
# Job steps outlive slurmd, as they must when it restarts, and ignore SIGTERM: a machine that goes down would wait for
# them for 90 seconds. Slurm runs their jobs again when it is back.
ExecStopPost=-/bin/sh -c 'test "$$(systemctl is-system-running)" != stopping || pkill -KILL -x slurmstepd'
"""


def guard_text(rules: Path) -> str:
    """Return the unit that loads the metadata guard's rules."""
    return _GUARD_TEXT.format(rules=rules)


def install(run: Runner, role: Role, guard_rules: Path, *, unit_dir: Path = UNIT_DIR) -> bool:
    """Write the units and enable the cluster's own; return whether a file changed."""
    slurm_unit, drop_in = (
        ("slurmctld.service", _SLURM_DROP_IN) if role is Role.HEAD else ("slurmd.service", _SLURMD_DROP_IN)
    )
    wanted = {
        BOOTSTRAP: _BOOTSTRAP_TEXT,
        NAMES: _NAMES_TEXT,
        METADATA_GUARD: guard_text(guard_rules),
        "munge.service.d/slurm-cluster.conf": _MUNGE_DROP_IN,
        f"{slurm_unit}.d/slurm-cluster.conf": drop_in,
    }
    changed = [name for name, text in wanted.items() if files.replace(unit_dir / name, text)]
    if changed:
        run(["systemctl", "daemon-reload"])
    enable(run, BOOTSTRAP)
    return bool(changed)


def _file_state(run: Runner, name: str) -> str:
    """Return what systemd says of a unit's file: ``enabled``, ``disabled``, ``masked``, or nothing if there is none."""
    return run(["systemctl", "show", "--property=UnitFileState", "--value", name]).stdout.strip()


# Each change of a unit's file has systemd read all of them again, which takes a second: so the state is asked first.


def enable(run: Runner, name: str) -> None:
    """Have a unit started at every boot."""
    if _file_state(run, name) != "enabled":
        run(["systemctl", "enable", "--quiet", name])


def mask(run: Runner, *names: str) -> None:
    """Keep units from being started by anything, their packages' installation included."""
    free = [name for name in names if _file_state(run, name) != "masked"]
    if free:
        run(["systemctl", "mask", "--quiet", *free])


def take_over(run: Runner, *names: str) -> None:
    """Make units startable, but only by ``bootstrap``: not masked, and not enabled."""
    masked = [name for name in names if _file_state(run, name) == "masked"]
    if masked:
        run(["systemctl", "unmask", "--quiet", *masked])
    enabled = [name for name in names if _file_state(run, name) == "enabled"]
    if enabled:
        run(["systemctl", "disable", "--quiet", *enabled])


def is_active(run: Runner, name: str) -> bool:
    """Return whether a unit runs."""
    return run(["systemctl", "is-active", "--quiet", name], check=False).returncode == 0


def restart(run: Runner, name: str) -> None:
    """Restart a unit, or start it, and see that it runs.

    systemctl reports success for a unit whose condition is not met, so its word is not enough.

    Raises:
        NodeError: it does not run; the text holds the end of its journal.
    """
    try:
        run(["systemctl", "restart", name], timeout=120)
    except CommandError as problem:
        raise NodeError(f"{name} does not start: {journal(run, name) or problem}") from problem
    if not is_active(run, name):
        raise NodeError(f"{name} does not run: {journal(run, name) or 'its journal is empty'}")


def start_and_wait(
    run: Runner,
    name: str,
    *,
    seconds: float,
    restart_first: bool,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Start a unit that tries again by itself, and wait until it runs.

    Raises:
        NodeError: it does not run after ``seconds``.
    """
    run(["systemctl", "restart" if restart_first else "start", "--no-block", name])
    start = clock()
    while not is_active(run, name):
        if clock() - start > seconds:
            raise NodeError(f"{name} does not run after {seconds:g} seconds: {journal(run, name)}")
        sleep(1)


def journal(run: Runner, name: str) -> str:
    """Return the last messages of a unit in one line."""
    done = run(["journalctl", "--unit", name, "--lines", "8", "--output", "cat", "--no-pager", "--quiet"], check=False)
    return " | ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
