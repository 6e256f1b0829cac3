"""Which probes are run where, in which order; the smoke test's function only carries them out.

    while calls := plan(evidence):
        evidence = evidence.with_answers({call.id: answer(stdout, why) for each call, all at the same time})
    verdict = verdict.diagnose(evidence)

Each call is one Run Command on one machine: ``script(call)``, with ``call.seconds`` as its executionTimeout. Calls of
one round must run at the same time: in the second round every machine listens while it connects to the others.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_cluster.model.flows import PortRange, SlurmPorts
from slurm_cluster.model.node_files import COMMAND, DOCTOR_COMMAND, FAILURE_PREFIX
from slurm_cluster.runtime.evidence import HEAD, UNANSWERED, Answer, Evidence, without_middle

MOST_WORKERS = 4
"""Workers that are probed; a fault of the rules shows on any two."""

WINDOW_SECONDS = 20
"""How long machines listen for and connect to each other: agents start their commands seconds apart."""

STUCK_SECONDS = 60
"""How long a worker may wait for others before that is looked into."""

WAITING_STEPS = frozenset({"names", "head", "slurmd"})
"""Steps of a worker's bootstrap in which it waits for the head: a failure there has its cause elsewhere."""

DOCTOR_ID = f"doctor:{HEAD}"
"""Of the call that runs slurm-doctor on the head."""

_DOCTOR_SECONDS = 95
"""Ten more than what the doctor gives itself for all of it."""

_PROGRAMS = {command.name: command for command in (COMMAND, DOCTOR_COMMAND)}
_GATE_WORK_SECONDS = 600
_ONLINE = "Online"
_USER_DATA_LOG = "/var/log/cloud-init-output.log"


@dataclass(frozen=True, kw_only=True)
class ProbeCall:
    """One command on one machine.

    Args:
        id: key of its answer.
        node: ``head`` or a worker's Slurm node name.
        argv: the command, ``slurm-cluster`` or ``slurm-doctor`` first.
        seconds: after which it is given up.
    """

    id: str
    node: str
    argv: tuple[str, ...]
    seconds: int


def script(call: ProbeCall) -> str:
    """Return the shell script that carries a call out, also where user data has not brought the programs yet."""
    program = _PROGRAMS[call.argv[0]]
    command = " ".join(shlex.quote(word) for word in (str(program), *call.argv[1:]))
    return (
        f"[ -x {program} ] && exec {command}\n"
        f"said=$(grep -s '^{FAILURE_PREFIX}' {_USER_DATA_LOG} | tail -n 1)\n"
        # what ended without a word never came to the user data
        '[ "$said" ] || case $(cloud-init status 2>/dev/null) in *done* | *error* | *disabled*)\n'
        f'  said="{FAILURE_PREFIX} step=cloud-init reason=user data did not run: '
        "$(cloud-init status --long 2>&1 | tr '\\n' ' ')\" ;;\n"
        "esac\n"
        f"printf 'no {program} yet: %s\\n' \"$said\" >&2\n"
        "exit 127\n"
    )


def answer(stdout: str, why: str) -> Answer:
    """Return the answer to a call: the JSON object that it printed, or else that and why it printed none.

    Args:
        stdout: what Run Command says it printed.
        why: status and standard error, for the case that it is no JSON object.
    """
    try:
        value = json.loads(stdout)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {UNANSWERED: without_middle(why.strip(), 600) or "no output"}


def status_call(node: str) -> ProbeCall:
    """Return the call that tells how far a machine's bootstrap is; for ``stuck``, while the gate waits."""
    return ProbeCall(id=f"status:{node}", node=node, argv=("slurm-cluster", "probe", "--status"), seconds=30)


def stuck(status: Answer) -> bool:
    """Return whether an answer to ``status_call`` is a reason to probe and diagnose before the gate has ended.

    A failed bootstrap is one at once, and so is user data that has failed before it; waiting for other machines is one
    after a minute.
    """
    if FAILURE_PREFIX in str(status.get(UNANSWERED, "")):
        return True
    seen = status.get("status")
    if not isinstance(seen, Mapping):
        return False
    if seen.get("state") == "failed":
        return True
    waiting = seen.get("state") == "running" and seen.get("step") in WAITING_STEPS
    seconds = seen.get("seconds")
    return waiting and isinstance(seconds, int | float) and seconds >= STUCK_SECONDS


def gate_call(request_id: str, *, phase: str, on_update: str, wait: int, apply_only: bool = False) -> ProbeCall:
    """Return the call that runs the gate on the head.

    Args:
        request_id: CloudFormation's RequestId.
        phase: ``create`` or ``update``.
        on_update: ``free`` or ``all``.
        wait: seconds to wait for bootstrap and the workers.
        apply_only: whether it is enough that the head has taken up its configuration.
    """
    options = ["--request-id", request_id, "--phase", phase, "--on-update", on_update, "--wait", str(wait)]
    options += ["--apply-only"] if apply_only else []
    seconds = 2 * wait + _GATE_WORK_SECONDS  # the gate of another request may have to end first
    return ProbeCall(id="gate", node=HEAD, argv=("slurm-cluster", "gate", *options), seconds=seconds)


