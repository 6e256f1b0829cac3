"""The constructs that SlurmCluster is made of, each with options of its own and a place of your choice in the tree."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from slurm_cluster import (
    ClusterFoundation,
    ClusterNetwork,
    HeadNode,
    Partition,
    PortRange,
    SlurmReachability,
    SmokeTest,
)

app = cdk.App()
stack = cdk.Stack(app, "ByHand")
network = ClusterNetwork(stack, "Network")
foundation = ClusterFoundation(
    stack,
    "Foundation",
    network=network,
    cluster_name="lab",
    # slurm.conf and the security groups take it from here: 3,000 ports are enough for 500 concurrent sruns
    srun_ports=PortRange(61000, 63999),
)
head = HeadNode(stack, "Head", foundation=foundation, root_volume_size=cdk.Size.gibibytes(32))
Partition(
    stack,
    "Cpu",
    foundation=foundation,
    partition_name="cpu",
    instance_type=ec2.InstanceType("c7i.large"),
    static_nodes=2,
)
test = SmokeTest(stack, "SmokeTest", head_node=head, budget=cdk.Duration.minutes(20))
cdk.CfnOutput(stack, "Hosts", value=test.hosts)
# synthesis fails where a connection that Slurm opens is closed
cdk.Validations.of(app).add_plugins(SlurmReachability())
app.synth()
