"""Two kinds of workers, a default partition, and an alarm on the head node."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

from slurm_cluster import OnUpdate, SlurmCluster, SlurmReachability

app = cdk.App()
stack = cdk.Stack(app, "Mixed")
cluster = SlurmCluster(
    stack,
    "Cluster",
    cluster_name="mixed",
    head_instance_type=ec2.InstanceType("m7i.large"),
    state_volume_size=cdk.Size.gibibytes(100),
    # jobs go here unless they say --partition=memory
    default_partition="cpu",
    # an update waits until every worker has been free and was tested
    on_update=OnUpdate.all(),
)
cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.large"), static_nodes=2)
cluster.add_partition(
    "memory",
    instance_type=ec2.InstanceType("r7i.large"),
    static_nodes=1,
    root_volume_size=cdk.Size.gibibytes(64),
)
cluster.head_node.metric_status_check_failed().create_alarm(stack, "HeadFailed", threshold=1, evaluation_periods=2)
# synthesis fails where a connection that Slurm opens is closed
cdk.Validations.of(app).add_plugins(SlurmReachability())
app.synth()
