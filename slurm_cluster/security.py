"""Security groups of a cluster, derived from the flow table."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct, Dependable, IConstruct, IDependable

from slurm_cluster.cluster_registry import register_cluster
from slurm_cluster.model.flows import Role, Rule, SlurmPorts, cluster_flows, rules

_DESCRIPTION_LIMIT = 255
"""Longest description of a rule, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_IpRange.html."""


def describe(rule: Rule) -> str:
    """Return a rule's description: what its flows are for, or only their names where the sentences do not fit."""
    sentences = "; ".join(f"{flow.id}: {flow.purpose}" for flow in rule.flows)
    return sentences if len(sentences) <= _DESCRIPTION_LIMIT else ", ".join(flow.id for flow in rule.flows)


class ClusterSecurity(Construct):
    """One security group per role, and between them a rule for each connection that Slurm opens.

    The rules are resources of their own in this construct's scope, from group to group and never from an address
    range, so that a VPC of another stack makes no cyclic reference. Nodes may open any connection outwards.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        vpc: VPC of the nodes.
        ports: Slurm's ports.
    """

    def __init__(self, scope: Construct, construct_id: str, *, vpc: ec2.IVpc, ports: SlurmPorts) -> None:
        super().__init__(scope, construct_id)
        self.head_group = ec2.SecurityGroup(
            self, "HeadGroup", vpc=vpc, allow_all_outbound=True, description="Slurm head node"
        )
        self.worker_group = ec2.SecurityGroup(
            self, "WorkerGroup", vpc=vpc, allow_all_outbound=True, description="Slurm worker nodes"
        )
        register_cluster(self, ports=ports, head_group=self.head_group, worker_group=self.worker_group)
        groups = {Role.HEAD: self.head_group, Role.WORKER: self.worker_group}
        for rule in rules(cluster_flows(ports)):
            ec2.CfnSecurityGroupIngress(
                self,
                # named by flow, so that a changed port changes the rule in its place
                "".join(word.capitalize() for word in rule.flows[0].id.split("-")),
                group_id=groups[rule.listener].security_group_id,
                source_security_group_id=groups[rule.opener].security_group_id,
                ip_protocol="tcp",
                from_port=rule.ports.first,
                to_port=rule.ports.last,
                description=describe(rule),
            )
        self.established: IDependable = Construct(self, "Established")
        """All rules; what depends on it may open connections between the nodes."""
        Dependable.implement(self.established, _Rules(self))

    @property
    def rules(self) -> list[ec2.CfnSecurityGroupIngress]:
        """The rules between the nodes, without one that was taken out of the tree."""
        return [child for child in self.node.children if isinstance(child, ec2.CfnSecurityGroupIngress)]


class _Rules(Dependable):
    """Looks when the app is synthesized: until then, rules may be taken out of the tree."""

    def __init__(self, security: ClusterSecurity) -> None:
        super().__init__()
        self._security = security

    @property
    def dependency_roots(self) -> list[IConstruct]:
        return list(self._security.rules)
