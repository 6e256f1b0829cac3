"""A second stack that is deployed when jobs run on the cluster, with a function that submits one."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from slurm_cluster import SlurmCluster, SlurmReachability

app = cdk.App()
research = cdk.Stack(app, "Research")
cluster = SlurmCluster(research, "Cluster")
cluster.add_partition("cpu", instance_type=ec2.InstanceType("c7i.large"), static_nodes=2)

jobs = cdk.Stack(app, "Jobs")
head = cluster.head_node.instance.instance_id
submit = lambda_.Function(
    jobs,
    "Submit",
    description="Submits a job to Slurm by Run Command on the head node",
    runtime=lambda_.Runtime.PYTHON_3_14,
    handler="submit.handler",
    code=lambda_.Code.from_asset(str(Path(__file__).parent / "function"), exclude=["**/__pycache__", "**/*.pyc"]),
    timeout=cdk.Duration.minutes(1),
    environment={"HEAD_INSTANCE_ID": head, "JOB_USER": cluster.foundation.operating_system.job_user},
)
submit.add_to_role_policy(
    iam.PolicyStatement(
        actions=["ssm:SendCommand"],
        resources=[
            research.format_arn(service="ec2", resource="instance", resource_name=head),
            research.format_arn(service="ssm", account="", resource="document", resource_name="AWS-RunShellScript"),
        ],
    )
)
submit.add_to_role_policy(
    # it has no resource-level permissions
    iam.PolicyStatement(actions=["ssm:GetCommandInvocation"], resources=["*"])
)
# not before the smoke test has passed: what is submitted runs
submit.node.add_dependency(cluster.ready)
cdk.CfnOutput(jobs, "SubmitFunction", value=submit.function_name)
# synthesis fails where a connection that Slurm opens is closed
cdk.Validations.of(app).add_plugins(SlurmReachability())
app.synth()
