"""CloudFormation's invocations of custom resources are asynchronous, everybody else's are what they were."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_cluster.rehearsal.cloud.invocations import made_asynchronous


class Emulator:
    """What is invoked how; ``invoke`` has a function executed as CloudFormation does."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.invoke, self.execute = made_asynchronous(self._invoke, self._execute, self._later)

    def _invoke(self, name: str, *, fail: bool = False) -> str:
        self.execute(name, {})
        if fail:
            raise RuntimeError(name)
        return "answer"

    def _execute(self, function: Any, event: Any) -> None:
        self.happened.append(f"now {function}")

    def _later(self, function: Any, event: Any) -> None:
        self.happened.append(f"later {function}")
        # what it starts in turn is its own affair
        self.execute(f"from {function}", event)


def test_only_cloudformation_does_not_wait() -> None:
    emulator = Emulator()
    emulator.execute("plain", {})
    assert emulator.invoke("custom") == "answer"
    emulator.execute("again", {})
    assert emulator.happened == ["now plain", "later custom", "now from custom", "now again"]


def test_a_failed_custom_resource_leaves_nothing_behind() -> None:
    emulator = Emulator()
    with pytest.raises(RuntimeError, match="custom"):
        emulator.invoke("custom", fail=True)
    emulator.execute("after", {})
    assert emulator.happened[-1] == "now after"
