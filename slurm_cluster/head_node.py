"""HeadNode: the controller of a cluster, its state volume and its DNS name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsii
from aws_cdk import Acknowledgment, Duration, RemovalPolicy, Size, Stack, Token, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from constructs import Construct

from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa, as_cdk_nag_writes
from slurm_cluster.foundation import ClusterFoundation
from slurm_cluster.model.flows import Role
from slurm_cluster.model.node_files import CLUSTER_TAG, ROLE_TAG
from slurm_cluster.model.spec import BUNDLE_PARAMETER, CLUSTER_PARAMETER, PARTITIONS_PATH, ClusterSpec
from slurm_cluster.node_instance import define_node_instance, root_volume_problem
from slurm_cluster.node_role import NodeRole
from slurm_cluster.operating_system import OperatingSystem
from slurm_cluster.options import size_problem, whole_number_problem

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class HeadNode(Construct):
    """The node that runs slurmctld and on which users submit jobs.

    Its state (job queue, accounting, home directories) is on an encrypted volume that outlives the instance and the
    stack. Workers find it by a private DNS record, so that it can be replaced.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        foundation: the cluster that it heads; one head a cluster.
        instance_type: EC2 instance type; ``t3.medium`` by default.
        generation: raise it by one to replace the instance, which keeps the state volume.
        state_volume_size: size of the state volume; 50 GiB by default. A volume can grow, which the head takes up at
            its next boot, and never shrink.
        root_volume_size: size of the root volume; 16 GiB by default. Another size replaces the instance.

    Raises:
        ValueError: an option is not allowed, or there is no image for the instance type, or the cluster has a head.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        foundation: ClusterFoundation,
        instance_type: ec2.InstanceType | None = None,
        generation: int = 1,
        state_volume_size: Size | None = None,
        root_volume_size: Size | None = None,
    ) -> None:
        instance_type = instance_type or default_head_instance_type()
        problems = head_node_problems(
            instance_type=instance_type,
            generation=generation,
            operating_system=foundation.operating_system,
            state_volume_size=state_volume_size,
            root_volume_size=root_volume_size,
        )
        if foundation.desired_state.has_cluster:
            problems.append("the cluster has a head node already: define a ClusterFoundation for each cluster")
        if problems:
            raise ValueError("; ".join(problems))
        super().__init__(scope, construct_id)
        self.foundation = foundation
        network = foundation.network
        self.state_volume = ec2.Volume(
            self,
            "StateVolume",
            availability_zone=network.subnet.availability_zone,
            size=state_volume_size or Size.gibibytes(50),
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            encrypted=True,
            # a first create that fails leaves nothing behind; afterwards only you delete it
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        )
        acknowledge_in_nist_and_hipaa(
            self.state_volume,
            "EC2EBSInBackupPlan",
            reason="How often job queue and home directories are copied, and for how long copies are kept, is for the "
            "owner of the data to say: docs/cookbook.md adds this volume to a backup plan.",
        )
        if not Token.is_unresolved(network.subnet.availability_zone):
            Validations.of(self.state_volume).acknowledge(
                Acknowledgment(
                    id="CloudFormation-Validate::W3010",
                    reason="A volume must be made in its instance's zone, which is that of the subnet you chose.",
                )
            )
        zone = route53.PrivateHostedZone(self, "Zone", vpc=network.vpc, zone_name=foundation.zone_name)
        self.host = f"head.{foundation.zone_name}"
        """DNS name in the VPC."""
        state = foundation.desired_state
        state.publish_cluster(
            ClusterSpec(
                cluster_id=foundation.cluster_id,
                cluster_name=foundation.cluster_name,
                head_host=self.host,
                munge_key_secret_arn=foundation.munge_key.secret_arn,
                state_volume_id=self.state_volume.volume_id,
                job_user=foundation.operating_system.job_user,
                job_credentials=foundation.job_credentials,
                ports=foundation.ports,
            )
        )
        node_role = self._define_role()
        self.role = node_role.role
        self.security_group = foundation.security.head_group
        self.instance = define_node_instance(
            self,
            "Instance" if generation == 1 else f"Instance{generation}",
            foundation=foundation,
            role=Role.HEAD,
            node_name=None,
            instance_type=instance_type,
            instance_profile=node_role.instance_profile,
            security_group=self.security_group,
            root_volume_size=root_volume_size,
            needs=[state],
        )
        self.node.default_child = self.instance
        self.record = route53.ARecord(
            self,
            "Record",
            zone=zone,
            record_name="head",
            target=route53.RecordTarget.from_ip_addresses(self.instance.instance_private_ip),
            # a replaced head is found again within this time
            ttl=Duration.seconds(30),
        )
        foundation.head_record.add(self.record)

    def _define_role(self) -> NodeRole:
        foundation, state, stack = self.foundation, self.foundation.desired_state, Stack.of(self)
        instances = stack.format_arn(service="ec2", resource="instance", resource_name="*")
        volume = stack.format_arn(service="ec2", resource="volume", resource_name=self.state_volume.volume_id)
        node_role = NodeRole(
            self,
            "Access",
            description="Head node of a Slurm cluster",
            parameters=state.arns(BUNDLE_PARAMETER, CLUSTER_PARAMETER),
            munge_key=foundation.munge_key,
            bundle=foundation.bundle,
            statements=[
                iam.PolicyStatement(
                    sid="ListPartitions", actions=["ssm:GetParametersByPath"], resources=state.arns(PARTITIONS_PATH)
                ),
                iam.PolicyStatement(
                    sid="Describe",
                    actions=["ec2:DescribeInstances", "ec2:DescribeInstanceTypes", "ec2:DescribeVolumes"],
                    # Describe actions of EC2 have no resource-level permissions
                    resources=["*"],
                ),
                iam.PolicyStatement(
                    sid="ClaimStateVolume",
                    actions=["ec2:AttachVolume", "ec2:DetachVolume"],
                    resources=[volume],
                ),
                iam.PolicyStatement(
                    sid="ClaimStateVolumeFromHead",
                    actions=["ec2:AttachVolume", "ec2:DetachVolume", "ec2:StopInstances"],
                    # instances of this cluster's head only, whose ids are not known before they run
                    resources=[instances],
                    conditions={
                        "StringEquals": {
                            f"aws:ResourceTag/{CLUSTER_TAG}": foundation.cluster_id,
                            f"aws:ResourceTag/{ROLE_TAG}": Role.HEAD.value,
                        }
                    },
                ),
                *self._reading_refused_traffic(),
            ],
        )
        Validations.of(node_role.role).acknowledge(
            Acknowledgment(
                id=f"AwsSolutions-IAM5[Resource::{as_cdk_nag_writes(stack, instances)}]",
                reason="A head node takes the state volume over from the head before it, whose instance id it cannot "
                "know; the condition allows only instances that are tagged as this cluster's head.",
            )
        )
        return node_role

    def _reading_refused_traffic(self) -> list[iam.PolicyStatement]:
        """Return what slurm-doctor needs for the packets that the cluster's own VPC refused."""
        refused = self.foundation.network.refused_traffic
        if refused is None:
            return []
        return [
            # EC2's Describe actions have no resource-level permissions
            iam.PolicyStatement(sid="FindFlowLogs", actions=["ec2:DescribeFlowLogs"], resources=["*"]),
            iam.PolicyStatement(
                sid="ReadRefusedTraffic", actions=["logs:FilterLogEvents"], resources=[refused.log_group_arn]
            ),
        ]

    @property
    def connections(self) -> ec2.Connections:
        """Connections of the head's security group."""
        return self.security_group.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The head's role."""
        return self.role

    def grant_submit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow ``grantee`` to open a Session Manager shell on the head, where jobs are submitted.

        The shell is that of the image's default user, who may become root.
        """
        stack = Stack.of(self)
        sessions = iam.Grant.add_to_principal(
            grantee=grantee,
            # the shell's connection, of the grantee's own sessions only:
            # https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-restrict-access-quickstart.html
            actions=["ssmmessages:OpenDataChannel"],
            resource_arns=[stack.format_arn(service="ssm", resource="session", resource_name="${aws:userid}-*")],
        )
        start = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["ssm:StartSession"],
            resource_arns=[
                stack.format_arn(service="ec2", resource="instance", resource_name=self.instance.instance_id),
                stack.format_arn(
                    service="ssm", account="", resource="document", resource_name="AWS-StartInteractiveCommand"
                ),
            ],
            # without it, a session that names no document would pass as well
            conditions={"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}},
        )
        return start.combine(sessions)

    def metric_cpu_utilization(self) -> cloudwatch.Metric:
        """CPU use of the head in percent, as the average of one minute."""
        return self._metric("CPUUtilization", "Average")

    def metric_status_check_failed(self) -> cloudwatch.Metric:
        """1 while EC2's status checks of the head fail, otherwise 0, as the maximum of one minute."""
        return self._metric("StatusCheckFailed", "Maximum")

    def _metric(self, name: str, statistic: str) -> cloudwatch.Metric:
        # imported where it is used: it takes longer than the whole cluster's definition
        from aws_cdk import aws_cloudwatch as cloudwatch

        return cloudwatch.Metric(
            namespace="AWS/EC2",
            metric_name=name,
            dimensions_map={"InstanceId": self.instance.instance_id},
            statistic=statistic,
            period=Duration.minutes(1),
        ).attach_to(self)


def default_head_instance_type() -> ec2.InstanceType:
    """Return the type of a head whose user chose none."""
    return ec2.InstanceType("t3.medium")


def head_node_problems(
    *,
    instance_type: ec2.InstanceType,
    generation: int,
    operating_system: OperatingSystem,
    state_volume_size: Size | None,
    root_volume_size: Size | None,
) -> list[str]:
    """Return what is wrong with the options of a HeadNode."""
    problems = [
        whole_number_problem("generation of the head node", generation),
        size_problem("state_volume_size", state_volume_size, least=1),
        root_volume_problem(root_volume_size),
    ]
    # what is no system is a problem of the foundation
    system = isinstance(operating_system, OperatingSystem)
    if system and (problem := operating_system.instance_type_problem(instance_type)):
        problems.append(f"head node: {problem}")
    return [problem for problem in problems if problem is not None]
