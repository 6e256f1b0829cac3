"""Partition: the workers of one Slurm partition."""

from __future__ import annotations

import jsii
from aws_cdk import Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from slurm_cluster.foundation import ClusterFoundation
from slurm_cluster.model.flows import Role
from slurm_cluster.model.names import partition_name_problem, static_node_names
from slurm_cluster.model.spec import PartitionSpec
from slurm_cluster.node_instance import define_node_instance, root_volume_problem
from slurm_cluster.options import whole_number_problem

MOST_STATIC_NODES = 500
"""A stack holds 500 resources.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
"""


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class Partition(Construct):
    """A partition of static workers, each an EC2 instance of its own.

    It adds one parameter to the stack and one instance for each worker.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        foundation: the cluster that it belongs to.
        partition_name: name in slurm.conf: 1 to 25 lower-case letters, digits and hyphens, a letter first, not
            ``all`` or ``default``, and not ending in ``-static``.
        instance_type: EC2 instance type of the workers.
        static_nodes: number of workers that always run, 1 or more, named ``<partition>-static-<n>``. A stack has room
            for about 170 of them, as its template may hold 1 MB; put further partitions into other stacks.
        root_volume_size: size of each root volume; 16 GiB by default. Another size replaces the workers.

    Raises:
        ValueError: the name is not allowed or is taken, another option is not allowed, or there is no image
            for the type.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        foundation: ClusterFoundation,
        partition_name: str,
        instance_type: ec2.InstanceType,
        static_nodes: int,
        root_volume_size: Size | None = None,
    ) -> None:
        problems = []
        if problem := partition_name_problem(partition_name):
            problems.append(problem)
        if partition_name in foundation.partition_names:
            problems.append(
                f"partition name {partition_name!r} is taken: the cluster has "
                f"{', '.join(foundation.partition_names)}; choose another"
            )
        number = f"static_nodes of partition {partition_name!r}"
        if problem := whole_number_problem(number, static_nodes, most=MOST_STATIC_NODES):
            problems.append(problem)
        if problem := root_volume_problem(root_volume_size):
            problems.append(f"partition {partition_name!r}: {problem}")
        if problem := foundation.operating_system.instance_type_problem(instance_type):
            problems.append(f"partition {partition_name!r}: {problem}")
        if problems:
            raise ValueError("; ".join(problems))

        super().__init__(scope, construct_id)
        default = foundation.register_partition(partition_name)
        self.partition_name = partition_name
        self.node_names = static_node_names(partition_name, static_nodes)
        """Slurm's names of the workers."""
        self.role = foundation.worker_access.role
        self.security_group = foundation.security.worker_group
        state = foundation.desired_state
        state.publish_partition(
            PartitionSpec(
                name=partition_name,
                instance_type=instance_type.to_string(),
                static_nodes=static_nodes,
                default=default,
            )
        )
        self.instances = tuple(
            define_node_instance(
                self,
                name,
                foundation=foundation,
                role=Role.WORKER,
                node_name=name,
                instance_type=instance_type,
                instance_profile=foundation.worker_access.instance_profile,
                security_group=self.security_group,
                root_volume_size=root_volume_size,
                # a name that is asked for before it exists stays unknown to the VPC's resolver for 15 minutes
                needs=[state.shared, foundation.head_record],
            )
            for name in self.node_names
        )
        foundation.register_workers(dict(zip(self.node_names, self.instances, strict=True)))

    @property
    def connections(self) -> ec2.Connections:
        """Connections of the security group that all workers of the cluster share."""
        return self.security_group.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role that all workers of the cluster share."""
        return self.role
