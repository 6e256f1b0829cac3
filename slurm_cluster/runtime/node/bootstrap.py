"""From a booted instance to a serving node: the steps, in order, at every boot.

Each step finds out what is already so and does the rest; a second run changes nothing. The last step of a worker starts
slurmd: from then on jobs may come.
"""

from __future__ import annotations

import pwd
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import COMMAND, SSM_AGENT_UNITS, STATE_DIR
from slurm_cluster.model.spec import ClusterSpec
from slurm_cluster.runtime.node import (
    apply,
    bundle,
    daemons,
    files,
    filesystem,
    hosts,
    job_privileges,
    metadata_guard,
    munge,
    names,
    packages,
    parameters,
    prolog,
    slurm_conf,
    ssm_agent,
    state_volume,
    units,
    users,
)
from slurm_cluster.runtime.node.aws import Aws
from slurm_cluster.runtime.node.commands import Runner, run
from slurm_cluster.runtime.node.identity import NodeIdentity
from slurm_cluster.runtime.node.instance_metadata import InstanceMetadata
from slurm_cluster.runtime.node.status import Status

_PYTHON_PACKAGE = "python3-boto3"


@dataclass
class Node:
    """This machine, and what its steps need.

    Args:
        identity: who it is.
        run: runs programs.
        metadata: its instance metadata.
    """

    identity: NodeIdentity
    run: Runner = run
    metadata: InstanceMetadata = field(default_factory=InstanceMetadata)

    @cached_property
    def aws(self) -> Aws:
        """AWS clients of this Region."""
        return Aws(self.metadata.region)

    @cached_property
    def address(self) -> str:
        """Primary private IPv4 address."""
        return self.metadata.private_address

    @cached_property
    def spec(self) -> ClusterSpec:
        """What the cluster is."""
        return parameters.cluster(self.aws.ssm, self.identity.parameter_path)

    @property
    def node_name(self) -> str:
        """Slurm node name of a worker."""
        if self.identity.node_name is None:
            raise ValueError("the head has no node name")
        return self.identity.node_name

    @property
    def head_facts(self) -> slurm_conf.HeadFacts:
        """What the head knows about itself."""
        return slurm_conf.HeadFacts(
            short_hostname=socket.gethostname().split(".")[0],
            state_directory=state_volume.SLURMCTLD_DIRECTORY,
            prolog=prolog.COMMAND,
        )


Step = Callable[[Node], None]


def install_units(node: Node) -> None:
    """Make every later boot run these steps again."""
    bundle.write_command()
    files.replace(prolog.COMMAND, prolog.SCRIPT.format(hosts=hosts.HOSTS_FILE, command=COMMAND), mode=0o755)
    units.install(node.run, node.identity.role, metadata_guard.RULES_FILE)


def ensure_agent(node: Node) -> None:
    """Have the SSM agent run, before anything that may fail and that a person would want to look at."""
    unit = ssm_agent.present_unit(node.run)
    if unit is None:
        ssm_agent.install(
            node.run,
            region=node.metadata.region,
            url_suffix=node.metadata.url_suffix,
            install_packages=lambda wanted: packages.apt(node.run, wanted),
        )
        unit = SSM_AGENT_UNITS[0]
    units.enable(node.run, unit)
    node.run(["systemctl", "start", unit])


def read_cluster(node: Node) -> None:
    """Read what the cluster is."""
    node.spec  # noqa: B018 - read here, so that a failure belongs to this step


def ensure_users(node: Node) -> None:
    """Have the users that must be equal on all nodes."""
    users.ensure(node.run, node.spec.job_user)
    if node.identity.role is Role.WORKER:
        job_privileges.withdraw_sudo(node.spec.job_user)


def ensure_packages(node: Node) -> None:
    """Install what is missing, with no daemon started by it."""
    role = node.identity.role
    used, unused = ("slurmctld", "slurmd") if role is Role.HEAD else ("slurmd", "slurmctld")
    wanted = packages.missing(node.run, (*packages.BASE, *packages.BY_ROLE[role], _PYTHON_PACKAGE))
    if wanted:
        units.mask(node.run, *(f"{name}.service" for name in ("munge", used) if name in wanted))
        packages.apt(node.run, wanted)
    units.take_over(node.run, "munge.service", f"{used}.service")
    units.mask(node.run, f"{unused}.service")
    packages.hold_slurm(node.run)


