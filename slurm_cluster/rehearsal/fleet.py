"""Keeps the machines, volumes and rules of this machine as the EC2 API says: a loop over ``reconcile``."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_cluster.rehearsal import reconcile
from slurm_cluster.rehearsal.machine import Machine
from slurm_cluster.rehearsal.network import groups
from slurm_cluster.rehearsal.network.addresses import resolv_conf
from slurm_cluster.rehearsal.network.instance_metadata import InstanceMetadata
from slurm_cluster.rehearsal.network.vpc import VpcNetwork
from slurm_cluster.rehearsal.observed import Instance, Observed, instance_metadata, observe
from slurm_cluster.rehearsal.paths import SessionPaths
from slurm_cluster.rehearsal.progress import NodeProgress, Progress, read_status
from slurm_cluster.rehearsal.reconcile import Do, DoVolume, Power
from slurm_cluster.rehearsal.volume import Volume, VolumeInUse

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client

_TICK_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0
"""How long the loop may fail again and again before the rehearsal does."""

_POWER_OFF_SECONDS = 20.0
_WORKERS = 8


@dataclass
class Member:
    """One instance's machine and what the loop knows of it."""

    instance: Instance
    metadata: InstanceMetadata
    machine: Machine
    work: Future[None] | None = None
    settled: bool = True
    """It is off and meant to be, until it is started."""
    boot_id: str = ""
    progress: NodeProgress | None = None
    agent_online: bool = False
    console_begin: int = 0
    """Size of the console log when the present boot began."""

    def observed(self) -> reconcile.Machine:
        """Return what the machine does at the moment."""
        if self.work is not None:
            return reconcile.Machine(power=Power.BUSY)
        if self.settled:
            return reconcile.Machine(power=Power.OFF)
        code = self.machine.poll()
        return reconcile.Machine(power=Power.ON if code is None else Power.ENDED, exit_code=code)

    @property
    def runs(self) -> bool:
        """Whether the machine runs."""
        return self.observed().power is Power.ON

    @property
    def ready(self) -> bool:
        """Whether bootstrap has succeeded in this boot."""
        status = self.progress.status if self.progress else None
        return self.work is None and not self.settled and status is not None and status.state == "ready"

    @property
    def failure(self) -> str | None:
        """Why this boot made no node, once that is known."""
        return self.progress.failure if self.progress else None


