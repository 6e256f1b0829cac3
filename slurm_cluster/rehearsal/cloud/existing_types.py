"""The CloudFormation types of ministack's own that a synthesized app may use, with the properties that it acts on.

A type or property is listed here once ``verify.py`` can read it back from the API, or says why it cannot be.
"""

from __future__ import annotations

from slurm_cluster.rehearsal.cloud.launches import METADATA_DEFAULTS
from slurm_cluster.rehearsal.cloud.network_types import note_default_egress, refuse_if_used
from slurm_cluster.rehearsal.cloud.resource_types import ExistingType
from slurm_cluster.rehearsal.cloud.service_types import (
    PROFILE_REFERENCE,
    SECRET_REFERENCE,
    generated_secret,
    make_private,
)

_RULE = ("CidrIp", "CidrIpv6", "Description", "FromPort", "IpProtocol", "ToPort")

EXISTING_TYPES = {
    "AWS::CDK::Metadata": ExistingType(properties=frozenset({"Analytics"})),
    "AWS::CloudFormation::CustomResource": ExistingType(properties=frozenset({"*"})),
    "AWS::CloudWatch::Alarm": ExistingType(
        properties=frozenset(
            {
                *("ActionsEnabled", "AlarmActions", "AlarmDescription", "AlarmName", "ComparisonOperator"),
                *("DatapointsToAlarm", "Dimensions.Name", "Dimensions.Value", "EvaluationPeriods", "ExtendedStatistic"),
                *("InsufficientDataActions", "MetricName", "Namespace", "OKActions", "Period", "Statistic"),
                *("Tags.*", "Threshold", "TreatMissingData", "Unit"),
            }
        )
    ),
    "AWS::EC2::VPC": ExistingType(
        properties=frozenset({"CidrBlock", "EnableDnsHostnames", "EnableDnsSupport", "InstanceTenancy", "Tags.*"}),
        deleting=refuse_if_used,
    ),
    "AWS::EC2::Subnet": ExistingType(
        properties=frozenset({"AvailabilityZone", "CidrBlock", "MapPublicIpOnLaunch", "Tags.*", "VpcId"}),
        deleting=refuse_if_used,
    ),
    "AWS::EC2::InternetGateway": ExistingType(properties=frozenset({"Tags.*"})),
    "AWS::EC2::VPCGatewayAttachment": ExistingType(properties=frozenset({"InternetGatewayId", "VpcId"})),
    "AWS::EC2::RouteTable": ExistingType(properties=frozenset({"Tags.*", "VpcId"})),
    "AWS::EC2::Route": ExistingType(
        properties=frozenset({"DestinationCidrBlock", "GatewayId", "NatGatewayId", "RouteTableId"})
    ),
    "AWS::EC2::SubnetRouteTableAssociation": ExistingType(properties=frozenset({"RouteTableId", "SubnetId"})),
    "AWS::EC2::VPCEndpoint": ExistingType(
        properties=frozenset(
            {
                *("PolicyDocument.*", "PrivateDnsEnabled", "RouteTableIds", "SecurityGroupIds", "ServiceName"),
                *("SubnetIds", "Tags.*", "VpcEndpointType", "VpcId"),
            }
        )
    ),
    "AWS::EC2::SecurityGroup": ExistingType(
        properties=frozenset(
            {
                *("GroupDescription", "GroupName", "Tags.*", "VpcId"),
                *(f"SecurityGroupIngress.{name}" for name in (*_RULE, "SourceSecurityGroupId")),
                *(f"SecurityGroupEgress.{name}" for name in (*_RULE, "DestinationSecurityGroupId")),
            }
        ),
        created=note_default_egress,
        deleting=refuse_if_used,
    ),
    "AWS::EC2::LaunchTemplate": ExistingType(
        properties=frozenset(
            {
                "LaunchTemplateName",
                "TagSpecifications.*",
                *(
                    f"LaunchTemplateData.{name}"
                    for name in (
                        *("BlockDeviceMappings.*", "DisableApiTermination", "EbsOptimized", "IamInstanceProfile.Arn"),
                        *("IamInstanceProfile.Name", "ImageId", "InstanceInitiatedShutdownBehavior", "InstanceType"),
                        *(f"MetadataOptions.{option}" for option in METADATA_DEFAULTS),
                        *("Monitoring.Enabled", "SecurityGroupIds", "TagSpecifications.*", "UserData"),
                    )
                ),
            }
        )
    ),
    "AWS::IAM::Role": ExistingType(
        properties=frozenset(
            {
                *("AssumeRolePolicyDocument.*", "Description", "ManagedPolicyArns", "MaxSessionDuration", "Path"),
                *("PermissionsBoundary", "Policies.PolicyDocument.*", "Policies.PolicyName", "RoleName", "Tags.*"),
            }
        )
    ),
    "AWS::IAM::Policy": ExistingType(properties=frozenset({"PolicyDocument.*", "PolicyName", "Roles"})),
    "AWS::IAM::InstanceProfile": ExistingType(
        properties=frozenset({"InstanceProfileName", "Path", "Roles"}), reference=PROFILE_REFERENCE
    ),
    "AWS::IAM::ManagedPolicy": ExistingType(
        properties=frozenset({"Description", "ManagedPolicyName", "Path", "PolicyDocument.*", "Roles"})
    ),
    "AWS::Lambda::EventInvokeConfig": ExistingType(
        properties=frozenset(
            {
                *("DestinationConfig.OnFailure.Destination", "DestinationConfig.OnSuccess.Destination"),
                *("FunctionName", "MaximumEventAgeInSeconds", "MaximumRetryAttempts", "Qualifier"),
            }
        )
    ),
    "AWS::Lambda::Function": ExistingType(
        properties=frozenset(
            {
                *("Architectures", "Code.S3Bucket", "Code.S3Key", "Code.ZipFile", "Description", "Handler"),
                *("Environment.Variables.*", "LoggingConfig.LogGroup", "LoggingConfig.LogFormat", "MemorySize"),
                *("ReservedConcurrentExecutions", "Role", "Runtime", "Tags.*", "Timeout"),
            }
        )
    ),
    "AWS::Logs::LogGroup": ExistingType(properties=frozenset({"LogGroupName", "RetentionInDays", "Tags.*"})),
    "AWS::Route53::HostedZone": ExistingType(
        properties=frozenset({"HostedZoneConfig.Comment", "Name", "VPCs.VPCId", "VPCs.VPCRegion"}),
        applied=make_private,
    ),
    "AWS::Route53::RecordSet": ExistingType(
        properties=frozenset({"Comment", "HostedZoneId", "Name", "ResourceRecords", "TTL", "Type"})
    ),
    "AWS::SSM::Parameter": ExistingType(
        properties=frozenset({"AllowedPattern", "DataType", "Description", "Name", "Tags.*", "Tier", "Type", "Value"})
    ),
    "AWS::SecretsManager::Secret": ExistingType(
        properties=frozenset({"Description", "GenerateSecretString.*", "KmsKeyId", "Name", "SecretString", "Tags.*"}),
        prepare=generated_secret,
        reference=SECRET_REFERENCE,
    ),
    # the types of the CDK's own bootstrap stack
    "AWS::ECR::Repository": ExistingType(properties=frozenset({"*"})),
    "AWS::S3::Bucket": ExistingType(properties=frozenset({"*"})),
    "AWS::S3::BucketPolicy": ExistingType(properties=frozenset({"*"})),
}
