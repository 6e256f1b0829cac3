"""Debian packages, installed beside everything else that wants apt on a young machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from slurm_cluster.model.flows import Role
from slurm_cluster.runtime.node import troubles
from slurm_cluster.runtime.node.commands import CommandError, Runner
from slurm_cluster.runtime.node.errors import NodeError

BASE = ("munge", "nftables", "slurm-client")
BY_ROLE: dict[Role, tuple[str, ...]] = {
    Role.HEAD: ("slurmctld", "xfsprogs"),
    # slurmd's cgroup v2 plugin asks systemd for its scope over D-Bus.
    Role.WORKER: ("slurmd", "dbus"),
}

_TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer")
_TIMED = ("apt-daily.service", "apt-daily-upgrade.service", "unattended-upgrades.service")
_APT = (
    "apt-get",
    "-o",
    # who waits for longer could not say for whom
    "DPkg::Lock::Timeout=20",
    "-o",
    "Acquire::Retries=5",
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-y",
)
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "a", "UCF_FORCE_CONFFOLD": "1"}
_APT_SECONDS = 1800
_MIRROR_SECONDS = 600
_PAUSE = 15
_SLURM_SOURCE = "slurm-wlm"


def missing(run: Runner, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that are not installed."""
    wanted = list(names)
    done = run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Package}\n", *wanted], check=False)
    installed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith(("ii", "hi"))}
    return [name for name in wanted if name not in installed]


def apt(
    run: Runner,
    names: Sequence[str],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Install packages, waiting for other users of apt and for a mirror that does not answer yet.

    Raises:
        NodeError: it was not possible; the text holds apt's own.
    """
    run(["systemctl", "stop", *_TIMERS, *_TIMED], check=False, timeout=300)
    try:
        _update_and_install(run, names, sleep, clock)
    finally:
        for timer in _TIMERS:
            if run(["systemctl", "is-enabled", "--quiet", timer], check=False).returncode == 0:
                run(["systemctl", "start", "--no-block", timer], check=False)


def _update_and_install(
    run: Runner, names: Sequence[str], sleep: Callable[[float], None], clock: Callable[[], float]
) -> None:
    start = clock()
    while True:
        try:
            run([*_APT, "-o", "APT::Update::Error-Mode=any", "update"], timeout=_APT_SECONDS, env=_ENVIRONMENT)
            run(
                [*_APT, "install", "--no-install-recommends", *names],
                timeout=_APT_SECONDS,
                env=_ENVIRONMENT,
            )
        except CommandError as problem:
            # An earlier installation that was cut off keeps every later one from working.
            run(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"], check=False, timeout=_APT_SECONDS)
            if clock() - start > _MIRROR_SECONDS:
                raise NodeError(
                    f"could not install {' '.join(names)}: {problem}: "
                    "the subnet needs a route to the package mirror, or the image needs the packages in it"
                ) from problem
            troubles.tell(f"could not install {' '.join(names)} yet: {problem}")
            sleep(_PAUSE)
        else:
            return


def hold_slurm(run: Runner) -> list[str]:
    """Hold every installed package of Slurm, so that no upgrade of one node parts it from the others.

    Returns:
        The packages that were not held before.
    """
    listing = run(["dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${source:Package} ${Package}\n"]).stdout
    rows = [line.split() for line in listing.splitlines()]
    free = [package for state, source, package in rows if source == _SLURM_SOURCE and state == "ii"]
    if free:
        run(["apt-mark", "hold", *free])
    return free


def slurm_version(run: Runner) -> str:
    """Return the Slurm release installed here, e.g. ``24.11.5``.

    Asked of slurmd: scontrol needs a configuration even to tell its release, and a worker has none yet.
    """
    return run(["slurmd", "-V"]).stdout.split()[-1]
