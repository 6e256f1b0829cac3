import pytest

from slurm_cluster.rehearsal.reconcile import Do, DoVolume, Machine, Power, machine_actions, volume_actions

ON = Machine(power=Power.ON)
OFF = Machine(power=Power.OFF)
BUSY = Machine(power=Power.BUSY)
REBOOTED = Machine(power=Power.ENDED, exit_code=133)
POWERED_OFF = Machine(power=Power.ENDED, exit_code=0)
KILLED = Machine(power=Power.ENDED, exit_code=137)


@pytest.mark.parametrize(
    ("state", "machine", "action"),
    [
        ("pending", None, Do.MAKE),
        ("running", None, Do.MAKE),
        ("running", ON, None),
        ("running", OFF, Do.START),
        ("running", REBOOTED, Do.START),
        ("running", POWERED_OFF, Do.STOP_INSTANCE),
        ("running", KILLED, Do.FAIL),
        ("running", BUSY, None),
        ("stopping", ON, Do.POWER_OFF),
        ("stopped", ON, Do.POWER_OFF),
        ("stopped", None, None),
        ("stopped", OFF, None),
        ("stopped", POWERED_OFF, Do.SETTLE),
        ("stopped", REBOOTED, Do.SETTLE),
        ("shutting-down", ON, Do.REMOVE),
        ("terminated", None, None),
        ("terminated", ON, Do.REMOVE),
        ("terminated", OFF, Do.REMOVE),
        ("terminated", KILLED, Do.REMOVE),
        ("terminated", BUSY, None),
    ],
)
def test_one_machine(state: str, machine: Machine | None, action: Do | None) -> None:
    machines = {} if machine is None else {"i-1": machine}
    assert list(machine_actions({"i-1": state}, machines)) == ([] if action is None else [("i-1", action)])


def test_an_instance_that_the_api_forgot_is_removed() -> None:
    assert list(machine_actions({}, {"i-1": ON})) == [("i-1", Do.REMOVE)]


def test_instances_do_not_disturb_each_other() -> None:
    states = {"i-1": "running", "i-2": "stopped", "i-3": "running"}
    assert dict(machine_actions(states, {"i-1": ON, "i-2": ON})) == {"i-2": Do.POWER_OFF, "i-3": Do.MAKE}


@pytest.mark.parametrize(
    ("attached", "plugged", "machines", "actions"),
    [
        ({"v": "i-1"}, {}, {"i-1": ON}, [("v", DoVolume.PLUG)]),
        ({"v": "i-1"}, {"v": None}, {"i-1": ON}, [("v", DoVolume.PLUG)]),
        ({"v": "i-1"}, {"v": None}, {"i-1": OFF}, [("v", DoVolume.PLUG)]),
        ({"v": "i-1"}, {"v": None}, {"i-1": BUSY}, []),
        ({"v": None}, {"v": "i-1"}, {"i-1": BUSY}, []),
        ({"v": "i-1"}, {"v": None}, {}, []),
        ({"v": "i-1"}, {"v": "i-1"}, {"i-1": ON}, []),
        ({"v": None}, {"v": None}, {"i-1": ON}, []),
        ({"v": None}, {"v": "i-1"}, {"i-1": ON}, [("v", DoVolume.UNPLUG)]),
        ({"v": "i-2"}, {"v": "i-1"}, {"i-1": ON, "i-2": ON}, [("v", DoVolume.UNPLUG)]),
        ({}, {"v": "i-1"}, {"i-1": ON}, [("v", DoVolume.UNPLUG)]),
        ({}, {"v": None}, {}, [("v", DoVolume.DELETE)]),
    ],
)
def test_one_volume(
    attached: dict[str, str | None],
    plugged: dict[str, str | None],
    machines: dict[str, Machine],
    actions: list[tuple[str, DoVolume]],
) -> None:
    assert list(volume_actions(attached, plugged, machines)) == actions
