"""Follows a cluster until a job ran on each of its static workers, or until it is known why none will."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from slurm_cluster.model.node_files import COMMAND, INSTALL_DIR
from slurm_cluster.runtime import probe_plan, verdict
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Answer, Evidence, Machine
from slurm_cluster.runtime.fault import Verdict
from slurm_cluster.runtime.functions.smoke_test.cloud import Cloud, Instance, passes
from slurm_cluster.runtime.functions.smoke_test.investigation import Commands, investigate, last_failure
from slurm_cluster.runtime.functions.smoke_test.request import Progress, Request, Settings
from slurm_cluster.runtime.probe_plan import ProbeCall

logger = logging.getLogger()

POLL_SECONDS = 3.0
LOOK_SECONDS = 15.0
"""Between two looks at machines, consoles and bootstraps."""

AGENT_SECONDS = 300
"""How long after its start an instance may be without an SSM agent: the first boot may have to install it."""

PATIENCE_SECONDS = 120
"""The same after the request came, for an instance that started long before."""

SETTLE_SECONDS = 30
"""How long workers may need once the head is ready, before it is looked into why they do not come."""

AGAIN_SECONDS = 60
"""Between two searches for a cause when the first found none."""

DIAGNOSIS_SECONDS = 210
"""Kept at the end of the budget to find out why: two rounds of probes, of which some may never answer."""

QUIET_SECONDS = 60
"""Before that, no new look begins: it would take the time that is kept."""

GATE_MARGIN_SECONDS = 30
"""The same for the gate on the head, which then says itself for whom it has waited in vain."""

MOST_SENDS = 3
"""How often the gate is sent to the head while no answer comes."""

NEW_SECONDS = 1800
"""An instance that started so long before the request at most is one of this deployment's."""

_MOST_MACHINES = 20
"""Workers that are looked at in one turn: the cause of one is the cause of most."""

