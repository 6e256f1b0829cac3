"""Machines without a cluster: a session of their own, bare network namespaces, cloud-init switched off."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from slurm_cluster.rehearsal import leftovers
from slurm_cluster.rehearsal.image import ensure_baked_image
from slurm_cluster.rehearsal.machine import Machine
from slurm_cluster.rehearsal.ownership import Ownership, claim
from slurm_cluster.rehearsal.paths import SessionPaths, name

RESOLV_CONF = "nameserver 127.0.0.1\n"
BOOT_SECONDS = 60.0
_INTERFACES = """
link set lo up
link add eth0 type veth peer name peer
address add 10.79.0.5/24 dev eth0
link set eth0 up
link set peer up
"""


class Bench:
    """Makes machines and takes them away."""

    def __init__(self, owned: Ownership) -> None:
        self.paths: SessionPaths = owned.paths
        self._image = ensure_baked_image(print)
        self._machines: list[Machine] = []
        self._namespaces: list[str] = []

    def namespace(self, instance_id: str) -> str:
        """Return a new network namespace with one address that nobody else can reach."""
        netns = name(self.paths.session, instance_id)
        subprocess.run(["ip", "netns", "add", netns], check=True)
        self._namespaces.append(netns)
        subprocess.run(["ip", "-netns", netns, "-batch", "-"], input=_INTERFACES, text=True, check=True)
        return netns

    def machine(self, instance_id: str, *, netns: str | None = None, cloud_init: bool = False) -> Machine:
        """Return a machine that is off; unless told otherwise it does not look for a metadata service."""
        netns = netns or self.namespace(instance_id)
        made = Machine(self.paths, instance_id, image=self._image, netns=netns, resolv_conf=RESOLV_CONF)
        self._machines.append(made)
        if not cloud_init:
            switch = made.directory / "upper/etc/cloud/cloud-init.disabled"
            switch.parent.mkdir(parents=True)
            switch.touch()
        return made

    def close(self) -> None:
        """Remove all machines and namespaces."""
        for made in self._machines:
            if made.directory.exists():
                made.remove()
        for netns in self._namespaces:
            subprocess.run(["ip", "netns", "delete", netns], check=True)


@contextmanager
def bench() -> Iterator[Bench]:
    """Yield a bench of a new session; nothing of it is left afterwards."""
    owned = claim()
    made = Bench(owned)
    try:
        yield made
    finally:
        made.close()
        leftovers.remove(owned.paths)
        shutil.rmtree(owned.paths.root, ignore_errors=True)
        owned.release()


def boot(machine: Machine) -> str:
    """Start a machine, wait until systemd has started everything, and return its verdict."""
    machine.start()
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline:
        state = machine.exec(["systemctl", "is-system-running"], timeout=20).stdout.strip()
        if state not in ("", "initializing", "starting", "offline"):
            return state
        time.sleep(0.1)
    raise AssertionError(f"{machine.name} was still booting after {BOOT_SECONDS:.0f} s")


def shell(machine: Machine, script: str, *, timeout: float = 90.0) -> str:
    """Run a shell script that must succeed and return what it printed."""
    done = machine.exec(["sh", "-ec", script], timeout=timeout)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout
