"""The process that owns a session: deploys, keeps or destroys, and writes the reports.

``run`` is that process itself. ``up``, and ``run`` when it is to keep what failed, start it by ``detached``: it then
lives on when the command that started it, and its terminal, are gone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from slurm_cluster.rehearsal import report, timeline
from slurm_cluster.rehearsal.errors import RehearsalError
from slurm_cluster.rehearsal.image import ImageKind
from slurm_cluster.rehearsal.interrupts import Interrupted
from slurm_cluster.rehearsal.record import State
from slurm_cluster.rehearsal.report import Report
from slurm_cluster.rehearsal.session import Rehearsal

_POLL_SECONDS = 0.5

Outcome = Callable[[int], None]
"""Told the exit status of the command when the session lives on."""


class Verb(StrEnum):
    """What to do with the app."""

    RUN = "run"
    """Deploy, run the smoke test, destroy."""
    UP = "up"
    """Deploy, and keep it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One rehearsal to be done.

    Args:
        verb: what to do.
        app_dir: directory of the app.
        context: CDK context.
        image: kind of the nodes' image.
        keep_on_failure: whether what failed stays, to be looked into.
        json: file for the report, if any.
        timeline: file for the timeline's picture, if any.
        hours: how long a session that is kept lives at most.
    """

    verb: Verb
    app_dir: Path
    context: Mapping[str, str]
    image: ImageKind
    keep_on_failure: bool
    json: Path | None
    timeline: Path | None
    hours: float

    def to_text(self) -> str:
        """Return what ``from_text`` reads."""
        return json.dumps(vars(self), default=str)

    @classmethod
    def from_text(cls, text: str) -> Plan:
        """Read a plan that another process has written."""
        value: dict[str, Any] = json.loads(text)
        files = {name: Path(value[name]) if value[name] else None for name in ("json", "timeline")}
        return cls(
            **{
                **value,
                **files,
                "verb": Verb(value["verb"]),
                "app_dir": Path(value["app_dir"]),
                "image": ImageKind(value["image"]),
            }
        )


def perform(plan: Plan, say: Callable[[str], None], outcome: Outcome | None = None) -> None:
    """Do what the plan says.

    Args:
        plan: what to do.
        say: takes the lines that say what happens.
        outcome: where this process lives on for a session that is kept; without it nothing is kept.

    Raises:
        RehearsalError: the rehearsal failed.
        Interrupted: it was told to stop, and is.
    """
    finished: list[Report] = []
    kept = False

    def on_failure(rehearsal: Rehearsal, error: Exception) -> None:
        nonlocal kept
        failed = rehearsal.report(failure=str(error))
        _tell(failed, say)
        _write(plan, failed)
        if plan.keep_on_failure and outcome is not None and rehearsal.standing:
            rehearsal.mark(State.FAILED)
            say(f"failed: {error}")
            _say_kept(failed, plan.hours, say)
            kept = True
            outcome(1)
            _hold(plan.hours, lambda: None)

    with Rehearsal.deployed(
        plan.app_dir,
        context=plan.context,
        image=plan.image,
        rollback=not plan.keep_on_failure,
        emit=say,
        on_failure=on_failure,
    ) as rehearsal:
        if plan.verb is Verb.UP:
            up = rehearsal.report()
            _write(plan, up)
            _say_kept(up, plan.hours, say)
            if outcome is not None:
                outcome(0)
            _hold(plan.hours, rehearsal.raise_failure)
            return
        _smoke_tests(rehearsal, say)
        before = rehearsal.report()
        rehearsal.destroy()
        after = rehearsal.report()
        finished.append(replace(before, spans=after.spans, seconds=after.seconds, refused=after.refused))
    for done in finished:
        _tell(done, say)
        _write(plan, done)
    say("passed; nothing is left")


def _smoke_tests(rehearsal: Rehearsal, say: Callable[[str], None]) -> None:
    failed = []
    for head in rehearsal.heads:
        result = rehearsal.smoke_test(head)
        for line in report.smoke_test_lines(result):
            say(line)
        if not result.passed:
            failed.append(head)
    if failed:
        raise RehearsalError(f"the smoke test did not pass on {', '.join(failed)}")
    if not rehearsal.heads:
        say("the app has no head node of a cluster: no smoke test was run")


def _tell(told: Report, say: Callable[[str], None]) -> None:
    for line in told.lines():
        say(line)


def _write(plan: Plan, told: Report) -> None:
    if plan.json:
        plan.json.write_text(json.dumps(told.as_dict(), indent=2) + "\n")
    if plan.timeline:
        plan.timeline.write_text(timeline.render(told.spans, title=told.title))


def _say_kept(told: Report, hours: float, say: Callable[[str], None]) -> None:
    session = told.session
    without = "" if told.nodes else " without a machine, with its AWS APIs,"
    say(f"session {session} stays{without} for {hours:g} hours at most; look into it and end it by")
    visits = (f"shell --session {session} NODE", f"exec --session {session} NODE -- COMMAND") if told.nodes else ()
    for words in ("status", *visits, f"down --session {session}"):
        say(f"  {sys.executable} -m slurm_cluster.rehearsal {words}")


def _hold(hours: float, check: Callable[[], None]) -> None:
    """Wait until told to end, or for that many hours."""
    deadline = time.monotonic() + hours * 3600
    try:
        while time.monotonic() < deadline:
            check()
            time.sleep(_POLL_SECONDS)
    except Interrupted:
        return


def main(plan: str, outcome_descriptor: str) -> int:
    """Own the session of a plan as a process of its own; return the exit status."""
    outcome = int(outcome_descriptor)

    def lives_on(code: int) -> None:
        os.write(outcome, f"{code}\n".encode())
        os.close(outcome)

    try:
        perform(Plan.from_text(plan), lambda line: print(line, flush=True), lives_on)
    except Interrupted as interrupted:
        print(f"rehearsal {interrupted}; everything it made is removed")
        return 128 + interrupted.number
    except Exception as error:
        print(f"rehearsal failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