_GONE = frozenset({"stopping", "stopped", "shutting-down", "terminated"})
_ONLINE = "Online"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How it ended.

    Args:
        evidence: what was found out on the way.
        verdict: why the cluster is not ready; None when it is.
    """

    evidence: Evidence
    verdict: Verdict | None = None

    def data(self) -> dict[str, str]:
        """Return the attributes of the custom resource."""
        gate = self.evidence.gate or {}
        hosts = gate.get("nodes") or {}
        return {
            "Hosts": ",".join(f"{node}={str(host).split('.')[0]}" for node, host in hosts.items()) or "not tested",
            "Output": str(gate.get("output") or ""),
        }


def is_apply_only(request: Request, settings: Settings) -> bool:
    """Return whether it is enough that the head takes up its configuration."""
    return not request.workers or (request.is_update and settings.on_update == "off")


def gate_call(request: Request, settings: Settings, wait_seconds: int, *, users: bool) -> ProbeCall:
    """Return the call that has the head apply its parameters, wait for its workers, and test.

    Args:
        request: what is asked for.
        settings: how.
        wait_seconds: how long it waits.
        users: whether the cluster may run somebody's jobs.
    """
    return probe_plan.gate_call(
        request.request_id,
        phase="update" if users else "create",
        on_update="free" if settings.on_update == "off" else settings.on_update,
        wait=wait_seconds,
        apply_only=is_apply_only(request, settings),
    )


def gate_script(call: ProbeCall, wait_seconds: int) -> str:
    """Return the script of such a call."""
    # what is waited for the programs is not waited again
    options = shlex.join(call.argv[1:]).replace(f"--wait {wait_seconds}", f"--wait $(({wait_seconds} - n))")
    return (
        # user data may still be installing what brings the programs
        f"n=0\nuntil [ -x {COMMAND} ]; do n=$((n + 2)); [ $n -lt {wait_seconds} ] || exit 127; sleep 2; done\n"
        # programs of a release that had no gate bring those that have one
        f"[ -e {INSTALL_DIR}/current/slurm_cluster/runtime/node/gate.py ] || {COMMAND} apply > /dev/null\n"
        f"exec {COMMAND} {options}\n"
    )


@dataclass(kw_only=True)
class Watch:
    """One request, as far as one invocation of the function follows it.

    Args:
        request: what is asked for.
        settings: how.
        progress: how far it is; changed on the way.
        cloud: AWS.
        clock: seconds since the epoch.
        sleep: waits.
    """

    request: Request
    settings: Settings
    progress: Progress
    cloud: Cloud
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    _looked: float = field(default=float("-inf"), init=False)

    @property
    def deadline(self) -> float:
        """When the search for the cause begins, whatever goes on."""
        return self.progress.started + self.settings.budget_seconds - DIAGNOSIS_SECONDS

    @property
    def commands(self) -> Commands:
        """Runs commands on the machines."""
        return Commands(cloud=self.cloud, clock=self.clock, sleep=self.sleep)

    def run(self, until: float) -> Finding | None:
        """Return how it ended, None when ``until`` comes first."""
        while True:
            now = self.clock()
            looks = now - self._looked >= LOOK_SECONDS and now < self.deadline - QUIET_SECONDS
            try:
                finding = self._gate(now) or (self._look(now) if looks else None)
            except (BotoCoreError, ClientError) as error:
                if now >= self.deadline or not passes(error):
                    raise
                logger.warning("asked again: %s", error)
                finding = None
            if finding is None and now >= self.deadline:
                finding = self._conclude(self._evidence(self._machines(self._instances())), final=True)
            if finding is not None or now >= until:
                return finding
            self.sleep(POLL_SECONDS)

    def report(self, finding: Finding, found: Verdict) -> dict[str, Any]:
        """Return everything that is known of a test that did not pass, for the log group."""
        return {
            "request_id": self.request.request_id,
            "request_type": self.request.request_type,
            "stack_id": self.request.stack_id,
            "verdict": found.to_dict(),
            "findings": [item.to_dict() for item in verdict.findings(finding.evidence)],
            "evidence": finding.evidence.to_dict(),
        }

    def _gate(self, now: float) -> Finding | None:
        """Return the end of the gate on the head, None before it."""
        if not self.progress.command:
            return None
        head = self.request.instances[HEAD]
        outcome = self.commands.outcome(self.progress.command, head, now - self.progress.sent)
        if outcome is None:
            return None
        gate = probe_plan.answer(outcome.stdout, outcome.why)
        logger.info("the gate on the head ended: %s", outcome.why)
        if outcome.succeeded and gate.get("passed") is True:
            return Finding(evidence=self._evidence({}, gate=gate))
        self.progress.command = ""
        if UNANSWERED in gate and self.progress.sends < MOST_SENDS and now < self.deadline:
            return None  # the head or its agent was restarted; it remembers the request
        return self._conclude(self._evidence(self._machines(self._instances()), gate=gate), final=True)

    def _look(self, now: float) -> Finding | None:
        """Return a finding when something shows that waiting is of no use."""
        self._looked = now
        instances = self._instances()
        machines = self._machines(instances)
        if not self.progress.command and machines[HEAD].agent == _ONLINE:
            self._send_gate(now, instances)
        late = list(self._late(now, machines, instances))
        statuses = self._statuses(now, machines)
        trouble = [
            *(f"{name} is {item.state}" for name, item in machines.items() if item.state in _GONE),
            *(f"{name}: {item.failure}" for name, item in machines.items() if item.failure),
            *(f"{name} has no agent" for name in late),
            *self._stuck(now, statuses),
        ]
        if not trouble or (self.progress.looked is not None and now - self.progress.looked < AGAIN_SECONDS):
            return None
        logger.info("looking for the cause of: %s", "; ".join(trouble))
        # who is late will not come
        return self._conclude(self._evidence(machines, statuses, final=bool(late)), final=False)

    def _send_gate(self, now: float, instances: dict[str, Instance]) -> None:
        wait, head = max(60, int(self.deadline - now) - GATE_MARGIN_SECONDS), self.request.instances[HEAD]
        call = gate_call(self.request, self.settings, wait, users=self._may_have_users(instances))
        sent = self.cloud.send([head], gate_script(call, wait), call.seconds)
        self.progress.command, self.progress.sent = sent.get(head, ""), now
        self.progress.sends += 1

    def _late(self, now: float, machines: dict[str, Machine], instances: dict[str, Instance]) -> Iterable[str]:
        """Yield the machines whose agent should be there by now; workers only if the head waits for them."""
        if now < self.progress.started + PATIENCE_SECONDS:
            return
        for name, machine in machines.items():
            instance = instances.get(machine.instance_id)
            counts = name == HEAD or (self._head_settled(now) and name not in self.progress.ready)
            if counts and instance and machine.agent != _ONLINE and now > instance.launched + AGENT_SECONDS:
                yield name

    def _statuses(self, now: float, machines: dict[str, Machine]) -> dict[str, Answer]:
        """Return how far the bootstraps are that are not known to be done, by the id of the call."""
        done = {*self.progress.ready, *([] if self.progress.head_ready is None else [HEAD])}
        online = [name for name, item in machines.items() if item.agent == _ONLINE and name not in done]
        calls = [probe_plan.status_call(name) for name in online[:_MOST_MACHINES]]
        answers = self.commands.run_all(calls, self.request.instances)
        for call in calls:
            if (answers[call.id].get("status") or {}).get("state") == "ready":
                if call.node == HEAD:
                    self.progress.head_ready = now
                else:
                    self.progress.ready.append(call.node)
        return answers

    def _stuck(self, now: float, statuses: dict[str, Answer]) -> Iterable[str]:
        """Yield what the bootstraps say of being stuck or failed."""
        for name, answer in statuses.items():
            status = answer.get("status") or {}
            failed = status.get("state") == "failed" or UNANSWERED in answer
            if probe_plan.stuck(answer) and (failed or self._head_settled(now)):
                yield f"{name} is {status.get('state', 'without programs')} in step {status.get('step', 'user data')}"

    def _head_settled(self, now: float) -> bool:
        return self.progress.head_ready is not None and now - self.progress.head_ready >= SETTLE_SECONDS

    def _may_have_users(self, instances: dict[str, Instance]) -> bool:
        """Return whether somebody's jobs may run: also when the test itself is new, as for a cluster that had none."""
        head = instances.get(self.request.instances[HEAD])
        return self.request.is_update or (head is not None and not self._is_new(head))

    def _is_new(self, instance: Instance) -> bool:
        return instance.launched > self.progress.started - NEW_SECONDS

    def _is_in_question(self, name: str, instance: Instance | None, agent: str, *, users: bool) -> bool:
        """Return whether a machine may be why the cluster is not ready.

        An update that tests free nodes is not held up by a worker that went down long before: neither it nor a
        rollback would bring that one back.
        """
        if name == HEAD:
            return True
        if is_apply_only(self.request, self.settings):
            return False
        serves = instance is not None and instance.state == "running" and agent == _ONLINE
        is_new = instance is not None and self._is_new(instance)
        return serves or is_new or not users or self.settings.on_update == "all"

    def _instances(self) -> dict[str, Instance]:
        return self.cloud.instances(list(self.request.instances.values()))

    def _machines(self, instances: dict[str, Instance]) -> dict[str, Machine]:
        """Return what AWS says of the machines in question; the consoles of those whose agent does not answer."""
        agents = self.cloud.agents(list(self.request.instances.values()))
        users = self._may_have_users(instances)
        machines = {}
        consoles = 0
        for name, instance_id in self.request.instances.items():
            instance, agent = instances.get(instance_id), agents.get(instance_id, "")
            if not self._is_in_question(name, instance, agent, users=users):
                continue
            failure = ""
            if agent != _ONLINE and name not in self.progress.ready and consoles < _MOST_MACHINES:
                failure, consoles = last_failure(self.cloud.console(instance_id)), consoles + 1
            machines[name] = Machine(
                instance_id=instance_id, state=instance.state if instance else "", agent=agent, failure=failure
            )
        return machines

    def _evidence(
        self,
        machines: dict[str, Machine],
        answers: dict[str, Answer] | None = None,
        *,
        gate: Answer | None = None,
        final: bool = True,
    ) -> Evidence:
        return Evidence(
            machines=machines,
            groups=self.request.groups,
            ports=self.request.ports,
            gate=gate,
            answers=answers or {},
            final=final,
        )

    def _conclude(self, evidence: Evidence, *, final: bool) -> Finding | None:
        """Search for the cause; return it if it is certain, or if this is the end."""
        evidence = investigate(self.commands, self.request, evidence)
        found = verdict.diagnose(evidence)
        logger.info("found: %s", found.reason)
        if not (final or found.certain):
            self.progress.looked = self.clock()
            return None
        if self.progress.command:
            self.cloud.cancel(self.progress.command, self.request.instances[HEAD])
        return Finding(evidence=evidence, verdict=found)
