"""Asks a rehearsed cluster what is wrong with it, by Run Command, as the smoke test's function does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slurm_cluster.rehearsal.session import Rehearsal
from slurm_cluster.runtime import probe_plan
from slurm_cluster.runtime.evidence import HEAD, Answer, Evidence, Machine
from slurm_cluster.runtime.functions.smoke_test.investigation import last_failure
from slurm_cluster.runtime.probe_plan import ProbeCall
from slurm_cluster.runtime.verdict import Verdict, findings


class Investigator:
    """Gathers evidence and judges it.

    Args:
        rehearsal: the deployed cluster.
    """

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal

    def gate(self, request_id: str, **options: int | str) -> dict[str, Any]:
        """Run the gate on the head with these options and return what it printed."""
        argv = ["--request-id", request_id]
        for name, value in options.items():
            argv += [f"--{name.replace('_', '-')}", str(value)]
        done = self._rehearsal.run_command(HEAD, f"slurm-cluster gate {' '.join(argv)}")
        result: dict[str, Any] = json.loads(done.stdout)
        assert done.exit_code == (0 if result["passed"] else 1), done
        return result

    def findings(self, gate: Answer | None = None) -> list[Verdict]:
        """Return every fault that probes show, the most fundamental first."""
        evidence = self._evidence(gate)
        while calls := probe_plan.plan(evidence):
            evidence = evidence.with_answers(self._answers(calls))
        print(json.dumps(evidence.to_dict(), indent=1))
        return findings(evidence)

    def findings_of_boots(self) -> list[Verdict]:
        """Return the faults that show while the gate waits for machines: agents, consoles, and what bootstraps say.

        As after the time that the smoke test's function waits.
        """
        instances = {name: node.instance_id for name, node in self._rehearsal.nodes.items()}
        ssm, ec2 = self._rehearsal.cloud.client("ssm"), self._rehearsal.cloud.client("ec2")
        known = ssm.describe_instance_information()["InstanceInformationList"]
        agents = {item["InstanceId"]: item["PingStatus"] for item in known}
        machines = {}
        for name, instance in instances.items():
            agent = agents.get(instance, "")
            console = "" if agent == "Online" else ec2.get_console_output(InstanceId=instance, Latest=True)["Output"]
            machines[name] = Machine(instance_id=instance, state="running", agent=agent, failure=last_failure(console))
        calls = [probe_plan.status_call(name) for name in instances if machines[name].agent == "Online"]
        evidence = Evidence(machines=machines, groups={}, answers=self._answers(calls), final=True)
        print(json.dumps(evidence.to_dict(), indent=1))
        return findings(evidence)

    def _evidence(self, gate: Answer | None) -> Evidence:
        nodes = self._rehearsal.nodes
        names = [HEAD, *sorted(set(nodes) - {HEAD})]
        ec2 = self._rehearsal.cloud.client("ec2")
        groups = {}
        for role, name in (("head", HEAD), ("worker", names[1])):
            (reservation,) = ec2.describe_instances(InstanceIds=[nodes[name].instance_id])["Reservations"]
            groups[role] = reservation["Instances"][0]["SecurityGroups"][0]["GroupId"]
        machines = {
            name: Machine(instance_id=nodes[name].instance_id, state="running", agent="Online") for name in names
        }
        return Evidence(machines=machines, groups=groups, gate=gate)

    def _answers(self, calls: Sequence[ProbeCall]) -> dict[str, Answer]:
        with ThreadPoolExecutor(max_workers=len(calls)) as pool:
            return dict(zip((call.id for call in calls), pool.map(self._answer, calls), strict=True))

    def _answer(self, call: ProbeCall) -> Answer:
        done = self._rehearsal.run_command(call.node, probe_plan.script(call), timeout=call.seconds)
        return probe_plan.answer(done.stdout, f"{done.status}: {done.stderr}")
