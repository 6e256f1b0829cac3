"""The smallest cluster: a new VPC, a head node and two workers. The stack is complete when a job ran on both."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from slurm_cluster import SlurmCluster, SlurmReachability

app = cdk.App()
stack = cdk.Stack(app, "Smallest")
cluster = SlurmCluster(stack, "Cluster")
cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.large"), static_nodes=2)
# synthesis fails where a connection that Slurm opens is closed
cdk.Validations.of(app).add_plugins(SlurmReachability())
app.synth()
