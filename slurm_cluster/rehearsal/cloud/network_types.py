"""CloudFormation's network types that ministack lacks, and what it lacks in those it has.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/AWS_EC2.html
"""

from __future__ import annotations

import ipaddress
from typing import Any

from slurm_cluster.rehearsal.cloud.compute_types import replace_tags
from slurm_cluster.rehearsal.cloud.emulator import ApiError, Emulator, matches, refuse_unknown, tag_set
from slurm_cluster.rehearsal.cloud.instances import TERMINATED
from slurm_cluster.rehearsal.cloud.resource_types import Properties, Provisioned, ResourceType

_ALLOW_ALL = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


def _permission(properties: Properties, peer: str) -> dict[str, Any]:
    """Return the API's permission for a rule; ``peer`` is Source or Destination."""
    described = {"Description": properties["Description"]} if properties.get("Description") else {}
    permission: dict[str, Any] = {
        name: properties[name] for name in ("IpProtocol", "FromPort", "ToPort") if name in properties
    }
    if group := properties.get(f"{peer}SecurityGroupId"):
        owner = properties.get("SourceSecurityGroupOwnerId")
        permission["Groups"] = [{"GroupId": group, **({"UserId": owner} if owner else {}), **described}]
    if cidr := properties.get("CidrIp"):
        permission["IpRanges"] = [{"CidrIp": cidr, **described}]
    if cidr := properties.get("CidrIpv6"):
        permission["Ipv6Ranges"] = [{"CidrIpv6": cidr, **described}]
    if prefix_list := properties.get(f"{peer}PrefixListId"):
        permission["PrefixListIds"] = [{"PrefixListId": prefix_list, **described}]
    return permission


def _create_rule(direction: str, peer: str, emulator: Emulator, properties: Properties) -> Provisioned:
    answer = emulator.call(
        f"AuthorizeSecurityGroup{direction}",
        {"GroupId": properties["GroupId"], "IpPermissions": [_permission(properties, peer)]},
    )
    rule_id = answer["securityGroupRuleSet"][0]["securityGroupRuleId"]
    return rule_id, {"Id": rule_id}


