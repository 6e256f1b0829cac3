"""SlurmCluster: a network, a head node, partitions, and the proof that jobs run on them."""

from __future__ import annotations

from collections.abc import Sequence

import jsii
from aws_cdk import Duration, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IDependable

from slurm_cluster.foundation import ClusterFoundation, foundation_problems
from slurm_cluster.head_node import HeadNode, default_head_instance_type, head_node_problems
from slurm_cluster.model.flows import UNPRIVILEGED_TCP, PortRange
from slurm_cluster.network import ClusterNetwork, network_problems
from slurm_cluster.operating_system import OperatingSystem
from slurm_cluster.partition import Partition
from slurm_cluster.smoke_test import OnUpdate, SmokeTest, smoke_test_problems


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class SlurmCluster(Construct):
    """A Slurm cluster on EC2.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        vpc: your VPC, also one of another stack; a new one by default, see ClusterNetwork.
        subnet: subnet of your VPC for the nodes; its first private subnet with egress by default.
        availability_zones: zones of the new VPC; the first two of the Region by default.
        head_instance_type: EC2 instance type of the head; ``t3.medium`` by default.
        head_generation: raise it by one to replace the head, which keeps its state volume.
        state_volume_size: size of the head's state volume; 50 GiB by default.
        cluster_name: slurm.conf's ClusterName; ``slurm`` by default.
        operating_system: what the nodes boot; Debian 13 by default.
        image_generation: raise it by one to replace every node by one with the newest public image.
        srun_ports: TCP ports on which srun and salloc listen; 1024-65535 by default, see ClusterFoundation.
        default_partition: where jobs go that name no partition; the first partition by default.
        job_credentials: whether jobs may use the instance role of their node; no by default, see ClusterFoundation.
        smoke_test: whether the stack is complete only when a job ran on each static worker, see SmokeTest; yes by
            default.
        on_update: which workers the smoke test of an update tests; the free ones by default.
        smoke_test_budget: how long the cluster may take to become ready; 30 minutes by default, see SmokeTest.

    Raises:
        ValueError: an option is not allowed; the message says what is.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc | None = None,
        subnet: ec2.ISubnet | None = None,
        availability_zones: Sequence[str] | None = None,
        head_instance_type: ec2.InstanceType | None = None,
        head_generation: int = 1,
        state_volume_size: Size | None = None,
        cluster_name: str = "slurm",
        operating_system: OperatingSystem | None = None,
        image_generation: int = 1,
        srun_ports: PortRange = UNPRIVILEGED_TCP,
        default_partition: str | None = None,
        job_credentials: bool = False,
        smoke_test: bool = True,
        on_update: OnUpdate | None = None,
        smoke_test_budget: Duration | None = None,
    ) -> None:
        system = OperatingSystem.debian_13() if operating_system is None else operating_system
        head_type = head_instance_type or default_head_instance_type()
        problems = [
            *network_problems(vpc=vpc, subnet=subnet, availability_zones=availability_zones),
            *foundation_problems(
                cluster_name=cluster_name,
                operating_system=system,
                image_generation=image_generation,
                srun_ports=srun_ports,
                default_partition=default_partition,
                job_credentials=job_credentials,
            ),
            *head_node_problems(
                instance_type=head_type,
                generation=head_generation,
                operating_system=system,
                state_volume_size=state_volume_size,
                root_volume_size=None,
            ),
            *([] if smoke_test_budget is None else smoke_test_problems(budget=smoke_test_budget)),
        ]
        if not smoke_test and (on_update or smoke_test_budget):
            problems.append("on_update or smoke_test_budget were given with smoke_test=False: leave them out")
        if problems:
            raise ValueError("; ".join(problems))

        super().__init__(scope, construct_id)
        self.network = ClusterNetwork(self, "Network", vpc=vpc, subnet=subnet, availability_zones=availability_zones)
        self.foundation = ClusterFoundation(
            self,
            "Foundation",
            network=self.network,
            cluster_name=cluster_name,
            operating_system=system,
            image_generation=image_generation,
            srun_ports=srun_ports,
            default_partition=default_partition,
            job_credentials=job_credentials,
        )
        self.head_node = HeadNode(
            self,
            "HeadNode",
            foundation=self.foundation,
            instance_type=head_type,
            generation=head_generation,
            state_volume_size=state_volume_size,
        )
        nodes = DependencyGroup(self.head_node)
        self._nodes = nodes
        self.smoke_test = (
            SmokeTest(self, "SmokeTest", head_node=self.head_node, on_update=on_update, budget=smoke_test_budget)
            if smoke_test
            else None
        )
        """The test that the stack waits for; None where it was switched off."""
        self.ready: IDependable = self.smoke_test.ready if self.smoke_test else nodes
        """What to depend on for a cluster that runs jobs; without a smoke test, for one whose instances run."""

    def add_partition(
        self,
        partition_name: str,
        *,
        instance_type: ec2.InstanceType,
        static_nodes: int,
        root_volume_size: Size | None = None,
    ) -> Partition:
        """Define a partition of the cluster; the options are those of Partition.

        Raises:
            ValueError: an option is not allowed; the message says what is.
        """
        partition = Partition(
            self,
            partition_name,
            foundation=self.foundation,
            partition_name=partition_name,
            instance_type=instance_type,
            static_nodes=static_nodes,
            root_volume_size=root_volume_size,
        )
        self._nodes.add(partition)
        return partition

    @property
    def connections(self) -> ec2.Connections:
        """Connections of all nodes: a peer that allows the cluster allows the head and every worker."""
        security = self.foundation.security
        return ec2.Connections(security_groups=[security.head_group, security.worker_group])

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """All nodes: what is granted to the cluster is granted to the roles of head and workers."""
        return _EveryNode(self.head_node.role, self.foundation.worker_access.role)

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow ``grantee`` to open a shell on the head, see HeadNode.grant_submit."""
        return self.head_node.grant_submit(grantee)


@jsii.implements(iam.IPrincipal)
class _EveryNode:
    """The two node roles as one principal of grants."""

    def __init__(self, head: iam.Role, worker: iam.Role) -> None:
        self._head = head
        self._worker = worker

    @property
    def grant_principal(self) -> iam.IPrincipal:
        return self

    @property
    def assume_role_action(self) -> str:
        return self._head.assume_role_action

    @property
    def policy_fragment(self) -> iam.PrincipalPolicyFragment:
        # resource policies, as those of KMS keys, name the principal: both roles
        return iam.PrincipalPolicyFragment(
            {"AWS": [self._head.role_arn, self._worker.role_arn]},
        )

    @property
    def principal_account(self) -> str | None:
        return self._head.principal_account

    def add_to_principal_policy(self, statement: iam.PolicyStatement) -> iam.AddToPrincipalPolicyResult:
        results = [role.add_to_principal_policy(statement) for role in (self._head, self._worker)]
        dependables = [result.policy_dependable for result in results if result.policy_dependable is not None]
        return iam.AddToPrincipalPolicyResult(statement_added=True, policy_dependable=DependencyGroup(*dependables))
