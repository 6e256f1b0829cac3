"""NodeRole: what a node may do in AWS."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa


class NodeRole(Construct):
    """Role and instance profile of head or workers.

    Every node may read its own parameters, the munge key and the node programs, and be reached by Session Manager and
    Run Command; ``statements`` come on top.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        description: description of the role.
        parameters: ARNs of the SSM parameters that the node reads.
        munge_key: the cluster's munge key.
        bundle: the node programs.
        statements: further permissions.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        description: str,
        parameters: Sequence[str],
        munge_key: secretsmanager.ISecret,
        bundle: assets.Asset,
        statements: Sequence[iam.PolicyStatement] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        self.role = iam.Role(
            self,
            "Role",
            description=description,
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            # inline, so that no node boots before its permissions are there
            inline_policies={
                "Node": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(
                            sid="ReadParameters", actions=["ssm:GetParameter"], resources=list(parameters)
                        ),
                        iam.PolicyStatement(
                            sid="ReadMungeKey",
                            actions=["secretsmanager:GetSecretValue"],
                            resources=[munge_key.secret_arn],
                        ),
                        iam.PolicyStatement(
                            sid="ReadNodePrograms",
                            actions=["s3:GetObject"],
                            resources=[
                                # not by bundle.bucket, whose module takes long to load
                                Stack.of(self).format_arn(
                                    service="s3",
                                    region="",
                                    account="",
                                    resource=bundle.s3_bucket_name,
                                    resource_name=bundle.s3_object_key,
                                )
                            ],
                        ),
                        _agent(),
                        *statements,
                    ]
                )
            },
        )
        self.instance_profile = iam.InstanceProfile(self, "Profile", role=self.role)
        Validations.of(self.role).acknowledge(
            Acknowledgment(
                id="AwsSolutions-IAM5[Resource::*]",
                reason="The actions of the SSM agent and EC2's Describe actions have no resource-level permissions.",
            )
        )
        acknowledge_in_nist_and_hipaa(
            self.role,
            "IAMNoInlinePolicy",
            reason="The policy names the parameters, key and programs of this cluster: it fits this role alone, must "
            "be there before the first node boots, and is deleted with the role, which a managed one may outlive.",
        )


def _agent() -> iam.PolicyStatement:
    """Return what the SSM agent needs for Session Manager and Run Command, and nothing of Systems Manager's rest.

    https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-profile.html
    """
    return iam.PolicyStatement(
        sid="SsmAgent",
        actions=[
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
            "ec2messages:AcknowledgeMessage",
            "ec2messages:DeleteMessage",
            "ec2messages:FailMessage",
            "ec2messages:GetEndpoint",
            "ec2messages:GetMessages",
            "ec2messages:SendReply",
        ],
        # none of the message actions has resource-level permissions, and the agent does not know its ARN on first call
        resources=["*"],
    )
