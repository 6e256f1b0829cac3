"""Carries out the probes that a verdict needs, each round on all its machines at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import UNANSWERED, Answer, Evidence, console_failure
from slurm_cluster.runtime.functions.smoke_test.cloud import Cloud, Outcome, UnknownCommand
from slurm_cluster.runtime.functions.smoke_test.request import Request
from slurm_cluster.runtime.probe_plan import ProbeCall
from slurm_cluster.runtime.verdict import readable

PAUSE = 2.0
UNKNOWN_SECONDS = 30
"""How long a command that was just sent may be unknown."""

_DELIVERY_SECONDS = 20
"""What a command takes beside its own time."""

_ROUNDS = 4
_LAST_BOOT = re.compile(r"^.*\[ +0\.000000\] Linux version ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Runs commands on machines and waits for them.

    Args:
        cloud: AWS.
        clock: seconds since the epoch.
        sleep: waits.
    """

    cloud: Cloud
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def run_all(self, calls: Sequence[ProbeCall], instances: Mapping[str, str]) -> dict[str, Answer]:
        """Run calls at the same time and return what each printed, or why it printed nothing, by its id."""
        answers: dict[str, Answer] = {}
        running: dict[str, tuple[ProbeCall, str]] = {}
        for (text, seconds), alike in _alike(calls).items():
            sent = self.cloud.send([instances[call.node] for call in alike], text, seconds)
            for call in alike:
                if instances[call.node] in sent:
                    running[call.id] = (call, sent[instances[call.node]])
                else:
                    answers[call.id] = {UNANSWERED: "the SSM agent of this machine takes no commands"}
        began = self.clock()
        while running:
            waited = self.clock() - began
            for key, (call, command) in list(running.items()):
                outcome = self.outcome(command, instances[call.node], waited)
                if outcome is None and waited > call.seconds + _DELIVERY_SECONDS:
                    outcome = Outcome(succeeded=False, stdout="", why=f"no end after {waited:.0f} seconds")
                if outcome is not None:
                    answers[key] = probe_plan.answer(outcome.stdout, outcome.why)
                    del running[key]
            if running:
                self.sleep(PAUSE)
        return answers

    def outcome(self, command: str, instance_id: str, waited: float) -> Outcome | None:
        """Return how a command ended, None while it runs.

        Args:
            command: its id.
            instance_id: where it runs.
            waited: seconds since it was sent.
        """
        try:
            return self.cloud.outcome(command, instance_id)
        except UnknownCommand:
            if waited < UNKNOWN_SECONDS:
                return None
            return Outcome(succeeded=False, stdout="", why="Systems Manager does not know the command")


def _alike(calls: Sequence[ProbeCall]) -> dict[tuple[str, int], list[ProbeCall]]:
    """Return the calls by what is run: one command serves many machines."""
    found: dict[tuple[str, int], list[ProbeCall]] = {}
    for call in calls:
        found.setdefault((probe_plan.script(call), call.seconds), []).append(call)
    return found


def last_failure(console: str) -> str:
    """Return the failure that a console shows of the last boot in it."""
    boots = list(_LAST_BOOT.finditer(console))
    return console_failure(console[boots[-1].start() :] if boots else console)


def investigate(commands: Commands, request: Request, evidence: Evidence) -> Evidence:
    """Return the evidence with the answers to all probes that bear on it."""
    evidence = readable(evidence)
    for _ in range(_ROUNDS):
        calls = probe_plan.plan(evidence)
        if not calls:
            break
        evidence = readable(evidence.with_answers(commands.run_all(calls, request.instances)))
    return evidence
