"""Readers of the resources of other services than EC2, see ``reported.Reader``."""

from __future__ import annotations

import base64
import hashlib
import string
from collections.abc import Mapping
from typing import Any

from slurm_cluster.rehearsal.cloud import declared
from slurm_cluster.rehearsal.cloud.reported import Reader, only, renamed, same
from slurm_cluster.rehearsal.cloud.server import Cloud

_Properties = Mapping[str, Any]


def _role(cloud: Cloud, name: str, _: _Properties) -> dict[str, Any]:
    iam = cloud.client("iam")
    role = iam.get_role(RoleName=name)["Role"]
    # a policy that is a resource of its own is compared as one
    others = declared.read(cloud.declared_file).get("AWS::IAM::Policy", {}).values()
    elsewhere = {policy["PolicyName"] for policy in others if name in policy.get("Roles", [])}
    policies = [
        same(iam.get_role_policy(RoleName=name, PolicyName=policy), "PolicyName", "PolicyDocument")
        for policy in iam.list_role_policies(RoleName=name)["PolicyNames"]
        if policy not in elsewhere
    ]
    attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
    boundary = role.get("PermissionsBoundary", {})
    return {
        "ManagedPolicyArns": [policy["PolicyArn"] for policy in attached],
        "Policies": policies,
        **renamed(boundary, {"PermissionsBoundary": "PermissionsBoundaryArn"}),
        **same(role, "AssumeRolePolicyDocument", "Description", "MaxSessionDuration", "Path", "RoleName", "Tags"),
    }


