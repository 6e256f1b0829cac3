"""PinnedImage: a public image that stays the same until you ask for a newer one."""

from __future__ import annotations

import re

import jsii
from aws_cdk import ArnFormat, CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from slurm_cluster.answering_function import define_answering_function, define_function_role
from slurm_cluster.compliance import acknowledge_in_nist_and_hipaa
from slurm_cluster.options import whole_number_problem
from slurm_cluster.package_asset import define_function_code

_PUBLIC_PARAMETER = re.compile(r"/aws/service(/[a-zA-Z0-9_.-]+)+")
_PROVIDER_ID = "SlurmClusterPinnedImageProvider"


@jsii.implements(ec2.IMachineImage)
class PinnedImage(Construct):
    """The image that a public SSM parameter named when this resource was created.

    A CloudFormation parameter of an SSM type is read again at every deploy and would replace the nodes whenever a new
    image is published. This custom resource reads once and keeps its answer, without a look-up at synth and without
    ``env``. It can be passed as ``machine_image`` to any construct that takes one.

    Args:
        scope: parent construct.
        construct_id: id in the parent.
        parameter_name: public SSM parameter, ``/aws/service/...``.
        generation: raise it by one to read the parameter again, which replaces every node of the image; back to the
            number before it, the former image comes back.

    Raises:
        ValueError: the parameter is not a public one, or the generation is below 1.
    """

    def __init__(self, scope: Construct, construct_id: str, *, parameter_name: str, generation: int = 1) -> None:
        problems = []
        if not isinstance(parameter_name, str) or not _PUBLIC_PARAMETER.fullmatch(parameter_name):
            problems.append(
                f"parameter_name is {parameter_name!r}: give a public SSM parameter such as "
                "/aws/service/debian/release/13/latest/amd64"
            )
        if problem := whole_number_problem("generation", generation):
            problems.append(problem)
        if problems:
            raise ValueError("; ".join(problems))
        super().__init__(scope, construct_id)
        provider = _Provider.of(self)
        provider.allow(parameter_name)
        resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::SlurmClusterPinnedImage",
            service_token=provider.service_token,
            service_timeout=Duration.minutes(3),
            properties={"ParameterName": parameter_name, "Generation": str(generation)},
        )
        self.image_id = resource.get_att_string("ImageId")

    def get_image(self, scope: Construct) -> ec2.MachineImageConfig:
        """Return the image for a construct of CDK; called by it."""
        return ec2.MachineImageConfig(
            image_id=self.image_id, os_type=ec2.OperatingSystemType.LINUX, user_data=ec2.UserData.for_linux()
        )


class _Provider(Construct):
    """The function that answers for all pinned images of a stack."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        log_group = logs.LogGroup(
            self, "Log", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY
        )
        acknowledge_in_nist_and_hipaa(
            log_group,
            "CloudWatchLogGroupEncrypted",
            reason="CloudWatch Logs encrypts it with a key of its own; it holds names of public parameters and ids of "
            "public images.",
        )
        self._allowed: set[str] = set()
        self._policy = iam.PolicyDocument()
        role = define_function_role(
            self, "Role", policy_name="ReadPublicParameters", policy=self._policy, log_group=log_group
        )
        function = define_answering_function(
            self,
            "Function",
            description="Reads the image ids of PinnedImage once",
            code=define_function_code(self, "Code", "runtime/functions/pinned_image"),
            handler="pinned_image.handler.on_event",
            role=role,
            log_group=log_group,
            timeout=Duration.minutes(2),
        )
        self.service_token = function.attr_arn

    @classmethod
    def of(cls, scope: Construct) -> _Provider:
        stack = Stack.of(scope)
        existing = stack.node.try_find_child(_PROVIDER_ID)
        return existing if isinstance(existing, cls) else cls(stack, _PROVIDER_ID)

    def allow(self, parameter_name: str) -> None:
        if parameter_name in self._allowed:
            return
        self._allowed.add(parameter_name)
        self._policy.add_statements(
            iam.PolicyStatement(
                actions=["ssm:GetParameter"],
                resources=[
                    Stack.of(self).format_arn(
                        service="ssm",
                        account="",  # public parameters belong to no account
                        resource="parameter",
                        resource_name=parameter_name.removeprefix("/"),
                        arn_format=ArnFormat.SLASH_RESOURCE_NAME,
                    )
                ],
            )
        )