@dataclass
class Fleet:
    """Machines of one session, from ``start`` to ``close``.

    Args:
        paths: of the session.
        ec2: administrator's client of the API.
        role_of: returns the role name of an instance profile's ARN.
        network: the session's network.
        image: root directory of the machines' image.
        progress: told what happens.
    """

    paths: SessionPaths
    ec2: EC2Client
    role_of: Callable[[str], str]
    network: VpcNetwork
    image: Path
    progress: Progress
    failure: str | None = None
    """Why the rehearsal cannot go on; the loop has ended then."""
    members: dict[str, Member] = field(default_factory=dict)
    """By instance id. Machines are made and removed by the loop alone; read a copy."""

    def __post_init__(self) -> None:
        self._volumes: dict[str, Volume] = {}
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(_WORKERS, "machine")
        self._thread = threading.Thread(target=self._loop, name="reconcile", daemon=True)
        self._shown = ""

    def start(self) -> None:
        """Begin the loop."""
        self._thread.start()

    def close(self) -> None:
        """End the loop and remove every machine and volume at once, as a power cut would."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for member in self.members.values():
            if not member.settled:
                member.machine.kill()  # ends a shutdown that is under way, too
            if member.work is not None:
                with contextlib.suppress(Exception):  # its machine is removed next, whatever became of it
                    member.work.result()
        for removal in [self._pool.submit(member.machine.remove) for member in self.members.values()]:
            removal.result()
        self._pool.shutdown()
        for volume in self._volumes.values():
            volume.delete()

    def lookup(self, private_ip: str) -> InstanceMetadata | None:
        """Return the metadata of the instance at an address, for the metadata service."""
        for member in list(self.members.values()):
            if member.metadata.private_ip == private_ip:
                return replace(member.metadata, tags=member.instance.tags if member.metadata.tags is not None else None)
        return None

    def _loop(self) -> None:
        failing_since: float | None = None
        while not self._stop.wait(_TICK_SECONDS):
            try:
                self._tick()
                failing_since = None
                self._shown = ""
            except FleetError as error:
                self.failure = str(error)
                return
            except Exception as error:
                failing_since = failing_since or time.monotonic()
                self._show("".join(traceback.format_exception_only(error)).strip())
                if time.monotonic() - failing_since > _PATIENCE_SECONDS:
                    trace = "".join(traceback.format_exception(error))
                    self.failure = f"the reconcile loop failed for {_PATIENCE_SECONDS:.0f} s:\n{trace}"
                    return

    def _show(self, problem: str) -> None:
        """Print a problem once as long as it stays the same."""
        if problem != self._shown:
            self._shown = problem
            self.progress.say(f"reconcile: {problem}")

    def _tick(self) -> None:
        observed = observe(self.ec2)
        self._finish_work()
        for instance_id, member in self.members.items():
            member.instance = observed.instances.get(instance_id, member.instance)
        states = {instance.id: instance.state for instance in observed.instances.values()}
        actions = dict(reconcile.machine_actions(states, self._machines()))
        for instance_id, action in actions.items():
            if action is Do.MAKE:
                self._make(observed.instances[instance_id])
        self._reconcile_volumes(observed)
        self.network.apply(groups.snapshot(self.ec2))
        for instance_id, action in reconcile.machine_actions(states, self._machines()):
            self._act(self.members[instance_id], action)
        for member in self.members.values():
            self._watch(member)

    def _machines(self) -> Mapping[str, reconcile.Machine]:
        return {instance_id: member.observed() for instance_id, member in self.members.items()}

    def _finish_work(self) -> None:
        for instance_id, member in list(self.members.items()):
            if member.work is None or not member.work.done():
                continue
            work, member.work = member.work, None
            error = work.exception()
            if error is not None:
                raise FleetError(f"{member.instance.label}: {error}") from error
            if not member.machine.directory.exists():
                del self.members[instance_id]
                self.progress.say("removed", who=member.instance.label)

    def _make(self, instance: Instance) -> None:
        metadata = instance_metadata(self.ec2, instance.id, self.role_of)
        netns = self.network.attach(instance.id, instance.private_ip, metadata.subnet_cidr)
        machine = Machine(
            self.paths,
            instance.id,
            image=self.image,
            netns=netns,
            resolv_conf=resolv_conf(metadata.subnet_cidr, metadata.region),
        )
        self.members[instance.id] = Member(instance, metadata, machine)

    def _act(self, member: Member, action: Do) -> None:
        match action:
            case Do.START:
                member.settled = False
                self._submit(member, self._start)
            case Do.POWER_OFF:
                self.progress.say("stop", who=member.instance.label)
                self._submit(member, self._power_off)
            case Do.SETTLE:
                member.settled = True
            case Do.STOP_INSTANCE:
                self._report_power_off(member)
            case Do.REMOVE:
                self._submit(member, self._remove)
            case Do.FAIL:
                code = member.observed().exit_code
                raise FleetError(
                    f"{member.instance.label}: the systemd-nspawn of {member.instance.id} was killed (exit code {code})"
                )

    def _submit(self, member: Member, work: Callable[[Member], None]) -> None:
        member.work = self._pool.submit(work, member)

    def _start(self, member: Member) -> None:
        member.metadata = instance_metadata(self.ec2, member.instance.id, self.role_of)
        console = member.machine.console_log
        member.console_begin = console.stat().st_size if console.exists() else 0
        member.progress = NodeProgress(self.progress, member.instance.label)
        member.machine.start()
        boot_id = Path("/proc", str(member.machine.pid1), "root/proc/sys/kernel/random/boot_id")
        member.boot_id = boot_id.read_text().strip()

    def _power_off(self, member: Member) -> None:
        self._agent(member, online=False)
        member.machine.stop()
        member.settled = True

    def _remove(self, member: Member) -> None:
        self._agent(member, online=False)
        member.machine.stop(_POWER_OFF_SECONDS)
        member.machine.remove()
        self.network.detach(member.instance.id)

    def _report_power_off(self, member: Member) -> None:
        """Tell EC2 that the guest powered itself off; its shutdown behaviour decides what that means."""
        instance_id = member.instance.id
        answer = self.ec2.describe_instance_attribute(
            InstanceId=instance_id, Attribute="instanceInitiatedShutdownBehavior"
        )
        self.progress.say("powered itself off", who=member.instance.label)
        if answer["InstanceInitiatedShutdownBehavior"].get("Value") == "terminate":
            self.ec2.terminate_instances(InstanceIds=[instance_id])
        else:
            self.ec2.stop_instances(InstanceIds=[instance_id])

    def _reconcile_volumes(self, observed: Observed) -> None:
        attached = {volume.id: volume.instance_id for volume in observed.volumes.values()}
        plugged = {
            volume_id: volume.machine.instance_id if volume.machine else None
            for volume_id, volume in self._volumes.items()
        }
        for volume_id, action in reconcile.volume_actions(attached, plugged, self._machines()):
            match action:
                case DoVolume.PLUG:
                    self._plug(volume_id, observed)
                case DoVolume.UNPLUG:
                    try:
                        self._volumes[volume_id].detach()
                    except VolumeInUse as error:  # EC2 waits as well until the guest lets go
                        self._show(str(error))
                case DoVolume.DELETE:
                    self._volumes.pop(volume_id).delete()

    def _plug(self, volume_id: str, observed: Observed) -> None:
        wanted = observed.volumes[volume_id]
        if volume_id not in self._volumes:
            self._volumes[volume_id] = Volume(self.paths, volume_id, size_gib=wanted.size_gib)
        assert wanted.instance_id is not None  # noqa: S101  (only attached volumes are plugged)
        member = self.members[wanted.instance_id]
        self._volumes[volume_id].attach(member.machine)
        self.progress.say(f"volume {volume_id}", who=member.instance.label)

    def _watch(self, member: Member) -> None:
        """Follow what a running machine says: its agent and the progress of its bootstrap."""
        running = member.runs
        self._agent(member, online=running and member.machine.agent_online())
        if running and member.progress is not None:
            member.progress.observe(read_status(member.machine.root), member.boot_id)
            with member.machine.console_log.open("rb") as console:
                console.seek(member.console_begin)
                member.progress.observe_console(console.read().decode(errors="replace"))

    def _agent(self, member: Member, *, online: bool) -> None:
        if online != member.agent_online:
            member.agent_online = online
            flag = member.machine.directory / "agent-online"
            flag.touch() if online else flag.unlink(missing_ok=True)


class FleetError(RuntimeError):
    """What no further turn of the loop can mend."""