def _policy(cloud: Cloud, _: str, declared: _Properties) -> dict[str, Any]:
    iam, name = cloud.client("iam"), declared["PolicyName"]
    documents = [
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for role in declared["Roles"]
        if name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    agreed = documents[0] if documents and all(document == documents[0] for document in documents) else documents
    return {"PolicyName": name, "PolicyDocument": agreed, "Roles": declared["Roles"][: len(documents)]}


def _managed_policy(cloud: Cloud, arn: str, _: _Properties) -> dict[str, Any]:
    iam = cloud.client("iam")
    policy = iam.get_policy(PolicyArn=arn)["Policy"]
    version = iam.get_policy_version(PolicyArn=arn, VersionId=policy["DefaultVersionId"])["PolicyVersion"]
    roles = iam.list_entities_for_policy(PolicyArn=arn)["PolicyRoles"]
    return {
        "ManagedPolicyName": policy["PolicyName"],
        "PolicyDocument": version["Document"],
        "Roles": [role["RoleName"] for role in roles],
        **same(policy, "Description", "Path"),
    }


def _instance_profile(cloud: Cloud, name: str, _: _Properties) -> dict[str, Any]:
    profile = cloud.client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    return {
        "Roles": [role["RoleName"] for role in profile["Roles"]],
        **same(profile, "InstanceProfileName", "Path"),
    }


def _alarm(cloud: Cloud, name: str, _: _Properties) -> dict[str, Any]:
    cloudwatch = cloud.client("cloudwatch")
    alarm = only(cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"], name)
    return {
        "Tags": cloudwatch.list_tags_for_resource(ResourceARN=alarm["AlarmArn"])["Tags"],
        **same(alarm, "ActionsEnabled", "AlarmActions", "AlarmDescription", "AlarmName", "ComparisonOperator"),
        **same(alarm, "DatapointsToAlarm", "Dimensions", "EvaluationPeriods", "ExtendedStatistic"),
        **same(alarm, "InsufficientDataActions", "MetricName", "Namespace", "OKActions", "Period", "Statistic"),
        **same(alarm, "Threshold", "TreatMissingData", "Unit"),
    }


def _log_group(cloud: Cloud, name: str, _: _Properties) -> dict[str, Any]:
    logs = cloud.client("logs")
    groups = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    group = only((item for item in groups if item["logGroupName"] == name), name)
    tags = logs.list_tags_for_resource(resourceArn=group["arn"].removesuffix(":*"))["tags"]
    return {
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        **renamed(group, {"LogGroupName": "logGroupName", "RetentionInDays": "retentionInDays"}),
    }


def _parameter(cloud: Cloud, name: str, declared: _Properties) -> dict[str, Any]:
    ssm = cloud.client("ssm")
    value = ssm.get_parameter(Name=name)["Parameter"]
    facts = only(ssm.describe_parameters(ParameterFilters=[{"Key": "Name", "Values": [name]}])["Parameters"], name)
    tags = {
        tag["Key"]: tag["Value"]
        for tag in ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=name)["TagList"]
    }
    # this type's tags are a map; tags that CloudFormation adds are in the declared properties, too
    return {
        "Tags": {key: tags[key] for key in declared.get("Tags", {}) if key in tags},
        **same(value, "DataType", "Name", "Type", "Value"),
        **same(facts, "AllowedPattern", "Description", "Tier"),
    }


def _secret(cloud: Cloud, arn: str, declared: _Properties) -> dict[str, Any]:
    secrets = cloud.client("secretsmanager")
    facts = secrets.describe_secret(SecretId=arn)
    value = secrets.get_secret_value(SecretId=arn)["SecretString"]
    found = same(facts, "Description", "KmsKeyId", "Name", "Tags")
    if "SecretString" in declared:
        found["SecretString"] = value
    if "GenerateSecretString" in declared:
        found["GenerateSecretString"] = {
            "ExcludePunctuation": not set(value) & set(string.punctuation),
            "ExcludeLowercase": not set(value) & set(string.ascii_lowercase),
            "ExcludeUppercase": not set(value) & set(string.ascii_uppercase),
            "ExcludeNumbers": not set(value) & set(string.digits),
            "IncludeSpace": " " in value,
            "PasswordLength": len(value),
        }
    return found


def _function(cloud: Cloud, name: str, declared: _Properties) -> dict[str, Any]:
    client = cloud.client("lambda")
    answer = client.get_function(FunctionName=name)
    facts = answer["Configuration"]
    found = {
        "ReservedConcurrentExecutions": answer.get("Concurrency", {}).get("ReservedConcurrentExecutions"),
        "Tags": [{"Key": key, "Value": value} for key, value in answer.get("Tags", {}).items()],
        **same(facts, "Architectures", "Description", "Environment", "Handler", "LoggingConfig", "MemorySize"),
        **same(facts, "Role", "Runtime", "Timeout"),
    }
    code = declared["Code"]
    if "S3Key" in code:
        archive = cloud.client("s3").get_object(Bucket=code["S3Bucket"], Key=code["S3Key"])["Body"].read()
        digest = base64.b64encode(hashlib.sha256(archive).digest()).decode()
        found["Code"] = code if digest == facts["CodeSha256"] else {"CodeSha256": facts["CodeSha256"]}
    else:
        found["Code"] = code  # inline source is not in the API; the function's own runs show it
    return found


def _event_invoke_config(cloud: Cloud, _: str, declared: _Properties) -> dict[str, Any]:
    facts = cloud.client("lambda").get_function_event_invoke_config(
        FunctionName=declared["FunctionName"], Qualifier=declared["Qualifier"]
    )
    *_, name, qualifier = facts["FunctionArn"].split(":")
    return {
        "FunctionName": name,
        "Qualifier": qualifier,
        **same(facts, "DestinationConfig", "MaximumEventAgeInSeconds", "MaximumRetryAttempts"),
    }


def _hosted_zone(cloud: Cloud, zone_id: str, _: _Properties) -> dict[str, Any]:
    answer = cloud.client("route53").get_hosted_zone(Id=zone_id)
    zone = answer["HostedZone"]
    return {
        "HostedZoneConfig": same(zone.get("Config", {}), "Comment"),
        "Name": zone["Name"],
        "VPCs": answer.get("VPCs", []),
    }


def _record_set(cloud: Cloud, _: str, declared: _Properties) -> dict[str, Any]:
    zone_id, name = declared["HostedZoneId"], declared["Name"].rstrip(".") + "."
    sets = cloud.client("route53").list_resource_record_sets(HostedZoneId=zone_id)["ResourceRecordSets"]
    record = only((item for item in sets if (item["Name"], item["Type"]) == (name, declared["Type"])), name)
    return {
        "HostedZoneId": zone_id,
        "ResourceRecords": [item["Value"] for item in record["ResourceRecords"]],
        **same(record, "Name", "TTL", "Type"),
    }


READERS: dict[str, Reader] = {
    "AWS::CloudWatch::Alarm": _alarm,
    "AWS::IAM::InstanceProfile": _instance_profile,
    "AWS::IAM::ManagedPolicy": _managed_policy,
    "AWS::IAM::Policy": _policy,
    "AWS::IAM::Role": _role,
    "AWS::Lambda::EventInvokeConfig": _event_invoke_config,
    "AWS::Lambda::Function": _function,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::Route53::HostedZone": _hosted_zone,
    "AWS::Route53::RecordSet": _record_set,
    "AWS::SSM::Parameter": _parameter,
    "AWS::SecretsManager::Secret": _secret,
}
