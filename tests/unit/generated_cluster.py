"""A template of a few hundred resources, as a tool that generates a cluster's stack from a list of queues writes it."""

from __future__ import annotations

import hashlib
from typing import Any

Template = dict[str, Any]

_EVERYTHING = {"IpProtocol": "-1", "FromPort": 0, "ToPort": 65535}


def generated_cluster(queues: int, *, compute_resources: int = 3) -> Template:
    """Return the template of a cluster.

    The head node has a network interface of its own and a launch template; each compute resource has a launch template
    by which the head node will launch instances. Groups of the site may take the place of the generated ones.
    """
    resources: dict[str, Any] = {**_groups(), **_head_node(), **_backend(), **_alarms(queues)}
    for queue in range(queues):
        resources[f"RoleQ{queue}"] = {"Type": "AWS::IAM::Role", "Properties": _role(f"q{queue}")}
        resources[f"InstanceProfileQ{queue}"] = {
            "Type": "AWS::IAM::InstanceProfile",
            "Properties": {"Roles": [{"Ref": f"RoleQ{queue}"}], "Path": "/generated/"},
        }
        resources[f"ManagedPolicyQ{queue}"] = {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {"Roles": [{"Ref": f"RoleQ{queue}"}], "PolicyDocument": _policy(["ec2:DescribeInstances"])},
        }
        for number in range(compute_resources):
            logical_id = f"LaunchTemplate{_digest(f'q{queue}-cr{number}')}"
            resources[logical_id] = _launch_template(f"q{queue}", f"cr{number}", efa=number == 0)
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": {
            "HeadNodeSubnet": {"Type": "AWS::EC2::Subnet::Id"},
            "HeadNodeSecurityGroups": {"Type": "String", "Default": "NONE"},
            "AdditionalSecurityGroup": {"Type": "String", "Default": ""},
            "VpcId": {"Type": "AWS::EC2::VPC::Id"},
        },
        "Mappings": {"Sizes": {"Head": {"Type": "c5.xlarge"}}},
        "Conditions": {
            "CreateHeadNodeSecurityGroup": {"Fn::Equals": [{"Ref": "HeadNodeSecurityGroups"}, "NONE"]},
            "HasAdditionalSecurityGroup": {"Fn::Not": [{"Fn::Equals": [{"Ref": "AdditionalSecurityGroup"}, ""]}]},
        },
        "Resources": resources,
        "Outputs": {"HeadNodeInstanceID": {"Value": {"Ref": "HeadNode"}}},
    }


def _groups() -> dict[str, Any]:
    head = {
        "Fn::If": ["CreateHeadNodeSecurityGroup", {"Ref": "HeadNodeSecurityGroup"}, {"Ref": "HeadNodeSecurityGroups"}]
    }
    compute = {"Ref": "ComputeSecurityGroup"}
    return {
        "HeadNodeSecurityGroup": {
            "Type": "AWS::EC2::SecurityGroup",
            "Condition": "CreateHeadNodeSecurityGroup",
            "Properties": {
                "GroupDescription": "Enable access to the head node",
                "VpcId": {"Ref": "VpcId"},
                "SecurityGroupIngress": [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0"}],
            },
        },
        "ComputeSecurityGroup": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {"GroupDescription": "Allow access to compute nodes", "VpcId": {"Ref": "VpcId"}},
        },
        "HeadNodeSecurityGroupComputeIngress": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Condition": "CreateHeadNodeSecurityGroup",
            "Properties": {**_EVERYTHING, "GroupId": head, "SourceSecurityGroupId": compute},
        },
        "ComputeSecurityGroupHeadNodeIngress": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**_EVERYTHING, "GroupId": compute, "SourceSecurityGroupId": head},
        },
        "ComputeSecurityGroupIngress": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {**_EVERYTHING, "GroupId": compute, "SourceSecurityGroupId": compute},
        },
        "ComputeSecurityGroupNormalEgress": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**_EVERYTHING, "GroupId": compute, "CidrIp": "0.0.0.0/0"},
        },
        "ComputeSecurityGroupEgress": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**_EVERYTHING, "GroupId": compute, "DestinationSecurityGroupId": compute},
        },
        "SharedStorageSecurityGroup": {
            "Type": "AWS::EC2::SecurityGroup",
            "Properties": {
                "GroupDescription": "file system",
                "VpcId": {"Ref": "VpcId"},
                "SecurityGroupIngress": [
                    {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "SourceSecurityGroupId": group}
                    for group in (head, compute)
                ],
            },
        },
    }


