"""A node of the rehearsed cluster as tests and the report use it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_cluster.rehearsal.fleet import Fleet, Member
from slurm_cluster.rehearsal.machine import Machine
from slurm_cluster.rehearsal.progress import Status

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Node:
    """One node; it stays the same object over reboots and stops of its instance."""

    name: str
    member: Member
    fleet: Fleet

    @property
    def instance_id(self) -> str:
        """EC2 instance id."""
        return self.member.instance.id

    @property
    def private_ip(self) -> str:
        """Address in the VPC."""
        return self.member.metadata.private_ip

    @property
    def machine(self) -> Machine:
        """The machine behind the instance."""
        return self.member.machine

    @property
    def status(self) -> Status | None:
        """What bootstrap has written in this boot, None before it has."""
        return self.member.progress.status if self.member.progress else None

    @property
    def boot_id(self) -> str:
        """Changes with every boot."""
        return self.member.boot_id

    def exec(
        self, argv: Sequence[str], *, timeout: float = 60.0, input: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in the node as root; its exit status is not judged. See ``Machine.exec``."""
        return self.machine.exec(argv, timeout=timeout, input=input)

    def reboot(self, *, timeout: float = 120.0) -> None:
        """Reboot it from inside and wait until bootstrap has succeeded in the new boot.

        Raises:
            TimeoutError: it was not ready in time.
            RuntimeError: bootstrap failed, or the rehearsal cannot go on.
        """
        before = self.boot_id
        self.machine.reboot()
        self.wait_ready(after_boot=before, timeout=timeout)

    def wait_ready(self, *, after_boot: str = "", timeout: float = 120.0) -> None:
        """Wait until bootstrap has succeeded in another boot than ``after_boot``.

        Raises:
            TimeoutError: it was not ready in time.
            RuntimeError: bootstrap failed, or the rehearsal cannot go on.
        """
        deadline = time.monotonic() + timeout
        while self.boot_id == after_boot or not self.member.ready:
            if self.fleet.failure:
                raise RuntimeError(self.fleet.failure)
            status = self.status
            if self.boot_id != after_boot and status is not None and status.state == "failed":
                raise RuntimeError(f"{self.name}: bootstrap failed in step {status.step}: {status.reason}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} was not ready within {timeout:.0f} s")
            time.sleep(_POLL_SECONDS)
