"""A cluster in a VPC of another stack, in the subnet of its choice; the VPC's stack does not know of the cluster."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from slurm_cluster import SlurmCluster, SlurmReachability

app = cdk.App()
network = cdk.Stack(app, "Network")
vpc = ec2.Vpc(
    network,
    "Vpc",
    ip_addresses=ec2.IpAddresses.cidr("10.20.0.0/16"),
    max_azs=2,
    nat_gateways=1,
    restrict_default_security_group=False,
    subnet_configuration=[
        ec2.SubnetConfiguration(name="Public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=24),
        ec2.SubnetConfiguration(name="Services", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=24),
        ec2.SubnetConfiguration(name="Compute", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS, cidr_mask=20),
    ],
)

research = cdk.Stack(app, "Research")
cluster = SlurmCluster(
    research,
    "Cluster",
    vpc=vpc,
    # head, workers and state volume are in one zone: that of this subnet
    subnet=vpc.select_subnets(subnet_group_name="Compute").subnets[0],
)
cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.large"), static_nodes=2)
# synthesis fails where a connection that Slurm opens is closed
cdk.Validations.of(app).add_plugins(SlurmReachability())
app.synth()
