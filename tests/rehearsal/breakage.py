"""Ways to break a live cluster and to mend it again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_cluster.model.flows import SlurmPorts, cluster_flows
from slurm_cluster.model.node_files import NODE_TAG
from slurm_cluster.rehearsal.session import Rehearsal
from slurm_cluster.runtime.node.units import BOOTSTRAP
from tests.rehearsal.breakage_scripts import DATA_SOURCE_AGAIN, NO_DATA_SOURCE
from tests.rehearsal.closing import closed
from tests.rehearsal.cluster_user import ClusterUser, wait_until
from tests.rehearsal.role_probes import Role, lacking_one_statement, listed, roles_of

STACK = "SlurmCluster"
_FLOWS = cluster_flows(SlurmPorts())
_LIBRARY = "/opt/faketime.so"
_TROUBLE_SECONDS = 60
_BOOT_SECONDS = 60


@dataclass(frozen=True)
class Bench:
    """The cluster that is broken, from outside and from inside."""

    rehearsal: Rehearsal
    cluster: ClusterUser

    def root(self, node: str, script: str, *, timeout: float = 60) -> str:
        """Run a shell script on a node, which ends at the first command that fails; return what it printed."""
        done = self.cluster.root(self.rehearsal.nodes[node], f"set -e\n{script}", timeout=timeout)
        assert done.returncode == 0, (node, script, done.stdout, done.stderr)
        return done.stdout

    def worker_role(self) -> Role:
        """Return the role of the workers: the one that may read parameters and may not look at volumes."""
        roles = roles_of(self.rehearsal.cloud, "ec2", STACK)
        (found,) = [role for role in roles if "ec2:DescribeVolumes" not in str(role.policies)]
        return found


Breakage = Callable[[Bench], AbstractContextManager[None]]
"""Breaks something before the block and mends it after."""


def scripts(node: str, break_it: str, mend_it: str) -> Breakage:
    """One script on a node before, another one after."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        try:
            bench.root(node, break_it)
            yield
        finally:
            bench.root(node, mend_it, timeout=120)

    return broken


def closing(*flow_ids: str) -> Breakage:
    """The network drops what opens a connection of these flows."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        with ExitStack() as closures:
            for flow in _FLOWS:
                if flow.id in flow_ids:
                    closures.enter_context(closed(bench.rehearsal, flow, _FLOWS))
            yield

    return broken


def other_clock(node: str) -> Breakage:
    """Munge's clock is ten minutes ahead; the kernel's is that of all machines here."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    drop_in = "/run/systemd/system/munge.service.d/90-clock.conf"
    setting = f"Environment=LD_PRELOAD={_LIBRARY} FAKETIME=+600 FAKETIME_DONT_FAKE_MONOTONIC=1"
    restart = "systemctl daemon-reload; systemctl restart munge"

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        assert library is not None, "libfaketime is not installed: see requirements-system.txt"
        inside = bench.rehearsal.nodes[node].machine.root / _LIBRARY.lstrip("/")
        inside.write_bytes(library.read_bytes())
        inside.chmod(0o755)
        begin = f"mkdir -p {Path(drop_in).parent}\nprintf '[Service]\\n{setting}\\n' > {drop_in}\n{restart}"
        with scripts(node, begin, f"rm {drop_in}; {restart}; rm {_LIBRARY}")(bench):
            yield

    return broken


def lacking(action: str) -> Breakage:
    """The workers' role has no statement that allows an action."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        role = bench.worker_role()
        without: list[dict[str, Any]] = [
            policies
            for statement, policies in lacking_one_statement(role.policies)
            if action in listed(statement["Action"])
        ]
        assert len(without) == 1, role.policies
        role.put(without[0])
        try:
            yield
        finally:
            role.put(role.policies)

    return broken


def without_agent(node: str) -> Breakage:
    """The SSM agent does not run, and Systems Manager knows."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        member = bench.rehearsal.nodes[node].member
        # the emulated Systems Manager registers whom it finds online when it is asked
        bench.rehearsal.cloud.client("ssm").describe_instance_information()
        with scripts(node, "systemctl stop amazon-ssm-agent", "systemctl start amazon-ssm-agent")(bench):
            wait_until(lambda: not member.agent_online, seconds=20, what=f"no agent of {node}")
            yield
        wait_until(lambda: member.agent_online, seconds=20, what=f"an agent of {node}")

    return broken


def bootstrap_waits(node: str, breakage: Breakage) -> Breakage:
    """Bootstrap runs again, meets a trouble and goes on trying; afterwards once more, and succeeds."""
    return _bootstrapping(node, breakage, '"trouble"', "meets a trouble")


def bootstrap_fails(node: str, breakage: Breakage) -> Breakage:
    """Bootstrap runs again and fails; afterwards once more, and succeeds."""
    return _bootstrapping(node, breakage, '"state": "failed"', "fails")


def _bootstrapping(node: str, breakage: Breakage, sign: str, what: str) -> Breakage:
    """Bootstrap runs again around a breakage until its status has a sign; after that is mended it runs once more."""
    # systemd would not start it for a sixth time in ten seconds, as machines that are fast come to
    restart = f"systemctl reset-failed {BOOTSTRAP}; systemctl restart {BOOTSTRAP}"

    @contextmanager
    def running(bench: Bench) -> Iterator[None]:
        bench.root(node, f"{restart} --no-block")
        try:
            wait_until(
                lambda: sign in bench.root(node, "cat /var/lib/slurm-cluster/status.json"),
                seconds=_TROUBLE_SECONDS,
                what=f"bootstrap of {node} {what}",
            )
            yield
        finally:
            # it may still wait for what is mended around this block, and only a new one starts at once
            bench.root(node, f"systemctl stop {BOOTSTRAP}")

    return nested(scripts(node, "true", restart), breakage, running)


