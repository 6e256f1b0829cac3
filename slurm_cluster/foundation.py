"""ClusterFoundation: what the nodes of one cluster have in common."""

from __future__ import annotations

from collections.abc import Mapping

import jsii
from aws_cdk import Acknowledgment, Annotations, Fn, RemovalPolicy, ScopedAws, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct, DependencyGroup, IValidation

from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa
from slurm_cluster.desired_state import DesiredState
from slurm_cluster.model.flows import KERNEL_TCP, UNPRIVILEGED_TCP, PortRange, SlurmPorts
from slurm_cluster.model.names import cluster_name_problem, partition_name_problem
from slurm_cluster.model.spec import BUNDLE_PARAMETER, CLUSTER_PARAMETER, BundleSpec
from slurm_cluster.network import ClusterNetwork
from slurm_cluster.node_bundle import define_node_bundle
from slurm_cluster.node_instance import tag_problems
from slurm_cluster.node_role import NodeRole
from slurm_cluster.operating_system import OperatingSystem
from slurm_cluster.options import kind_problem, whole_number_problem
from slurm_cluster.security import ClusterSecurity

_PORTS_OF_ONE_SRUN = 6
"""Ports that an srun over 48 nodes opens, srun(1) and slurm.conf(5) SrunPortRange."""

_NO_ROTATION = (
    "All nodes must hold the same munge key at the same time: a rotation behind their backs would cut every "
    "running node off from the controller."
)


class ClusterFoundation(Construct):
    """Identity, place, security groups, munge key, image and desired state of a cluster.

    SlurmCluster makes one for you. By hand, pass it to one HeadNode and to any number of Partitions.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        network: where the nodes run.
        cluster_name: slurm.conf's ClusterName; ``slurm`` by default.
        operating_system: what the nodes boot; Debian 13 by default.
        image_generation: raise it by one to replace every node by one with the newest public image.
        srun_ports: TCP ports on which srun and salloc listen; 1024-65535 by default, where the kernel chooses. A
            narrower range holds 6 ports for each concurrent srun over up to 48 nodes, and 2 more for each further 48,
            and none of 32768-60999, which the kernel gives to outgoing connections.
        default_partition: where jobs go that name no partition; the first partition by default.
        job_credentials: whether jobs may use the instance role of their node, and so read the munge key and act as a
            node; no by default.

    Raises:
        ValueError: the cluster name, the partition name or the port range is not allowed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        network: ClusterNetwork,
        cluster_name: str = "slurm",
        operating_system: OperatingSystem | None = None,
        image_generation: int = 1,
        srun_ports: PortRange = UNPRIVILEGED_TCP,
        default_partition: str | None = None,
        job_credentials: bool = False,
    ) -> None:
        system = OperatingSystem.debian_13() if operating_system is None else operating_system
        problems = foundation_problems(
            cluster_name=cluster_name,
            operating_system=system,
            image_generation=image_generation,
            srun_ports=srun_ports,
            default_partition=default_partition,
            job_credentials=job_credentials,
        )
        if problems:
            raise ValueError("; ".join(problems))

        super().__init__(scope, construct_id)
        self.network = network
        self.cluster_name = cluster_name
        self.operating_system = system
        self.ports = SlurmPorts(srun=srun_ports)
        self.job_credentials = job_credentials
        self._image_generation = image_generation
        self._default_partition = default_partition
        self._partitions: list[str] = []
        self.instances: list[ec2.Instance] = []
        """Instances of the cluster's nodes, in whatever stack they are."""
        self._workers: dict[str, ec2.Instance] = {}
        address = self.node.addr[-8:]
        # scoped, so that a partition in another stack is told this stack's id and not its own
        stack_guid = Fn.select(2, Fn.split("/", ScopedAws(self).stack_id))
        self.cluster_id = f"{stack_guid}-{address}"
        """Value of the tag that all instances of the cluster have."""
        self.zone_name = f"{address}.{stack_guid}.slurm.internal"
        """Private DNS zone of the cluster; unique, so that clusters can share a VPC."""

        self.security = ClusterSecurity(self, "Security", vpc=network.vpc, ports=self.ports)
        self.munge_key = self._define_munge_key()
        self.bundle = define_node_bundle(self, "NodePrograms")
        self.desired_state = DesiredState(self, "DesiredState", address=address)
        self.desired_state.publish_bundle(BundleSpec(bucket=self.bundle.s3_bucket_name, key=self.bundle.s3_object_key))
        self.worker_access = NodeRole(
            self,
            "WorkerAccess",
            description="Workers of a Slurm cluster",
            parameters=self.desired_state.arns(BUNDLE_PARAMETER, CLUSTER_PARAMETER),
            munge_key=self.munge_key,
            bundle=self.bundle,
        )
        self._images = Construct(self, "Images")
        self.head_record = DependencyGroup()
        """DNS record of the head; its HeadNode adds it."""
        self.node.add_validation(_Complete(self, default_partition))
        if job_credentials:
            Annotations.of(self).add_warning_v2(
                "slurm-cluster:jobCredentials",
                "job_credentials=True lets every job use the instance role of its node: it can read the munge key and "
                "so act as any user of the cluster. Give jobs credentials of their own instead, where you can.",
            )

    def _define_munge_key(self) -> secretsmanager.Secret:
        key = secretsmanager.Secret(
            self,
            "MungeKey",
            description="munge key of a Slurm cluster",
            # letters and digits only: 128 of them carry 762 bits
            generate_secret_string=secretsmanager.SecretStringGenerator(password_length=128, exclude_punctuation=True),
            removal_policy=RemovalPolicy.DESTROY,
        )
        Validations.of(key).acknowledge(
            Acknowledgment(
                id="AwsSolutions-SMG4",
                reason=_NO_ROTATION,
            )
        )
        acknowledge_in_nist_and_hipaa(key, "SecretsManagerRotationEnabled", reason=_NO_ROTATION)
        acknowledge_in_nist_and_hipaa(
            key,
            "SecretsManagerUsingKMSKey",
            reason="Secrets Manager encrypts it with the account's own key aws/secretsmanager, and only the roles of "
            "the nodes may read it; a key of the customer would let other accounts read it too, which nothing needs.",
        )
        return key

    def image(self, instance_type: ec2.InstanceType) -> ec2.IMachineImage:
        """Return the image of the cluster's nodes of an instance type."""
        return self.operating_system.image(self._images, instance_type, generation=self._image_generation)

    @property
    def partition_names(self) -> tuple[str, ...]:
        """Names of the cluster's partitions, in the order in which they were added."""
        return tuple(self._partitions)

    def register_partition(self, name: str) -> bool:
        """Take up a partition and return whether it is the default one; Partition calls this."""
        self._partitions.append(name)
        return name == (self._default_partition or self._partitions[0])

    @property
    def workers(self) -> Mapping[str, ec2.Instance]:
        """The static workers of all partitions by Slurm's names, in the order in which they were added."""
        return dict(self._workers)

    def register_workers(self, workers: Mapping[str, ec2.Instance]) -> None:
        """Take up the workers of a partition; Partition calls this."""
        self._workers.update(workers)