def guard_metadata(node: Node) -> None:
    """Keep jobs off the instance role."""
    metadata_guard.ensure(node.run, node.identity.role, job_credentials=node.spec.job_credentials)


def start_munge(node: Node) -> None:
    """Put the cluster's key in place and start munge."""
    key = munge.fetch_key(node.aws.secrets, node.spec.munge_key_secret_arn)
    munge.start(node.run, key)


def ensure_names(node: Node) -> None:
    """Make the cluster's names resolve here, and keep them current."""
    role = node.identity.role
    head_address = None if role is Role.HEAD else names.wait_for_head(node.spec)
    if hosts.CLOUD_INIT_FILE.parent.is_dir():
        files.replace(hosts.CLOUD_INIT_FILE, hosts.CLOUD_INIT_TEXT)
    names.ensure(role, node.spec, node.identity.node_name, node.address, head_address=head_address)
    units.enable(node.run, units.NAMES)
    node.run(["systemctl", "start", "--no-block", units.NAMES])


def claim_state_volume(node: Node) -> None:
    """Take the state volume from any former head and mount it."""
    claim = state_volume.Claim(
        ec2=node.aws.ec2,
        instance_id=node.metadata.instance_id,
        cluster_id=node.spec.cluster_id,
        volume_id=node.spec.state_volume_id,
    )
    filesystem.ensure_mounted(node.run, claim.device(), state_volume.MOUNT_POINT, node.spec.cluster_id)
    owner = pwd.getpwnam("slurm")
    directory = state_volume.SLURMCTLD_DIRECTORY
    if not directory.is_dir():
        node.run(
            [
                "install",
                "--directory",
                "--mode=0700",
                f"--owner={owner.pw_uid}",
                f"--group={owner.pw_gid}",
                str(directory),
            ]
        )


def start_slurmctld(node: Node) -> None:
    """Render the configuration and have slurmctld serve it."""
    apply.apply(
        node.run,
        node.aws.ssm,
        node.aws.ec2,
        parameter_path=node.identity.parameter_path,
        spec=node.spec,
        head=node.head_facts,
    )
    daemons.wait_for_slurmctld(node.run)


def wait_for_head(node: Node) -> None:
    """Wait until the head serves, with this worker's key and release."""
    daemons.wait_for_port(node.spec.head_host, node.spec.ports.slurmctld)
    daemons.require_same_release(node.run, node.spec)


def start_slurmd(node: Node) -> None:
    """Start slurmd and see that the head takes it."""
    daemons.start_slurmd(node.run, node.spec, node.node_name)
    daemons.wait_for_registration(node.run, node.node_name, node.address)


_FIRST: tuple[tuple[str, Step], ...] = (
    ("units", install_units),
    ("agent", ensure_agent),
    ("cluster", read_cluster),
    ("users", ensure_users),
    ("packages", ensure_packages),
    ("metadata-guard", guard_metadata),
    ("munge", start_munge),
    ("names", ensure_names),
)
STEPS: dict[Role, tuple[tuple[str, Step], ...]] = {
    Role.HEAD: (*_FIRST, ("state-volume", claim_state_volume), ("slurmctld", start_slurmctld)),
    Role.WORKER: (*_FIRST, ("head", wait_for_head), ("slurmd", start_slurmd)),
}


def use_named_bundle(node: Node) -> bool:
    """Have the programs that the stack names in use; return whether they were others."""
    named = parameters.bundle(node.aws.ssm, node.identity.parameter_path)
    return bundle.ensure(node.aws.s3, named)


def bootstrap(node: Node, status: Status, *, again: Callable[[], None]) -> int:
    """Run the steps of this machine's role; return the exit status.

    Args:
        node: this machine.
        status: where progress is recorded.
        again: replaces this process by the same command of another bundle.
    """
    STATE_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    name = "bundle"
    try:
        with status.step(name):
            if use_named_bundle(node):
                again()
        for name, step in STEPS[node.identity.role]:
            with status.step(name):
                step(node)
    except Exception as problem:
        print(f"bootstrap stopped at {name}: {problem}", file=sys.stderr)
        return 1
    status.ready()
    return 0