def plan(evidence: Evidence) -> list[ProbeCall]:
    """Return the calls to make next, none when nothing more can be found out.

    First each machine in question says what it knows of itself; then, knowing all addresses, they meet. Once the gate
    has ended the doctor goes round meanwhile: before, its jobs could keep the gate from nodes.
    """
    stage = (evidence.gate or {}).get("stage")
    if not _reachable(evidence, HEAD) or stage == "bootstrap":
        return []
    # what keeps the head from its configuration is no worker
    workers = [] if stage == "apply" else suspects(evidence)
    machines = [HEAD, *(name for name in workers if _reachable(evidence, name))]
    facts = [_facts_call(name) for name in machines if f"facts:{name}" not in evidence.answers]
    if evidence.gate is not None and stage != "apply" and DOCTOR_ID not in evidence.answers:
        facts.append(_doctor_call(suspects(evidence)))
    if facts:
        return facts
    addresses = {name: found for name in machines if (found := address(evidence, name))}
    meetings = [name for name in addresses if f"meet:{name}" not in evidence.answers]
    return [_meet_call(evidence, name, addresses) for name in meetings] if len(addresses) > 1 else []


def questioned(evidence: Evidence) -> list[str]:
    """Return the workers that something is known to be wrong with."""
    gate = evidence.gate or {}
    named: dict[str, None] = {}
    if gate.get("stage") == "workers":
        named.update(dict.fromkeys(gate["table"]))
    for check in gate.get("checks", ()):
        if check["passed"] is False:
            named.update(dict.fromkeys(check["nodes"]))
    named.update(dict.fromkeys(name for name in evidence.workers if stuck(evidence.answers.get(f"status:{name}", {}))))
    return [name for name in named if name in evidence.machines]


def suspects(evidence: Evidence) -> list[str]:
    """Return the workers to probe: those in question first, then one that is not, for comparison."""
    asked = questioned(evidence)[:MOST_WORKERS]
    others = [name for name in evidence.workers if name not in asked and _reachable(evidence, name)]
    if not asked:
        return others[:MOST_WORKERS]
    return [*asked, *others[: 1 if len(asked) < MOST_WORKERS else 0]]


def address(evidence: Evidence, node: str) -> str:
    """Return the address that a machine says it has, empty if it has not answered."""
    return evidence.fact(node, "address") or ""


def listen_ports(ports: SlurmPorts) -> tuple[int, ...]:
    """Return the ports that stand for the srun range: both ends and the middle, without the daemons' own."""
    daemons = {ports.slurmctld, ports.slurmd}
    inside = [port for port in _points(ports.srun) if port not in daemons]
    return tuple(dict.fromkeys(inside))


def _points(wanted: PortRange) -> tuple[int, int, int]:
    return wanted.first, (wanted.first + wanted.last) // 2, wanted.last


def _reachable(evidence: Evidence, node: str) -> bool:
    machine = evidence.machines.get(node)
    return machine is not None and machine.agent == _ONLINE


def _facts_call(node: str) -> ProbeCall:
    return ProbeCall(id=f"facts:{node}", node=node, argv=("slurm-cluster", "probe"), seconds=60)


def _doctor_call(workers: Sequence[str]) -> ProbeCall:
    return ProbeCall(id=DOCTOR_ID, node=HEAD, argv=(DOCTOR_COMMAND.name, "--json", *workers), seconds=_DOCTOR_SECONDS)


def _meet_call(evidence: Evidence, node: str, addresses: Mapping[str, str]) -> ProbeCall:
    ports = evidence.ports
    own = ports.slurmctld if node == HEAD else ports.slurmd
    targets = []
    for other, where in addresses.items():
        if other != node:
            daemon = ports.slurmctld if other == HEAD else ports.slurmd
            targets += [f"{where}:{port}" for port in (daemon, *listen_ports(ports))]
    argv = ["slurm-cluster", "probe", "--seconds", str(WINDOW_SECONDS)]
    argv += ["--listen", *map(str, listen_ports(ports)), "--watch", str(own), "--connect", *targets]
    if node == HEAD:
        workers = [other for other in addresses if other != HEAD]
        names = [name for other in workers for name in (other, evidence.fact(other, "hostname"))]
    else:
        names = [evidence.fact(HEAD, "head_host")]
        if credential := evidence.fact(HEAD, "credential"):
            argv += ["--credential", credential]
    if known := dict.fromkeys(name for name in names if name):
        argv += ["--resolve", *known]
    return ProbeCall(id=f"meet:{node}", node=node, argv=tuple(argv), seconds=WINDOW_SECONDS + 40)