def _create_ingress(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    return _create_rule("Ingress", "Source", emulator, properties)


def _create_egress(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    group = emulator.security_groups.get(properties["GroupId"], {})
    if group.pop("DefaultEgress", False):
        # The first egress rule of its own takes the place of the rule that EC2 gave the group.
        emulator.call("RevokeSecurityGroupEgress", {"GroupId": properties["GroupId"], "IpPermissions": [_ALLOW_ALL]})
    return _create_rule("Egress", "Destination", emulator, properties)


def note_default_egress(emulator: Emulator, group_id: str, properties: Properties) -> None:
    """Remember that a group has EC2's own egress rule because its template declares none."""
    if not properties.get("SecurityGroupEgress"):
        emulator.security_groups[group_id]["DefaultEgress"] = True


def _delete_rule(direction: str, emulator: Emulator, rule_id: str, properties: Properties) -> None:
    if properties["GroupId"] in emulator.security_groups:
        emulator.call(
            f"RevokeSecurityGroup{direction}", {"GroupId": properties["GroupId"], "SecurityGroupRuleId": [rule_id]}
        )


def _delete_ingress(emulator: Emulator, rule_id: str, properties: Properties) -> None:
    _delete_rule("Ingress", emulator, rule_id, properties)


def _delete_egress(emulator: Emulator, rule_id: str, properties: Properties) -> None:
    _delete_rule("Egress", emulator, rule_id, properties)


def _create_address(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    tags = [{"ResourceType": "elastic-ip", "Tag": properties["Tags"]}] if properties.get("Tags") else None
    answer = emulator.call("AllocateAddress", {"Domain": properties.get("Domain", "vpc"), "TagSpecification": tags})
    return answer["publicIp"], {"AllocationId": answer["allocationId"], "PublicIp": answer["publicIp"]}


def allocation_of(emulator: Emulator, public_ip: str) -> str | None:
    """Return the allocation id of an elastic IP address."""
    return next((key for key, address in emulator.addresses.items() if address["PublicIp"] == public_ip), None)


def _update_address(emulator: Emulator, public_ip: str, old: Properties, new: Properties) -> Provisioned:
    allocation = allocation_of(emulator, public_ip)
    if allocation is None:
        raise ValueError(f"address {public_ip} does not exist")
    replace_tags(emulator, allocation, old, new)
    return public_ip, {"AllocationId": allocation, "PublicIp": public_ip}


def _delete_address(emulator: Emulator, public_ip: str, properties: Properties) -> None:
    del properties
    allocation = allocation_of(emulator, public_ip)
    if allocation is None:
        return
    holders = [nat["NatGatewayId"] for nat in emulator.nat_gateways.values() if nat.get("AllocationId") == allocation]
    if holders:
        raise ApiError("InvalidIPAddress.InUse", f"Address {public_ip} is in use by {', '.join(holders)}")
    emulator.call("ReleaseAddress", {"AllocationId": allocation})


def _create_nat_gateway(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    allocation, subnet = properties["AllocationId"], emulator.subnets.get(properties["SubnetId"])
    if allocation not in emulator.addresses:
        raise ApiError("InvalidAllocationID.NotFound", f"The allocation ID '{allocation}' does not exist")
    if subnet is None:
        raise ApiError("InvalidSubnetID.NotFound", f"The subnet ID '{properties['SubnetId']}' does not exist")
    request: dict[str, Any] = {"SubnetId": subnet["SubnetId"], "AllocationId": allocation}
    if properties.get("Tags"):
        request["TagSpecification"] = [{"ResourceType": "natgateway", "Tag": properties["Tags"]}]
    nat_id = emulator.call("CreateNatGateway", request)["natGateway"]["natGatewayId"]
    taken = {instance["PrivateIpAddress"] for instance in emulator.instances.values()}
    free = (str(address) for address in list(ipaddress.IPv4Network(subnet["CidrBlock"]))[4:-1])
    emulator.nat_gateways[nat_id]["PrivateIpAddress"] = next(address for address in free if address not in taken)
    return nat_id, {"NatGatewayId": nat_id}


def _update_nat_gateway(emulator: Emulator, nat_id: str, old: Properties, new: Properties) -> Provisioned:
    replace_tags(emulator, nat_id, old, new)
    return nat_id, {"NatGatewayId": nat_id}


def _delete_nat_gateway(emulator: Emulator, nat_id: str, properties: Properties) -> None:
    del properties
    if nat_id in emulator.nat_gateways:
        emulator.call("DeleteNatGateway", {"NatGatewayId": nat_id})
        for name in ("AllocationId", "PrivateIpAddress"):
            emulator.nat_gateways[nat_id].pop(name, None)


def describe_nat_gateways(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DescribeNatGateways``."""
    refuse_unknown("DescribeNatGateways", request, {"Filter", "MaxResults", "NatGatewayId"})
    return {
        "natGatewaySet": [
            {
                "natGatewayId": nat["NatGatewayId"],
                "subnetId": nat["SubnetId"],
                "vpcId": nat["VpcId"],
                "state": nat["State"],
                "connectivityType": nat["ConnectivityType"],
                "createTime": nat["CreateTime"],
                "natGatewayAddressSet": [
                    {
                        "allocationId": nat["AllocationId"],
                        "publicIp": emulator.addresses[nat["AllocationId"]]["PublicIp"],
                        "privateIp": nat["PrivateIpAddress"],
                    }
                ]
                if nat.get("AllocationId")
                else [],
                "tagSet": tag_set(emulator, nat["NatGatewayId"]),
            }
            for nat in emulator.nat_gateways.values()
            if nat["NatGatewayId"] in (request.get("NatGatewayId") or [nat["NatGatewayId"]])
            and matches(
                emulator,
                nat["NatGatewayId"],
                {"state": [nat["State"]], "vpc-id": [nat["VpcId"]], "subnet-id": [nat["SubnetId"]]},
                request.get("Filter"),
            )
        ]
    }


_FLOW_LOG = (
    *("DeliverLogsPermissionArn", "LogDestination", "LogDestinationType", "LogFormat", "LogGroupName"),
    *("MaxAggregationInterval", "ResourceType", "TrafficType"),
)


def _create_flow_log(emulator: Emulator, logical_id: str, properties: Properties, stack: str) -> Provisioned:
    del logical_id, stack
    request = {name: properties[name] for name in _FLOW_LOG if name in properties}
    if properties.get("Tags"):
        request["TagSpecification"] = [{"ResourceType": "vpc-flow-log", "Tag": properties["Tags"]}]
    flow_log_id = emulator.call("CreateFlowLogs", {**request, "ResourceId": [properties["ResourceId"]]})[
        "flowLogIdSet"
    ][0]
    emulator.flow_logs[flow_log_id].update({name: properties[name] for name in _FLOW_LOG if name in properties})
    emulator.tags[flow_log_id] = [{"Key": tag["Key"], "Value": tag["Value"]} for tag in properties.get("Tags") or []]
    return flow_log_id, {"Id": flow_log_id}


def _update_flow_log(emulator: Emulator, flow_log_id: str, old: Properties, new: Properties) -> Provisioned:
    replace_tags(emulator, flow_log_id, old, new)
    return flow_log_id, {"Id": flow_log_id}


def _delete_flow_log(emulator: Emulator, flow_log_id: str, properties: Properties) -> None:
    del properties
    emulator.call("DeleteFlowLogs", {"FlowLogId": [flow_log_id]})


def describe_flow_logs(emulator: Emulator, request: dict[str, Any]) -> dict[str, Any]:
    """EC2's ``DescribeFlowLogs``."""
    refuse_unknown("DescribeFlowLogs", request, {"Filter", "FlowLogId", "MaxResults"})
    return {
        "flowLogSet": [
            {
                "flowLogId": flow_log["FlowLogId"],
                "flowLogStatus": flow_log["FlowLogStatus"],
                "creationTime": flow_log["CreationTime"],
                "resourceId": flow_log["ResourceId"],
                "trafficType": flow_log["TrafficType"],
                "logDestinationType": flow_log["LogDestinationType"],
                "logDestination": flow_log.get("LogDestination"),
                "logGroupName": flow_log.get("LogGroupName"),
                "logFormat": flow_log.get("LogFormat"),
                "deliverLogsPermissionArn": flow_log.get("DeliverLogsPermissionArn"),
                "maxAggregationInterval": flow_log.get("MaxAggregationInterval", 600),
                "tagSet": tag_set(emulator, flow_log["FlowLogId"]),
            }
            for flow_log in emulator.flow_logs.values()
            if flow_log["FlowLogId"] in (request.get("FlowLogId") or [flow_log["FlowLogId"]])
            and matches(
                emulator, flow_log["FlowLogId"], {"resource-id": [flow_log["ResourceId"]]}, request.get("Filter")
            )
        ]
    }


def refuse_if_used(emulator: Emulator, resource_id: str) -> None:
    """Refuse to delete a subnet, group or VPC that an instance or a NAT gateway is in, as EC2 does.

    Raises:
        ApiError: something is in it; the message names it.
    """
    users = [
        instance["InstanceId"]
        for instance in emulator.instances.values()
        if instance["State"]["Code"] != TERMINATED
        and resource_id
        in (instance["SubnetId"], instance["VpcId"], *(group["GroupId"] for group in instance["SecurityGroups"]))
    ]
    users += [
        nat["NatGatewayId"]
        for nat in emulator.nat_gateways.values()
        if nat["State"] != "deleted" and resource_id in (nat["SubnetId"], nat["VpcId"])
    ]
    if users:
        raise ApiError(
            "DependencyViolation",
            f"resource {resource_id} has a dependent object ({', '.join(users)}): delete it first",
        )


_RULE = ("CidrIp", "CidrIpv6", "Description", "FromPort", "GroupId", "IpProtocol", "ToPort")
_INGRESS = (*_RULE, "SourcePrefixListId", "SourceSecurityGroupId", "SourceSecurityGroupOwnerId")
_EGRESS = (*_RULE, "DestinationPrefixListId", "DestinationSecurityGroupId")

NETWORK_TYPES = {
    "AWS::EC2::SecurityGroupIngress": ResourceType(
        properties=frozenset(_INGRESS), create=_create_ingress, delete=_delete_ingress, replace_on=_INGRESS
    ),
    "AWS::EC2::SecurityGroupEgress": ResourceType(
        properties=frozenset(_EGRESS), create=_create_egress, delete=_delete_egress, replace_on=_EGRESS
    ),
    "AWS::EC2::EIP": ResourceType(
        properties=frozenset({"Domain", "Tags.*"}),
        create=_create_address,
        update=_update_address,
        delete=_delete_address,
        replace_on=("Domain",),
    ),
    "AWS::EC2::NatGateway": ResourceType(
        properties=frozenset({"AllocationId", "SubnetId", "Tags.*"}),
        create=_create_nat_gateway,
        update=_update_nat_gateway,
        delete=_delete_nat_gateway,
        replace_on=("AllocationId", "SubnetId"),
    ),
    "AWS::EC2::FlowLog": ResourceType(
        properties=frozenset({*_FLOW_LOG, "ResourceId", "Tags.*"}),
        create=_create_flow_log,
        update=_update_flow_log,
        delete=_delete_flow_log,
        replace_on=(*_FLOW_LOG, "ResourceId"),
    ),
}
