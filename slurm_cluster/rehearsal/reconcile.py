"""What has to be done so that the machines become what the EC2 API says: pure functions of two snapshots.

Level-triggered: nothing here remembers events, so CloudFormation, RunInstances, a reboot inside a node and a killed
process all end in the same comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

REBOOT_EXIT = 133
"""Exit code of systemd-nspawn when the guest asked for a reboot."""


class Power(StrEnum):
    """What a machine does at the moment; an instance without an entry has no machine."""

    ON = "on"
    OFF = "off"
    ENDED = "ended"
    """It ended without being told to; its exit code says how."""
    BUSY = "busy"
    """An earlier action on it is not finished."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine as observed; ``exit_code`` only when it ended."""

    power: Power
    exit_code: int | None = None


class Do(StrEnum):
    """What to do about one instance."""

    MAKE = "make"
    START = "start"
    POWER_OFF = "power off"
    SETTLE = "settle"
    """The machine is off and meant to be."""
    STOP_INSTANCE = "stop instance"
    """The guest powered itself off: tell EC2, which stops or terminates the instance."""
    REMOVE = "remove"
    FAIL = "fail"
    """The machine was killed from outside the guest; no EC2 instance ends like this."""


_RUNNING = frozenset({"pending", "running"})
_STOPPED = frozenset({"stopping", "stopped"})


def machine_actions(states: Mapping[str, str], machines: Mapping[str, Machine]) -> Iterator[tuple[str, Do]]:
    """Yield what to do, by instance id; at most one action an instance.

    Args:
        states: EC2 state name of every instance that the API reports.
        machines: every machine there is.
    """
    for instance in dict.fromkeys((*states, *machines)):
        action = _machine_action(states.get(instance, "terminated"), machines.get(instance))
        if action is not None:
            yield instance, action


def _machine_action(state: str, machine: Machine | None) -> Do | None:
    if machine is None:
        return Do.MAKE if state in _RUNNING else None
    if machine.power is Power.BUSY:
        return None
    if state in _STOPPED:
        return {Power.ON: Do.POWER_OFF, Power.ENDED: Do.SETTLE}.get(machine.power)
    if state not in _RUNNING:
        return Do.REMOVE
    if machine.power is Power.OFF or (machine.power is Power.ENDED and machine.exit_code == REBOOT_EXIT):
        return Do.START
    if machine.power is Power.ENDED:
        return Do.STOP_INSTANCE if machine.exit_code == 0 else Do.FAIL
    return None


class DoVolume(StrEnum):
    """What to do about one volume."""

    PLUG = "plug"
    UNPLUG = "unplug"
    DELETE = "delete"


def volume_actions(
    attached: Mapping[str, str | None],
    plugged: Mapping[str, str | None],
    machines: Mapping[str, Machine],
) -> Iterator[tuple[str, DoVolume]]:
    """Yield what to do, by volume id; at most one action a volume, so that a move unplugs before it plugs.

    Args:
        attached: every volume of the API and the instance it is attached to.
        plugged: every volume made on this machine and the instance whose machine has it.
        machines: every machine there is. One that is off takes a volume too, and has its device when it boots.
    """
    free = {instance for instance, machine in machines.items() if machine.power is not Power.BUSY}
    for volume, holder in plugged.items():
        if holder is None and volume not in attached:
            yield volume, DoVolume.DELETE
        elif holder in free and attached.get(volume) != holder:
            yield volume, DoVolume.UNPLUG
    for volume, instance in attached.items():
        if instance in free and plugged.get(volume) is None:
            yield volume, DoVolume.PLUG
