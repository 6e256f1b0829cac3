"""Functions that answer CloudFormation, with what all of them have in common."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa

_PROGRAMS = "slurm_cluster.runtime.functions"


def define_function_role(
    scope: Construct, construct_id: str, *, policy_name: str, policy: iam.PolicyDocument, log_group: logs.ILogGroup
) -> iam.Role:
    """Define the role of a function.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        policy_name: name of its policy.
        policy: what it may do; writing to the log group is added.
        log_group: where it logs.
    """
    policy.add_statements(
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn])
    )
    role = iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        # inline, so that the function never runs before its permissions are there
        inline_policies={policy_name: policy},
    )
    acknowledge_in_nist_and_hipaa(
        role,
        "IAMNoInlinePolicy",
        reason="The policy is for the role of this function alone, must be there before it first runs, and is deleted "
        "with it.",
    )
    return role


def define_answering_function(
    scope: Construct,
    construct_id: str,
    *,
    description: str,
    code: assets.Asset,
    handler: str,
    role: iam.IRole,
    log_group: logs.ILogGroup,
    timeout: Duration,
    memory: Size | None = None,
    environment: Mapping[str, str] | None = None,
) -> lambda_.CfnFunction:
    """Define a function.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        description: what it is for.
        code: see ``define_function_code``.
        handler: module below ``runtime.functions``, and its function.
        role: see ``define_function_role``.
        log_group: where it logs.
        timeout: how long it may run.
        memory: how much it gets, and with it of a processor; 128 MiB by default.
        environment: environment variables.
    """
    # the L2 function adds a dependency on its role that the reference implies, which cfn-lint warns of
    function = lambda_.CfnFunction(
        scope,
        construct_id,
        description=description,
        runtime=lambda_.Runtime.PYTHON_3_14.name,
        handler=f"{_PROGRAMS}.{handler}",
        code=lambda_.CfnFunction.CodeProperty(s3_bucket=code.s3_bucket_name, s3_key=code.s3_object_key),
        role=role.role_arn,
        logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log_group.log_group_name),
        timeout=timeout.to_seconds(),
        memory_size=None if memory is None else memory.to_mebibytes(),
        environment=None if environment is None else lambda_.CfnFunction.EnvironmentProperty(variables=environment),
    )
    acknowledge_in_nist_and_hipaa(
        function,
        "LambdaInsideVPC",
        reason="It calls AWS's public APIs and nothing in a VPC; inside one it would need a way out before it can "
        "answer CloudFormation, also while that way is being deleted.",
    )
    acknowledge_in_nist_and_hipaa(
        function,
        "LambdaDLQ",
        reason="CloudFormation waits for the answer and fails the deploy without one; a queue would keep the signed "
        "address to which anyone could answer.",
    )
    acknowledge_in_nist_and_hipaa(
        function,
        "LambdaConcurrency",
        reason="It runs a few times a deploy. A reservation is taken from all functions of the account, and an account "
        "with the initial limit of ten cannot make one.",
    )
    return function