def emptied(parameter: str) -> Breakage:
    """A parameter of the cluster holds an empty object; it bears on no node that does not bootstrap."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        path = json.loads(bench.root("head", "cat /etc/slurm-cluster/node.json"))["parameter_path"]
        ssm, name = bench.rehearsal.cloud.client("ssm"), f"{path}/{parameter}"
        before = ssm.get_parameter(Name=name)["Parameter"]["Value"]
        ssm.put_parameter(Name=name, Value="{}", Type="String", Overwrite=True)
        try:
            yield
        finally:
            ssm.put_parameter(Name=name, Value=before, Type="String", Overwrite=True)

    return broken


def overcome(breakage: Breakage) -> Breakage:
    """It was broken and is mended before anybody asks."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        with breakage(bench):
            pass
        yield

    return broken


def without_profile(like: str, node: str) -> Breakage:
    """There is one more machine, launched like another one but without an instance profile."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        rehearsal = bench.rehearsal
        ec2 = rehearsal.cloud.client("ec2")
        (reservation,) = ec2.describe_instances(InstanceIds=[rehearsal.nodes[like].instance_id])["Reservations"]
        model = reservation["Instances"][0]
        launched = ec2.run_instances(
            ImageId=model["ImageId"],
            InstanceType=model["InstanceType"],
            SubnetId=model["SubnetId"],
            SecurityGroupIds=[group["GroupId"] for group in model["SecurityGroups"]],
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": NODE_TAG, "Value": node}]}],
            MinCount=1,
            MaxCount=1,
        )["Instances"][0]["InstanceId"]
        try:
            wait_until(
                lambda: node in rehearsal.nodes and rehearsal.nodes[node].member.agent_online,
                seconds=_BOOT_SECONDS,
                what=f"the agent of {node} runs",
            )
            yield
        finally:
            ec2.terminate_instances(InstanceIds=[launched])
            wait_until(lambda: node not in rehearsal.nodes, seconds=_BOOT_SECONDS, what=f"{node} is gone")

    return broken


def restarting(node: str) -> Breakage:
    """slurmd is started anew; around a breakage also after it is mended, so that nobody waits for slurmctld's ping."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        restart = "systemctl restart --no-block slurmd"
        try:
            bench.root(node, f"{restart}; sleep 1")
            yield
        finally:
            # what slurmd did not hear of the end of its job, slurmctld would say again after a minute
            node_is = f"scontrol update nodename={node}"
            bench.cluster.root(bench.cluster.head, f"{node_is} state=down reason=mended; {node_is} state=resume")
            bench.root(node, restart)

    return broken


def resumed(node: str) -> Breakage:
    """Nothing, and afterwards what drained the node is over."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        try:
            yield
        finally:
            bench.cluster.root(bench.cluster.head, f"scontrol update nodename={node} state=resume")

    return broken


def nested(*breakages: Breakage) -> Breakage:
    """One after the other; they are mended in reverse order."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        with ExitStack() as stack:
            for breakage in breakages:
                stack.enter_context(breakage(bench))
            yield

    return broken


_SERVES = "for n in $(seq 100); do ! scontrol ping | grep -q 'is UP' || break; sleep 0.2; done"


def in_slurm_conf(*edits: str, until: str = "true") -> Breakage:
    """The head's slurm.conf is another one, by sed; slurmctld alone was restarted with it, and ``until`` has ended."""
    changed = " ".join(f"-e '{edit}'" for edit in edits)
    file = "/etc/slurm/slurm.conf"
    own = scripts(
        "head",
        f"sed -i.whole {changed} {file}\n! cmp -s {file} {file}.whole\nsystemctl restart slurmctld\n{_SERVES}\n{until}",
        f"mv {file}.whole {file}\nsystemctl restart slurmctld\n{_SERVES}",
    )

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        try:
            with own(bench):
                yield
        finally:
            for worker in bench.cluster.workers:
                bench.root(worker.name, "systemctl restart --no-block slurmd")
            # a node that was refused is drained once it has registered rightly
            bench.root("head", "for n in $(seq 100); do sinfo -hN -o %T | grep -q inval || break; sleep 0.2; done")
            bench.cluster.root(bench.cluster.head, "scontrol update nodename=ALL state=resume")

    return broken


def without_data_source(node: str) -> Breakage:
    """The first boot of a machine on which cloud-init fails; afterwards a first boot that succeeds."""

    @contextmanager
    def broken(bench: Bench) -> Iterator[None]:
        machine = bench.rehearsal.nodes[node]
        bench.root(node, NO_DATA_SOURCE)
        before = machine.boot_id
        machine.machine.reboot()
        try:
            wait_until(
                lambda: machine.boot_id != before and machine.member.agent_online,
                seconds=_BOOT_SECONDS,
                what=f"{node} has booted",
            )
            bench.cluster.root(machine, "cloud-init status --wait")
            yield
        finally:
            bench.root(node, DATA_SOURCE_AGAIN)
            machine.reboot()

    return broken
