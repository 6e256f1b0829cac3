"""ClusterNetwork: the VPC and the one subnet in which a cluster's nodes run."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct, DependencyGroup, IDependable

from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa
from slurm_cluster.model.names import duplicates

_MOST_ZONES = 3
"""As many node subnets, of 16384 addresses each, as a /16 has room for beside the public ones."""


class ClusterNetwork(Construct):
    """A VPC for a cluster, or the one you bring.

    The VPC that it defines has two availability zones, public subnets that hold nothing but one NAT gateway, private
    subnets for nodes, an S3 gateway endpoint, and flow logs of refused traffic. A VPC of yours is used as it is.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        vpc: your VPC, also one of another stack. By default a new one is defined.
        subnet: subnet of your VPC for head and workers; it needs a route to the internet, or to a mirror of the
            distribution's packages and to the AWS services. By default the VPC's first private subnet with egress.
        availability_zones: zones of the new VPC, the nodes' zone first. By default the first two of the Region.

    Raises:
        ValueError: the options contradict each other, or your VPC has no private subnet with egress.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc | None = None,
        subnet: ec2.ISubnet | None = None,
        availability_zones: Sequence[str] | None = None,
    ) -> None:
        if problems := network_problems(vpc=vpc, subnet=subnet, availability_zones=availability_zones):
            raise ValueError("; ".join(problems))
        super().__init__(scope, construct_id)
        endpoints: list[IDependable] = []
        self.refused_traffic: logs.LogGroup | None = None
        """Where flow logs of refused traffic go; None for a VPC of yours."""
        if vpc is None:
            self.refused_traffic = self._define_log_group()
            own = self._define_vpc(availability_zones, self.refused_traffic)
            # a new endpoint cuts open connections to S3, so that no node may boot before it
            endpoints.append(own.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3))
            vpc = own
        self.vpc: ec2.IVpc = vpc
        self.subnet: ec2.ISubnet = subnet if subnet is not None else vpc.private_subnets[0]
        self.reachable: IDependable = DependencyGroup(self.subnet.internet_connectivity_established, *endpoints)
        """What must exist before a node's first boot can download anything."""

    def _define_log_group(self) -> logs.LogGroup:
        group = logs.LogGroup(
            self,
            "RefusedTraffic",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.DESTROY,
        )
        acknowledge_in_nist_and_hipaa(
            group,
            "CloudWatchLogGroupEncrypted",
            reason="CloudWatch Logs encrypts it with a key of its own; it holds addresses and ports of refused "
            "connections, and a key of the customer is one more thing to pay for and to lose.",
        )
        return group

    def _define_vpc(self, availability_zones: Sequence[str] | None, refused: logs.LogGroup) -> ec2.Vpc:
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr("10.0.0.0/16"),
            availability_zones=None if availability_zones is None else list(availability_zones),
            max_azs=2 if availability_zones is None else None,
            nat_gateways=1,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            # nothing is ever in the default group, and closing it would take a custom resource
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=24,
                    map_public_ip_on_launch=False,
                ),
                ec2.SubnetConfiguration(name="Nodes", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=18),
            ],
        )
        flow_log = vpc.add_flow_log(
            "Refused",
            traffic_type=ec2.FlowLogTrafficType.REJECT,
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(refused),
        )
        acknowledge_in_nist_and_hipaa(
            vpc,
            "VPCDefaultSecurityGroupClosed",
            reason="No network interface is ever in the default group, which lets in none but itself; closing it takes "
            "a function that may change every security group of the account.",
        )
        for subnet in vpc.public_subnets:
            acknowledge_in_nist_and_hipaa(
                subnet,
                "VPCNoUnrestrictedRouteToIGW",
                reason="The NAT gateway needs this route to the internet; nothing else is in the public subnets, and "
                "no instance gets a public address.",
            )
        acknowledge_in_nist_and_hipaa(
            flow_log,
            "IAMNoInlinePolicy",
            reason="The policy is for the role of this flow log alone and comes and goes with it.",
        )
        return vpc


def network_problems(
    *, vpc: ec2.IVpc | None, subnet: ec2.ISubnet | None, availability_zones: Sequence[str] | None
) -> list[str]:
    """Return what is wrong with the options of a ClusterNetwork."""
    problems = []
    if vpc is not None and not hasattr(vpc, "vpc_id"):
        return [f"vpc is {vpc!r}: give a VPC such as ec2.Vpc or what ec2.Vpc.from_lookup returns"]
    if subnet is not None and not hasattr(subnet, "subnet_id"):
        return [f"subnet is {subnet!r}: give a subnet such as vpc.private_subnets[0]"]
    if vpc is None and subnet is not None:
        problems.append("subnet was given without vpc: pass the VPC that the subnet is in")
    if vpc is not None and availability_zones is not None:
        problems.append(
            "availability_zones were given with vpc: they choose the zones of a new VPC; pass subnet instead"
        )
    if availability_zones is not None:
        problems += _zone_problems(availability_zones)
    if vpc is not None and subnet is None and not vpc.private_subnets:
        problems.append("vpc has no private subnet with egress: pass the subnet for the nodes as subnet")
    if isinstance(vpc, ec2.Vpc) and not (vpc.dns_hostnames_enabled and vpc.dns_support_enabled):
        problems.append(
            "vpc has DNS host names or DNS support switched off, and workers find the head in a private hosted zone, "
            "which needs both: define it with enable_dns_hostnames=True and enable_dns_support=True"
        )
    if subnet is not None and (problem := _unknown_zone(subnet)):
        problems.append(problem)
    return problems


def _zone_problems(zones: Sequence[str]) -> list[str]:
    if isinstance(zones, str) or not all(isinstance(zone, str) and zone for zone in zones):
        return [f"availability_zones is {zones!r}: give a list of names such as ['eu-west-1a', 'eu-west-1b']"]
    problems = []
    if not 1 <= len(zones) <= _MOST_ZONES:
        problems.append(
            f"availability_zones names {len(zones)} zones: name 1 to {_MOST_ZONES}, the nodes' zone first"
            if zones
            else "availability_zones is empty: name one zone or more, the nodes' zone first"
        )
    if twice := duplicates(zones):
        problems.append(f"availability_zones must differ, {', '.join(twice)} occurs more than once")
    return problems


def _unknown_zone(subnet: ec2.ISubnet) -> str | None:
    try:
        _ = subnet.availability_zone
    except RuntimeError:
        return (
            "the availability zone of subnet is not known, and the state volume must be made in it: import the subnet "
            "by ec2.Subnet.from_subnet_attributes with availability_zone"
        )
    return None
