"""What is known of a cluster that is not ready, as plain data: what the smoke test's function passes on to itself.

``head`` is the head's name here; workers go by their Slurm node names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from slurm_cluster.model.flows import PortRange, Role, SlurmPorts
from slurm_cluster.model.node_files import FAILURE_PREFIX, READY_LINE
from slurm_cluster.model.node_states import NEVER_SEEN

HEAD = "head"
UNANSWERED = "unanswered"
"""Only member of the answer to a probe call that brought none; its value says why."""

Answer = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What AWS says of one instance.

    Args:
        instance_id: its id.
        state: EC2's state name, e.g. ``running``; empty where nobody looked.
        agent: PingStatus of its SSM agent, e.g. ``Online``; empty if it never registered.
        failure: the last ``slurm-cluster: FAILED`` line of its console, see ``console_failure``; empty if none.
    """

    instance_id: str
    state: str = ""
    agent: str = ""
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything a verdict is made of.

    Args:
        machines: head and static workers by name.
        groups: security group ids of ``head`` and ``worker``.
        ports: Slurm's ports.
        gate: what ``slurm-cluster gate`` on the head printed, None while it has printed nothing.
        answers: by the id of the probe call, see ``probe_plan.plan``.
        final: whether nobody waits any longer, so that what is not there is missing and not late; with the gate's
            result it is so anyway.
        foreign: whether something else than this package made the machines: they have no bootstrap to wait for.
    """

    machines: Mapping[str, Machine]
    groups: Mapping[str, str]
    ports: SlurmPorts = field(default_factory=SlurmPorts)
    gate: Answer | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict)
    final: bool = False
    foreign: bool = False

    @property
    def waiting(self) -> bool:
        """Whether what is not there may still come."""
        return not self.final and self.gate is None

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of the static workers, in the order given."""
        return tuple(name for name in self.machines if name != HEAD)

    def role(self, node: str) -> Role:
        """Return the role of a machine."""
        return Role.HEAD if node == HEAD else Role.WORKER

    def fact(self, node: str, name: str) -> Any:
        """Return what a machine says of itself under this name, None if it does not say or cannot."""
        found = self.answers.get(f"facts:{node}", {}).get(name)
        return None if isinstance(found, dict) and "error" in found else found

    def met(self, node: str, name: str) -> Any:
        """Return what a machine found out about others under this name, None if it has not."""
        found = self.answers.get(f"meet:{node}", {}).get(name)
        return None if isinstance(found, dict) and "error" in found else found

    def settled(self, node: str) -> bool:
        """Whether a machine has come as far as it will by itself, so that a daemon that is not there is down."""
        status = self.fact(node, "status")
        if self.foreign or status is not None:
            return self.foreign or status["state"] == "ready"
        # it does not say, but its slurmd has registered once, if not since slurmctld was started
        row = (self.fact(HEAD, "nodes") or {}).get(node) or {}
        state = row.get("state", "")
        return bool(row.get("version") or (state and not NEVER_SEEN & set(state.split("+"))))

    def addresses(self, node: str) -> tuple[str, ...]:
        """Return the addresses of a machine as far as known, the one it uses towards the others first."""
        own = self.fact(node, "address")
        return tuple(dict.fromkeys((*([own] if own else ()), *(self.fact(node, "addresses") or ()))))

    def with_answers(self, answers: Mapping[str, Answer]) -> Self:
        """Return it with more answers."""
        return replace(self, answers={**self.answers, **answers})

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` returned."""
        ports = dict(value["ports"])
        ports["srun"] = PortRange(**ports["srun"])
        machines = {name: Machine(**machine) for name, machine in value["machines"].items()}
        return cls(**{**value, "ports": SlurmPorts(**ports), "machines": machines})


def without_middle(text: str, length: int) -> str:
    """Return a text cut in its middle: its beginning says what failed, and its end mostly why."""
    if len(text) <= length:
        return text
    beginning = length // 3
    return f"{text[:beginning]} ... {text[beginning + 5 - length :]}"


def console_failure(text: str) -> str:
    """Return the last line of a console that says why a boot failed, empty if there is none that was not overcome.

    It counts only for a machine whose agent does not answer; where the agent answers, ``probe`` tells what became of
    the present boot.
    """
    lines = [line for line in text.rpartition(READY_LINE)[2].splitlines() if FAILURE_PREFIX in line]
    return lines[-1][lines[-1].index(FAILURE_PREFIX) :].strip() if lines else ""


def parse_failure(line: str) -> tuple[str, str]:
    """Return step and reason of a line of ``console_failure``."""
    found = re.search(r"step=(\S+) reason=(.*)", line)
    return (found[1], found[2]) if found else ("unknown", line)
