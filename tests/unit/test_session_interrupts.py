import os
import signal

import pytest

from slurm_cluster.rehearsal.interrupts import Interrupted, Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_and_the_former_handler_comes_back(number: signal.Signals) -> None:
    former = signal.getsignal(number)
    with Interrupts(), pytest.raises(Interrupted, match=f"stopped by {number.name}"):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is former


def test_a_held_signal_is_told_and_raises_at_the_end_of_the_hold() -> None:
    told: list[str] = []
    steps: list[str] = []
    with Interrupts() as interrupts, pytest.raises(Interrupted):  # noqa: PT012  # the order of the steps is the point
        with interrupts.held(told.append):
            os.kill(os.getpid(), signal.SIGTERM)
            steps.append("finished")
        steps.append("not reached")
    assert steps == ["finished"]
    assert told == ["SIGTERM: still removing what was made; this ends by itself"]


def test_an_error_inside_a_hold_is_not_replaced_by_the_signal() -> None:
    def fail() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("first")

    with Interrupts() as interrupts, pytest.raises(ValueError, match="first"), interrupts.held():
        fail()