@jsii.implements(IValidation)
class _Complete:
    """Looks, once everything is defined, for what a cluster cannot be without."""

    def __init__(self, foundation: ClusterFoundation, default_partition: str | None) -> None:
        self._foundation = foundation
        self._default_partition = default_partition

    def validate(self) -> list[str]:
        problems = []
        if not self._foundation.desired_state.has_cluster:
            problems.append("the cluster has no head node: define a HeadNode with this foundation")
        names = self._foundation.partition_names
        if self._default_partition not in (None, *names):
            problems.append(
                f"default_partition is {self._default_partition!r}, which the cluster does not have: add it, "
                f"or choose one of {', '.join(names) or 'the partitions that you add'}"
            )
        return [*problems, *tag_problems(self._foundation.instances)]


def foundation_problems(
    *,
    cluster_name: str,
    operating_system: OperatingSystem,
    image_generation: int,
    srun_ports: PortRange,
    default_partition: str | None,
    job_credentials: bool,
) -> list[str]:
    """Return what is wrong with the options of a ClusterFoundation."""
    kinds = [
        kind_problem("operating_system", operating_system, OperatingSystem, "one such as OperatingSystem.debian_13()"),
        kind_problem("srun_ports", srun_ports, PortRange, "a range such as PortRange(61000, 63999)"),
    ]
    found = [
        cluster_name_problem(cluster_name),
        None if default_partition is None else partition_name_problem(default_partition),
        whole_number_problem("image_generation", image_generation),
        # any other value would count as yes
        kind_problem("job_credentials", job_credentials, bool, "True or False"),
        *kinds,
    ]
    ports = [] if any(kinds) else _srun_port_problems(SlurmPorts(srun=srun_ports), operating_system)
    return [*(problem for problem in found if problem is not None), *ports]


def _srun_port_problems(ports: SlurmPorts, system: OperatingSystem) -> list[str]:
    if ports.srun == UNPRIVILEGED_TCP:
        return []
    problems = []
    if not system.narrows_srun_ports:
        problems.append(
            f"srun_ports {ports.srun} is not allowed on {system.name}: only Slurm 24.05.1 and newer keep all of srun's "
            f"ports inside a range; leave it at {UNPRIVILEGED_TCP}"
        )
    if ports.srun not in UNPRIVILEGED_TCP:
        problems.append(f"srun_ports {ports.srun} is not allowed: choose ports from {UNPRIVILEGED_TCP}")
    for name, port in (("slurmctld", ports.slurmctld), ("slurmd", ports.slurmd)):
        if PortRange(port, port) in ports.srun:
            problems.append(f"srun_ports {ports.srun} contains {port}, the port of {name}: choose a range without it")
    if ports.srun.first <= KERNEL_TCP.last and KERNEL_TCP.first <= ports.srun.last:
        problems.append(
            f"srun_ports {ports.srun} shares ports with {KERNEL_TCP}, where the kernel takes those of outgoing "
            f"connections, so that srun may find them taken: choose from {KERNEL_TCP.last + 1}-65535 or below "
            f"{KERNEL_TCP.first}"
        )
    size = ports.srun.last - ports.srun.first + 1
    if size < _PORTS_OF_ONE_SRUN:
        problems.append(
            f"srun_ports {ports.srun} holds {size} ports: one srun takes up to {_PORTS_OF_ONE_SRUN}, "
            "so give that many for each srun that runs at the same time"
        )
    return problems
