"""Readers of EC2 resources, see ``reported.Reader``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_cluster.rehearsal.cloud.reported import NotFound, Reader, only, renamed, same
from slurm_cluster.rehearsal.cloud.server import Cloud

_Properties = Mapping[str, Any]


def _described(cloud: Cloud, action: str, answer: str, **request: Any) -> Any:
    return only(getattr(cloud.client("ec2"), action)(**request)[answer], f"{action} {request}")


def _vpc(cloud: Cloud, vpc_id: str, _: _Properties) -> dict[str, Any]:
    ec2 = cloud.client("ec2")
    vpc = _described(cloud, "describe_vpcs", "Vpcs", VpcIds=[vpc_id])
    attributes = {
        name: ec2.describe_vpc_attribute(VpcId=vpc_id, Attribute=name[0].lower() + name[1:])[name]["Value"]
        for name in ("EnableDnsHostnames", "EnableDnsSupport")
    }
    return {**same(vpc, "CidrBlock", "InstanceTenancy", "Tags"), **attributes}


def _subnet(cloud: Cloud, subnet_id: str, _: _Properties) -> dict[str, Any]:
    subnet = _described(cloud, "describe_subnets", "Subnets", SubnetIds=[subnet_id])
    return same(subnet, "AvailabilityZone", "CidrBlock", "MapPublicIpOnLaunch", "Tags", "VpcId")


def _internet_gateway(cloud: Cloud, gateway_id: str, _: _Properties) -> dict[str, Any]:
    gateway = _described(cloud, "describe_internet_gateways", "InternetGateways", InternetGatewayIds=[gateway_id])
    return same(gateway, "Tags")


def _gateway_attachment(cloud: Cloud, _: str, declared: _Properties) -> dict[str, Any]:
    gateways = cloud.client("ec2").describe_internet_gateways()["InternetGateways"]
    gateway = only(
        (item for item in gateways if any(a["VpcId"] == declared["VpcId"] for a in item["Attachments"])),
        f"gateways of {declared['VpcId']}",
    )
    return {"InternetGatewayId": gateway["InternetGatewayId"], "VpcId": declared["VpcId"]}


def _table(cloud: Cloud, table_id: str) -> Any:
    return _described(cloud, "describe_route_tables", "RouteTables", RouteTableIds=[table_id])


def _route_table(cloud: Cloud, table_id: str, _: _Properties) -> dict[str, Any]:
    return same(_table(cloud, table_id), "Tags", "VpcId")


def _route(cloud: Cloud, _: str, declared: _Properties) -> dict[str, Any]:
    table = _table(cloud, declared["RouteTableId"])
    route = only(
        (item for item in table["Routes"] if item["DestinationCidrBlock"] == declared["DestinationCidrBlock"]),
        f"routes to {declared['DestinationCidrBlock']}",
    )
    return {
        "RouteTableId": table["RouteTableId"],
        **same(route, "DestinationCidrBlock", "GatewayId", "NatGatewayId"),
    }


def _table_association(cloud: Cloud, association_id: str, declared: _Properties) -> dict[str, Any]:
    table = _table(cloud, declared["RouteTableId"])
    found = (item for item in table["Associations"] if item["RouteTableAssociationId"] == association_id)
    return same(only(found, association_id), "RouteTableId", "SubnetId")


def _address(cloud: Cloud, public_ip: str, _: _Properties) -> dict[str, Any]:
    addresses = cloud.client("ec2").describe_addresses()["Addresses"]
    return same(only((item for item in addresses if item["PublicIp"] == public_ip), public_ip), "Domain", "Tags")


def _nat_gateway(cloud: Cloud, nat_id: str, _: _Properties) -> dict[str, Any]:
    nat = _described(cloud, "describe_nat_gateways", "NatGateways", NatGatewayIds=[nat_id])
    if nat["State"] != "available":
        raise NotFound(f"NAT gateway {nat_id} is {nat['State']}")
    allocation = only(nat["NatGatewayAddresses"], f"addresses of {nat_id}")["AllocationId"]
    return {"AllocationId": allocation, **same(nat, "SubnetId", "Tags")}


def _flow_log(cloud: Cloud, flow_log_id: str, _: _Properties) -> dict[str, Any]:
    found = _described(cloud, "describe_flow_logs", "FlowLogs", FlowLogIds=[flow_log_id])
    kind = "VPC" if found["ResourceId"].startswith("vpc-") else "Subnet"
    return {
        "ResourceType": kind,
        **same(
            found,
            *("DeliverLogsPermissionArn", "LogDestination", "LogDestinationType", "LogFormat", "LogGroupName"),
            *("MaxAggregationInterval", "ResourceId", "Tags", "TrafficType"),
        ),
    }


def _vpc_endpoint(cloud: Cloud, endpoint_id: str, _: _Properties) -> dict[str, Any]:
    endpoint = _described(cloud, "describe_vpc_endpoints", "VpcEndpoints", VpcEndpointIds=[endpoint_id])
    return same(endpoint, "RouteTableIds", "ServiceName", "SubnetIds", "Tags", "VpcEndpointType", "VpcId")


def _rules(permissions: list[Any], peer: str) -> list[dict[str, Any]]:
    found = []
    for permission in permissions:
        base = same(permission, "IpProtocol", "FromPort", "ToPort")
        for kind, declared, api in (
            ("IpRanges", "CidrIp", "CidrIp"),
            ("Ipv6Ranges", "CidrIpv6", "CidrIpv6"),
            ("UserIdGroupPairs", f"{peer}SecurityGroupId", "GroupId"),
            ("PrefixListIds", f"{peer}PrefixListId", "PrefixListId"),
        ):
            found += [
                {**base, **renamed(item, {declared: api, "Description": "Description"})}
                for item in permission.get(kind, [])
            ]
    return found


def _security_group(cloud: Cloud, group_id: str, _: _Properties) -> dict[str, Any]:
    group = _described(cloud, "describe_security_groups", "SecurityGroups", GroupIds=[group_id])
    return {
        "GroupDescription": group["Description"],
        "SecurityGroupIngress": _rules(group["IpPermissions"], "Source"),
        "SecurityGroupEgress": _rules(group["IpPermissionsEgress"], "Destination"),
        **same(group, "GroupName", "Tags", "VpcId"),
    }


def _rule(peer: str) -> Reader:
    def read(cloud: Cloud, rule_id: str, _: _Properties) -> dict[str, Any]:
        rule = _described(cloud, "describe_security_group_rules", "SecurityGroupRules", SecurityGroupRuleIds=[rule_id])
        group = rule.get("ReferencedGroupInfo") or {}
        return {
            **same(rule, "Description", "FromPort", "GroupId", "IpProtocol", "ToPort"),
            **renamed(rule, {"CidrIp": "CidrIpv4", "CidrIpv6": "CidrIpv6", f"{peer}PrefixListId": "PrefixListId"}),
            **renamed(group, {f"{peer}SecurityGroupId": "GroupId", "SourceSecurityGroupOwnerId": "UserId"}),
        }

    return read


def _instance(cloud: Cloud, instance_id: str, declared: _Properties) -> dict[str, Any]:
    ec2 = cloud.client("ec2")
    reservation = _described(cloud, "describe_instances", "Reservations", InstanceIds=[instance_id])
    instance = only(reservation["Instances"], instance_id)
    if instance["State"]["Name"] not in ("pending", "running", "stopping", "stopped"):
        raise NotFound(f"instance {instance_id} is {instance['State']['Name']}")
    found = {
        "AvailabilityZone": instance["Placement"]["AvailabilityZone"],
        "BlockDeviceMappings": [
            _mapping(cloud, item)
            for item in instance["BlockDeviceMappings"]
            # volumes that were attached later are not declared with the instance
            if item["DeviceName"] in {wanted["DeviceName"] for wanted in declared.get("BlockDeviceMappings", [])}
        ],
        "IamInstanceProfile": instance.get("IamInstanceProfile", {}).get("Arn", "").rpartition("/")[2],
        "Monitoring": instance["Monitoring"]["State"] == "enabled",
        "SecurityGroupIds": [group["GroupId"] for group in instance["SecurityGroups"]],
        **same(instance, "EbsOptimized", "ImageId", "InstanceType", "MetadataOptions", "PrivateIpAddress"),
        **same(instance, "SubnetId", "Tags"),
    }
    for name in ("UserData", "DisableApiTermination", "InstanceInitiatedShutdownBehavior"):
        attribute = name[0].lower() + name[1:]
        found[name] = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute=attribute)[name].get("Value")
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    if "LaunchTemplate" in declared:
        found["LaunchTemplate"] = {
            "LaunchTemplateId": tags.get("aws:ec2launchtemplate:id"),
            "Version": tags.get("aws:ec2launchtemplate:version"),
        }
    found["PropagateTagsToVolumeOnCreation"] = _volumes_have(cloud, instance, declared.get("Tags", []))
    return found


def _mapping(cloud: Cloud, mapping: Mapping[str, Any]) -> dict[str, Any]:
    volume = _described(cloud, "describe_volumes", "Volumes", VolumeIds=[mapping["Ebs"]["VolumeId"]])
    return {
        "DeviceName": mapping["DeviceName"],
        "Ebs": {
            "DeleteOnTermination": mapping["Ebs"]["DeleteOnTermination"],
            "VolumeSize": volume["Size"],
            **same(volume, "Encrypted", "Iops", "KmsKeyId", "Throughput", "VolumeType"),
        },
    }


def _volumes_have(cloud: Cloud, instance: Mapping[str, Any], tags: list[Mapping[str, str]]) -> bool:
    """Return whether the instance's root volume has every tag that the instance was declared with."""
    root = only(
        (m for m in instance["BlockDeviceMappings"] if m["DeviceName"] == instance["RootDeviceName"]), "root devices"
    )
    volume = _described(cloud, "describe_volumes", "Volumes", VolumeIds=[root["Ebs"]["VolumeId"]])
    has = {(tag["Key"], tag["Value"]) for tag in volume.get("Tags", [])}
    return {(tag["Key"], tag["Value"]) for tag in tags} <= has


