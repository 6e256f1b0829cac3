"""The smoke test of app.py's default cluster by hand: what ``slurm_cluster.SmokeTest`` declares."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets

PROGRAMS = Path(__file__).parents[1] / "slurm_cluster" / "runtime" / "functions" / "smoke_test"
HANDLERS = "slurm_cluster.runtime.functions.smoke_test.index"
RULES_OF_ROLE = (
    "AwsSolutions-IAM5[Resource::*]",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*]",
)


def allow(action: str | list[str], resource: Any, sid: str | None = None, tag: Mapping[str, str] | None = None) -> Any:
    statement = {"Action": action, "Effect": "Allow", "Resource": resource}
    if sid is not None:
        statement["Sid"] = sid
    if tag is not None:
        statement["Condition"] = {"StringEquals": tag}
    return statement


def document(*statements: Any) -> dict[str, Any]:
    return {"Statement": list(statements), "Version": "2012-10-17"}


def role(stack: cdk.Stack, cluster_id: str, log: logs.CfnLogGroup) -> iam.CfnRole:
    instances = stack.format_arn(service="ec2", resource="instance", resource_name="*")
    shell = stack.format_arn(service="ssm", account="", resource="document", resource_name="AWS-RunShellScript")
    observe = [
        "ec2:DescribeInstances",
        "ssm:CancelCommand",
        "ssm:DescribeInstanceInformation",
        "ssm:GetCommandInvocation",
    ]
    made = iam.CfnRole(
        stack,
        "TestRole",
        assume_role_policy_document=document(
            {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}
        ),
        policies=[
            iam.CfnRole.PolicyProperty(
                policy_name="TestCluster",
                policy_document=document(
                    allow("ssm:SendCommand", shell, "RunShellScript"),
                    allow(
                        "ssm:SendCommand",
                        instances,
                        "RunOnNodes",
                        {"ssm:resourceTag/slurm-cluster:cluster": cluster_id},
                    ),
                    allow(
                        "ec2:GetConsoleOutput",
                        instances,
                        "ReadConsoles",
                        {"aws:ResourceTag/slurm-cluster:cluster": cluster_id},
                    ),
                    allow(observe, "*", "Observe"),
                    allow("cloudformation:DescribeStacks", stack.stack_id, "SeeRollback"),
                    allow(["logs:CreateLogStream", "logs:PutLogEvents"], log.attr_arn),
                ),
            )
        ],
    )
    cdk.Validations.of(made).acknowledge(
        *(cdk.Acknowledgment(id=item, reason="explained where the package declares it") for item in RULES_OF_ROLE)
    )
    return made


def declare(
    stack: cdk.Stack,
    *,
    cluster_id: str,
    head: ec2.CfnInstance,
    workers: Mapping[str, ec2.CfnInstance],
    groups: tuple[ec2.CfnSecurityGroup, ec2.CfnSecurityGroup],
    after: list[cdk.CfnResource],
) -> str:
    """Declare the test and return the attribute with the hosts."""
    log = logs.CfnLogGroup(stack, "TestLog", retention_in_days=90)
    log.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
    access = role(stack, cluster_id, log)
    code = assets.Asset(stack, "TestCode", path=str(PROGRAMS), exclude=["**/__pycache__", "**/*.pyc"])

    def function(
        name: str, handler: str, description: str, timeout: int, memory: int | None, **variables: str
    ) -> lambda_.CfnFunction:
        return lambda_.CfnFunction(
            stack,
            name,
            description=description,
            runtime="python3.14",
            handler=f"{HANDLERS}.{handler}",
            code=lambda_.CfnFunction.CodeProperty(s3_bucket=code.s3_bucket_name, s3_key=code.s3_object_key),
            role=access.attr_arn,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log.ref),
            timeout=timeout,
            memory_size=memory,
            environment=lambda_.CfnFunction.EnvironmentProperty(variables={**variables, "LOG_GROUP": log.ref}),
        )

    test = function(
        "Test",
        "on_event",
        "Tests whether jobs run on a Slurm cluster",
        900,
        256,
        ON_UPDATE="free",
        BUDGET_SECONDS="1800",
    )
    dead = function("TestDied", "on_death", "Answers CloudFormation when the smoke test died", 120, None)
    invoke = iam.CfnPolicy(
        stack,
        "TestInvoke",
        policy_name="TestInvoke",
        roles=[access.ref],
        policy_document=document(allow("lambda:InvokeFunction", [dead.attr_arn, test.attr_arn])),
    )
    watched = lambda_.CfnEventInvokeConfig(
        stack,
        "TestOnDeath",
        function_name=test.ref,
        qualifier="$LATEST",
        maximum_retry_attempts=0,
        maximum_event_age_in_seconds=300,
        destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
            on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=dead.attr_arn)
        ),
    )
    watched.add_resource_dependency(invoke)
    tested = cdk.CfnResource(
        stack,
        "Tested",
        type="Custom::SlurmSmokeTest",
        properties={
            "ServiceToken": test.attr_arn,
            "ServiceTimeout": "1920",
            "HeadInstanceId": head.ref,
            "NodeNames": list(workers),
            "WorkerInstanceIds": [worker.ref for worker in workers.values()],
            "HeadGroupId": groups[0].attr_group_id,
            "WorkerGroupId": groups[1].attr_group_id,
            "SrunPorts": "1024-65535",
            "Version": hashlib.sha256(b"changed by hand whenever the test must run again").hexdigest(),
        },
    )
    tested.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
    for needed in (watched, *after):
        tested.add_resource_dependency(needed)
    return tested.get_att("Hosts").to_string()