def _head_node() -> dict[str, Any]:
    group = {
        "Fn::If": ["CreateHeadNodeSecurityGroup", {"Ref": "HeadNodeSecurityGroup"}, {"Ref": "HeadNodeSecurityGroups"}]
    }
    return {
        "HeadNodeEni": {
            "Type": "AWS::EC2::NetworkInterface",
            "Properties": {
                "Description": "head node",
                "SubnetId": {"Ref": "HeadNodeSubnet"},
                "GroupSet": [
                    group,
                    {
                        "Fn::If": [
                            "HasAdditionalSecurityGroup",
                            {"Ref": "AdditionalSecurityGroup"},
                            {"Ref": "AWS::NoValue"},
                        ]
                    },
                ],
            },
        },
        "HeadNodeLaunchTemplate": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {
                    "InstanceType": {"Fn::FindInMap": ["Sizes", "Head", "Type"]},
                    "NetworkInterfaces": [{"NetworkInterfaceId": {"Ref": "HeadNodeEni"}, "DeviceIndex": 0}],
                    "TagSpecifications": [_tags("instance", "HeadNode"), _tags("volume", "HeadNode")],
                }
            },
        },
        "HeadNode": {
            "Type": "AWS::EC2::Instance",
            "Properties": {
                "LaunchTemplate": {
                    "LaunchTemplateId": {"Ref": "HeadNodeLaunchTemplate"},
                    "Version": {"Fn::GetAtt": ["HeadNodeLaunchTemplate", "LatestVersionNumber"]},
                }
            },
        },
        "RoleHeadNode": {"Type": "AWS::IAM::Role", "Properties": _role("head")},
    }


def _launch_template(queue: str, resource: str, *, efa: bool) -> dict[str, Any]:
    cards = 4 if efa else 1
    return {
        "Type": "AWS::EC2::LaunchTemplate",
        "Properties": {
            "LaunchTemplateName": {"Fn::Sub": f"${{AWS::StackName}}-{queue}-{resource}"},
            "LaunchTemplateData": {
                "InstanceType": "p4d.24xlarge" if efa else "c5.2xlarge",
                "CpuOptions": {"CoreCount": 48, "ThreadsPerCore": 1},
                "NetworkInterfaces": [
                    {
                        "DeviceIndex": min(card, 1),
                        "NetworkCardIndex": card,
                        "InterfaceType": "efa" if efa else {"Ref": "AWS::NoValue"},
                        "Groups": [{"Ref": "ComputeSecurityGroup"}],
                        "SubnetId": f"subnet-{_digest(queue)}",
                    }
                    for card in range(cards)
                ],
                "UserData": {"Fn::Base64": {"Fn::Sub": "MIME-Version: 1.0\n# ${AWS::StackName} ${AWS::Region}\n" * 20}},
                "TagSpecifications": [_tags("instance", "Compute", queue), _tags("volume", "Compute", queue)],
            },
        },
    }


def _tags(resource: str, node_type: str, queue: str | None = None) -> dict[str, Any]:
    tags = [{"Key": "Name", "Value": node_type}, {"Key": "parallelcluster:node-type", "Value": node_type}]
    if queue is not None:
        tags.append({"Key": "parallelcluster:queue-name", "Value": queue})
    return {"ResourceType": resource, "Tags": tags}


def _backend() -> dict[str, Any]:
    return {
        "DynamoDBTable": {
            "Type": "AWS::DynamoDB::Table",
            "Properties": {
                "AttributeDefinitions": [{"AttributeName": "Id", "AttributeType": "S"}],
                "KeySchema": [{"AttributeName": "Id", "KeyType": "HASH"}],
            },
        },
        "HostedZone": {
            "Type": "AWS::Route53::HostedZone",
            "Properties": {"Name": {"Fn::Sub": "${AWS::StackName}.generated"}, "VPCs": [{"VPCId": {"Ref": "VpcId"}}]},
        },
        "LogGroup": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 14}},
        "Dashboard": {"Type": "AWS::CloudWatch::Dashboard", "Properties": {"DashboardBody": "{}"}},
    }


def _alarms(queues: int) -> dict[str, Any]:
    return {
        f"Alarm{number}": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {"MetricName": "StatusCheckFailed", "Threshold": 0, "EvaluationPeriods": 1 + number % 3},
        }
        for number in range(queues)
    }


def _role(name: str) -> dict[str, Any]:
    return {
        "RoleName": {"Fn::Sub": f"${{AWS::StackName}}-{name}"},
        "AssumeRolePolicyDocument": _policy(["sts:AssumeRole"]),
    }


def _policy(actions: list[str]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