def _volume(cloud: Cloud, volume_id: str, _: _Properties) -> dict[str, Any]:
    volume = _described(cloud, "describe_volumes", "Volumes", VolumeIds=[volume_id])
    return same(
        volume,
        *("AvailabilityZone", "Encrypted", "Iops", "KmsKeyId", "MultiAttachEnabled", "Size", "Tags", "Throughput"),
        "VolumeType",
    )


def _launch_template(cloud: Cloud, template_id: str, declared: _Properties) -> dict[str, Any]:
    ec2 = cloud.client("ec2")
    template = _described(cloud, "describe_launch_templates", "LaunchTemplates", LaunchTemplateIds=[template_id])
    latest = only(
        ec2.describe_launch_template_versions(
            LaunchTemplateId=template_id, Versions=[str(template["LatestVersionNumber"])]
        )["LaunchTemplateVersions"],
        f"latest versions of {template_id}",
    )
    found = {"LaunchTemplateData": latest["LaunchTemplateData"], **same(template, "LaunchTemplateName")}
    if "TagSpecifications" in declared:
        found["TagSpecifications"] = [{"ResourceType": "launch-template", "Tags": template.get("Tags", [])}]
    return found


READERS: dict[str, Reader] = {
    "AWS::EC2::EIP": _address,
    "AWS::EC2::FlowLog": _flow_log,
    "AWS::EC2::Instance": _instance,
    "AWS::EC2::InternetGateway": _internet_gateway,
    "AWS::EC2::LaunchTemplate": _launch_template,
    "AWS::EC2::NatGateway": _nat_gateway,
    "AWS::EC2::Route": _route,
    "AWS::EC2::RouteTable": _route_table,
    "AWS::EC2::SecurityGroup": _security_group,
    "AWS::EC2::SecurityGroupEgress": _rule("Destination"),
    "AWS::EC2::SecurityGroupIngress": _rule("Source"),
    "AWS::EC2::Subnet": _subnet,
    "AWS::EC2::SubnetRouteTableAssociation": _table_association,
    "AWS::EC2::VPC": _vpc,
    "AWS::EC2::VPCEndpoint": _vpc_endpoint,
    "AWS::EC2::VPCGatewayAttachment": _gateway_attachment,
    "AWS::EC2::Volume": _volume,
}
