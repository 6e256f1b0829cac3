"""The resources of app.py's default cluster, declared one by one with CloudFormation-level constructs.

It is what someone would write who does not use this package, and the measure of what the package costs at synth. A test
keeps its template equal to app.py's, but for logical ids, asset hashes and the text of user data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_ssm as ssm
from constructs import IConstruct

from benchmarks import handwritten_smoke_test
from benchmarks.handwritten_network import Network
from slurm_cluster import SlurmReachability

Access = tuple[iam.CfnRole, iam.CfnInstanceProfile]

ADDRESS = "ed0d9722"
PARTITION = "cpu"
WORKERS = (f"{PARTITION}-static-1", f"{PARTITION}-static-2")
PACKAGE = Path(__file__).parents[1] / "slurm_cluster"
NOT_IN_ASSETS = ["**/__pycache__", "**/*.pyc"]
AGENT = [
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
]


def allow(sid: str | None, action: str | list[str], resource: Any, condition: Any = None) -> dict[str, Any]:
    statement = {"Action": action, "Effect": "Allow", "Resource": resource}
    if sid is not None:
        statement["Sid"] = sid
    if condition is not None:
        statement["Condition"] = condition
    return statement


def trust(service: str) -> dict[str, Any]:
    statement = {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": service}}
    return {"Statement": [statement], "Version": "2012-10-17"}


def policy(name: str, statements: list[dict[str, Any]]) -> iam.CfnRole.PolicyProperty:
    return iam.CfnRole.PolicyProperty(
        policy_name=name, policy_document={"Statement": statements, "Version": "2012-10-17"}
    )


FUNCTIONS = ("ImageFunction", "Test", "TestDied")
ROLES = ("FlowLogPolicy", "HeadRole", "ImageRole", "TestInvoke", "TestRole", "WorkerRole")
OF_NIST_AND_HIPAA = {
    "CloudWatchLogGroupEncrypted": ("ImageLog", "RefusedTraffic", "TestLog"),
    "EC2EBSInBackupPlan": ("StateVolume",),
    "IAMNoInlinePolicy": ROLES,
    "LambdaConcurrency": FUNCTIONS,
    "LambdaDLQ": FUNCTIONS,
    "LambdaInsideVPC": FUNCTIONS,
    "SecretsManagerRotationEnabled": ("MungeKey",),
    "SecretsManagerUsingKMSKey": ("MungeKey",),
    "VPCDefaultSecurityGroupClosed": ("Vpc",),
    "VPCNoUnrestrictedRouteToIGW": ("Public0Route", "Public1Route"),
}
"""What these packs of cdk-nag find, and at which resources."""


def acknowledge(resource: IConstruct, *ids: str) -> None:
    cdk.Validations.of(resource).acknowledge(
        *(cdk.Acknowledgment(id=item, reason="explained where the package declares it") for item in ids)
    )


class Cluster(cdk.Stack):
    """One stack with everything in it."""

    def __init__(self, scope: cdk.App, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.network = Network(self)
        self.path = f"/slurm-cluster/{cdk.Aws.STACK_NAME}/{ADDRESS}"
        self.cluster_id = f"{self.guid}-{ADDRESS}"
        self.programs = assets.Asset(self, "Programs", path=str(PACKAGE / "runtime" / "node"), exclude=NOT_IN_ASSETS)
        self.key = secretsmanager.CfnSecret(
            self,
            "MungeKey",
            description="munge key of a Slurm cluster",
            generate_secret_string=secretsmanager.CfnSecret.GenerateSecretStringProperty(
                exclude_punctuation=True, password_length=128
            ),
        )
        self.key.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        acknowledge(self.key, "AwsSolutions-SMG4")
        image_id = self.image()
        self.volume = ec2.CfnVolume(
            self,
            "StateVolume",
            availability_zone=self.network.zones[0],
            encrypted=True,
            multi_attach_enabled=False,
            size=50,
            volume_type="gp3",
        )
        self.volume.apply_removal_policy(cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        zone_name = f"{ADDRESS}.{self.guid}.slurm.internal"
        shared: list[cdk.CfnResource] = [
            self.parameter("Bundle", "bundle", "Node programs", self.bundle_spec()),
            self.parameter("Cluster", "cluster", "Slurm cluster", self.cluster_spec(f"head.{zone_name}")),
        ]
        partition = self.parameter(
            "Partition",
            f"partitions/{PARTITION}",
            f"Slurm partition {PARTITION}",
            {"name": PARTITION, "instance_type": "c7i.large", "static_nodes": len(WORKERS), "default": True},
        )
        zone = route53.CfnHostedZone(
            self,
            "Zone",
            name=f"{zone_name}.",
            vpcs=[route53.CfnHostedZone.VPCProperty(vpc_id=self.network.vpc.ref, vpc_region=self.region)],
        )
        head_access = self.role("Head", "Head node of a Slurm cluster", self.head_statements())
        acknowledge(
            head_access[0],
            "AwsSolutions-IAM5[Resource::*]",
            "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*]",
        )
        head = self.instance("Head", "HeadNode/Instance", head_access, self.network.head_group, "t3.medium", image_id)
        for needed in (*shared, partition):
            head.add_resource_dependency(needed)
        record = route53.CfnRecordSet(
            self,
            "Record",
            hosted_zone_id=zone.ref,
            name=f"head.{zone_name}.",
            type="A",
            ttl="30",
            resource_records=[head.attr_private_ip],
        )
        worker_access = self.role("Worker", "Workers of a Slurm cluster", [])
        acknowledge(worker_access[0], "AwsSolutions-IAM5[Resource::*]")
        workers = {}
        for name in WORKERS:
            workers[name] = worker = self.instance(
                name, f"{PARTITION}/{name}", worker_access, self.network.worker_group, "c7i.large", image_id, node=name
            )
            for needed in (*shared, record):
                worker.add_resource_dependency(needed)
        hosts = handwritten_smoke_test.declare(
            self,
            cluster_id=self.cluster_id,
            head=head,
            workers=workers,
            groups=(self.network.head_group, self.network.worker_group),
            after=[*shared, partition, record, *self.network.rules],
        )
        self.outputs(head, hosts)

    @property
    def guid(self) -> str:
        return cdk.Fn.select(2, cdk.Fn.split("/", cdk.Aws.STACK_ID))

    def bundle_spec(self) -> dict[str, Any]:
        return {"bucket": self.programs.s3_bucket_name, "key": self.programs.s3_object_key}

    def cluster_spec(self, head_host: str) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "cluster_name": "slurm",
            "head_host": head_host,
            "munge_key_secret_arn": self.key.ref,
            "state_volume_id": self.volume.ref,
            "job_user": "admin",
            "job_credentials": False,
            "ports": {"slurmctld": 6817, "slurmd": 6818, "srun": {"first": 1024, "last": 65535}},
        }

    def parameter(self, construct_id: str, name: str, description: str, value: dict[str, Any]) -> ssm.CfnParameter:
        return ssm.CfnParameter(
            self,
            f"{construct_id}Parameter",
            name=f"{self.path}/{name}",
            type="String",
            description=description,
            value=self.to_json_string(value),
        )

    def arn(self, service: str, resource: str, name: str) -> str:
        return self.format_arn(service=service, resource=resource, resource_name=name)

    def role(self, name: str, description: str, statements: list[dict[str, Any]]) -> Access:
        parameters = [self.arn("ssm", "parameter", f"{self.path[1:]}/{item}") for item in ("bundle", "cluster")]
        programs = f"arn:{self.partition}:s3:::{self.programs.s3_bucket_name}/{self.programs.s3_object_key}"
        role = iam.CfnRole(
            self,
            f"{name}Role",
            description=description,
            assume_role_policy_document=trust("ec2.amazonaws.com"),
            policies=[
                policy(
                    "Node",
                    [
                        allow("ReadParameters", "ssm:GetParameter", parameters),
                        allow("ReadMungeKey", "secretsmanager:GetSecretValue", self.key.ref),
                        allow("ReadNodePrograms", "s3:GetObject", programs),
                        allow("SsmAgent", AGENT, "*"),
                        *statements,
                    ],
                )
            ],
        )
        return role, iam.CfnInstanceProfile(self, f"{name}Profile", roles=[role.ref])

    def head_statements(self) -> list[dict[str, Any]]:
        describe = ["ec2:DescribeInstanceTypes", "ec2:DescribeInstances", "ec2:DescribeVolumes"]
        claim = ["ec2:AttachVolume", "ec2:DetachVolume"]
        tags = {
            "aws:ResourceTag/slurm-cluster:cluster": self.cluster_id,
            "aws:ResourceTag/slurm-cluster:role": "head",
        }
        return [
            allow(
                "ListPartitions",
                "ssm:GetParametersByPath",
                self.arn("ssm", "parameter", f"{self.path[1:]}/partitions"),
            ),
            allow("Describe", describe, "*"),
            allow("ClaimStateVolume", claim, self.arn("ec2", "volume", self.volume.ref)),
            allow(
                "ClaimStateVolumeFromHead",
                [*claim, "ec2:StopInstances"],
                self.arn("ec2", "instance", "*"),
                {"StringEquals": tags},
            ),
            allow("FindFlowLogs", "ec2:DescribeFlowLogs", "*"),
            allow("ReadRefusedTraffic", "logs:FilterLogEvents", self.network.refused_traffic.attr_arn),
        ]

    def instance(
        self,
        name: str,
        path: str,
        access: Access,
        group: ec2.CfnSecurityGroup,
        instance_type: str,
        image_id: str,
        node: str | None = None,
    ) -> ec2.CfnInstance:
        role, profile = access
        tags = [
            cdk.CfnTag(key="Name", value=f"SlurmCluster/Cluster/{path}"),
            cdk.CfnTag(key="slurm-cluster:cluster", value=self.cluster_id),
            *([cdk.CfnTag(key="slurm-cluster:node", value=node)] if node else []),
            cdk.CfnTag(key="slurm-cluster:role", value="worker" if node else "head"),
        ]
        instance = ec2.CfnInstance(
            self,
            f"Instance{name}",
            block_device_mappings=[
                ec2.CfnInstance.BlockDeviceMappingProperty(
                    device_name="/dev/xvda",
                    ebs=ec2.CfnInstance.EbsProperty(
                        delete_on_termination=True, encrypted=True, volume_size=16, volume_type="gp3"
                    ),
                )
            ],
            iam_instance_profile=profile.ref,
            image_id=image_id,
            instance_type=instance_type,
            metadata_options=ec2.CfnInstance.MetadataOptionsProperty(
                http_endpoint="enabled",
                http_put_response_hop_limit=1,
                http_tokens="required",
                instance_metadata_tags="enabled",
            ),
            monitoring=True,
            propagate_tags_to_volume_on_creation=True,
            security_group_ids=[group.attr_group_id],
            subnet_id=self.network.node_subnet.ref,
            tags=tags,
            user_data=cdk.Fn.base64(f"#!/bin/bash\n# {self.path} {node}\n"),
        )
        acknowledge(instance, "AwsSolutions-EC29")
        for needed in (role, *self.network.way_out):
            instance.add_resource_dependency(needed)
        return instance

    def image(self) -> str:
        name = "aws/service/debian/release/13/latest/amd64"
        log = logs.CfnLogGroup(self, "ImageLog", retention_in_days=30)
        log.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        readable = self.format_arn(service="ssm", account="", resource="parameter", resource_name=name)
        role = iam.CfnRole(
            self,
            "ImageRole",
            assume_role_policy_document=trust("lambda.amazonaws.com"),
            policies=[
                policy(
                    "ReadPublicParameters",
                    [
                        allow(None, ["logs:CreateLogStream", "logs:PutLogEvents"], log.attr_arn),
                        allow(None, "ssm:GetParameter", readable),
                    ],
                )
            ],
        )
        code = assets.Asset(
            self, "ImageCode", path=str(PACKAGE / "runtime" / "functions" / "pinned_image"), exclude=NOT_IN_ASSETS
        )
        function = lambda_.CfnFunction(
            self,
            "ImageFunction",
            description="Reads the image ids of PinnedImage once",
            runtime="python3.14",
            handler="slurm_cluster.runtime.functions.pinned_image.handler.on_event",
            code=lambda_.CfnFunction.CodeProperty(s3_bucket=code.s3_bucket_name, s3_key=code.s3_object_key),
            role=role.attr_arn,
            logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=log.ref),
            timeout=120,
        )
        image = cdk.CfnResource(
            self,
            "Image",
            type="Custom::SlurmClusterPinnedImage",
            properties={
                "ServiceToken": function.attr_arn,
                "ServiceTimeout": "180",
                "ParameterName": f"/{name}",
                "Generation": "1",
            },
        )
        image.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        return image.get_att("ImageId").to_string()

    def outputs(self, head: ec2.CfnInstance, hosts: str) -> None:
        shell = (
            f"aws ssm start-session --region {self.region} --target {head.ref} "
            "--document-name AWS-StartInteractiveCommand --parameters 'command=[\"sudo -iu admin\"]'"
        )
        for name, description, value in (
            ("Shell", "Opens a shell as the job user on the head node", shell),
            ("HeadInstanceId", "Instance id of the head node", head.ref),
            ("NodeNames", "Slurm's names of the workers", " ".join(WORKERS)),
            ("Hosts", "Workers that ran a job, and the host name that each printed", hosts),
            ("StateVolumeId", "Volume with the head's state, which deleting the stack leaves to you", self.volume.ref),
        ):
            cdk.CfnOutput(self, name, description=description, value=value)


def main() -> None:
    """Synthesize, with the same checks as app.py."""
    app = cdk.App(analytics_reporting=False)
    stack = Cluster(app, "SlurmCluster")
    for rule, names in OF_NIST_AND_HIPAA.items():
        for name in names:
            acknowledge(stack.node.find_child(name), f"NIST.800.53.R5-{rule}", f"HIPAA.Security-{rule}")
    packs = (cdk_nag.AwsSolutionsChecks, cdk_nag.NIST80053R5Checks, cdk_nag.HIPAASecurityChecks)
    proof = SlurmReachability(head=stack.network.head_group, workers=stack.network.worker_group)
    cdk.Validations.of(app).add_plugins(proof, *(pack(app) for pack in packs))
    app.synth()


if __name__ == "__main__":
    main()
