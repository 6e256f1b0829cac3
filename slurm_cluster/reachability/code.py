"""A CloudFormation resource as Python code for the AWS CDK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_CLASSES = {
    "AWS::EC2::SecurityGroupIngress": "CfnSecurityGroupIngress",
    "AWS::EC2::SecurityGroupEgress": "CfnSecurityGroupEgress",
    "AWS::EC2::NetworkAclEntry": "CfnNetworkAclEntry",
}
_ARGUMENTS = {
    "GroupId": "group_id",
    "SourceSecurityGroupId": "source_security_group_id",
    "DestinationSecurityGroupId": "destination_security_group_id",
    "IpProtocol": "ip_protocol",
    "FromPort": "from_port",
    "ToPort": "to_port",
    "Description": "description",
    "NetworkAclId": "network_acl_id",
    "RuleNumber": "rule_number",
    "Protocol": "protocol",
    "RuleAction": "rule_action",
    "Egress": "egress",
    "CidrBlock": "cidr_block",
    "PortRange": "port_range",
}


def python_code(logical_id: str, resource: Mapping[str, Any]) -> str:
    """Return code that makes a rule or network ACL entry in a Stack's constructor.

    Args:
        logical_id: its construct id.
        resource: it as a template has it.
    """
    arguments = (f"    {_ARGUMENTS[name]}={_expression(value)},\n" for name, value in resource["Properties"].items())
    return f"ec2.{_CLASSES[resource['Type']]}(\n    self,\n    {_text(logical_id)},\n{''.join(arguments)})"


def _expression(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, dict)):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if set(value) == {"From", "To"}:
        return f"ec2.CfnNetworkAclEntry.PortRangeProperty(from_={value['From']}, to={value['To']})"
    name, argument = next(iter(value.items()))
    if name == "Fn::GetAtt":
        return f"cdk.Fn.get_att({_text(argument[0])}, {_text(argument[1])}).to_string()"
    if name == "Ref":
        return f"cdk.Fn.ref({_text(argument)})"
    if name == "Fn::ImportValue" and isinstance(argument, str):
        return f"cdk.Fn.import_value({_text(argument)})"
    return f"cdk.Token.as_string({value!r})"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
