"""Sessions that live on this machine, as processes see them that do not own them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from slurm_cluster.rehearsal import ownership
from slurm_cluster.rehearsal.cloud.server import client
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.observed import Instance, names, observe
from slurm_cluster.rehearsal.paths import SessionPaths
from slurm_cluster.rehearsal.progress import Status, read_status
from slurm_cluster.rehearsal.record import SessionRecord, State

_POLL_SECONDS = 0.1
_WITHOUT_MACHINES = {
    State.STARTING: "it has none yet",
    State.DEPLOYING: "it has none yet",
    State.UP: "it has none, as no instance of its app is there",
    State.FAILED: "it has none and gets none, as it has failed",
}


@dataclass(frozen=True)
class LivingSession:
    """One session whose owner lives.

    Args:
        paths: of the session.
        owner: pid of the owner.
        record: what it says of itself, None while it starts.
    """

    paths: SessionPaths
    owner: int
    record: SessionRecord | None

    @property
    def id(self) -> str:
        """Session id."""
        return self.paths.session

    @property
    def state(self) -> State:
        """What it does."""
        return self.record.state if self.record else State.STARTING

    def machines(self) -> dict[str, SeenMachine]:
        """Return its machines by name, see ``observed.names``."""
        if self.record is None:
            return {}
        found = names(observe(client(self.record.endpoint, "ec2")).instances.values())
        return {name: SeenMachine(instance, self.paths) for name, instance in found.items()}

    def machine(self, wanted: str) -> SeenMachine:
        """Return a machine by its node name, its instance id or its Name tag.

        Raises:
            RehearsalError: there is none, or several have that Name tag.
        """
        machines = self.machines()
        fitting = [machines[wanted]] if wanted in machines else []
        fitting = fitting or [seen for seen in machines.values() if wanted in seen.further_names]
        if len(fitting) != 1:
            problem = "is the name of several machines" if fitting else "is no machine"
            choice = f"give one of {', '.join(machines)}" if machines else _WITHOUT_MACHINES[self.state]
            raise RehearsalError(f"{wanted!r} {problem} of session {self.id}: {choice}")
        return fitting[0]

    def end(self, seconds: float) -> None:
        """Tell the owner to remove everything, and wait for that.

        Raises:
            RehearsalError: it had not ended after ``seconds``.
        """
        if ownership.owner(self.paths) == self.owner:
            os.kill(self.owner, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while ownership.owner(self.paths) is not None:
            if time.monotonic() > deadline:
                raise RehearsalError(f"session {self.id} (process {self.owner}) had not ended after {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True)
class SeenMachine:
    """One machine of a session, seen from outside."""

    instance: Instance
    paths: SessionPaths

    @property
    def further_names(self) -> frozenset[str]:
        """What it is called besides its node name."""
        return frozenset((self.instance.id, self.instance.tags.get("Name", self.instance.id)))

    @property
    def pid1(self) -> int:
        """Pid of its init process on this machine.

        Raises:
            RehearsalError: it does not run.
        """
        try:
            return int((self._directory / "pid1").read_text())
        except FileNotFoundError:
            raise RehearsalError(
                f"{self.instance.label} does not run: instance {self.instance.id} is {self.instance.state}"
            ) from None

    @property
    def status(self) -> Status | None:
        """What its last bootstrap says of itself, None before the first."""
        return read_status(self._directory / "root")

    def describe(self) -> str:
        """Return in a few words how far it is."""
        if self.instance.state != "running" or not (self._directory / "pid1").exists():
            return self.instance.state
        if self.instance.role is None:
            return "runs"
        status = self.status
        if status is None:
            return "boots"
        told = {"ready": "ready", "failed": f"bootstrap failed in step {status.step}: {status.reason}"}
        return told.get(status.state, f"bootstrap: {status.step}")

    @property
    def _directory(self) -> Path:
        return self.paths.nodes / self.instance.id


def living() -> list[LivingSession]:
    """Return the sessions whose owners live, in the order of their ids."""
    found = []
    for session, pid in sorted(ownership.living().items()):
        paths = SessionPaths(session)
        found.append(LivingSession(paths, pid, SessionRecord.read(paths)))
    return found


def choose(session: str | None) -> LivingSession:
    """Return the session with that id; without an id the only one.

    Raises:
        RehearsalError: there is none, or several and no id.
    """
    sessions = living()
    if session is None and len(sessions) == 1:
        return sessions[0]
    for found in sessions:
        if found.id == session:
            return found
    if not sessions:
        raise RehearsalError("no session lives on this machine: start one with the command up")
    listed = ", ".join(f"{found.id} ({found.record.app})" if found.record else found.id for found in sessions)
    if session is None:
        raise RehearsalError(f"several sessions live on this machine: give --session with one of {listed}")
    raise RehearsalError(f"no session {session!r} lives on this machine: there are {listed}")
