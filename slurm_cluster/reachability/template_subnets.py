"""VPCs, subnets and network ACLs of templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slurm_cluster.reachability.network import AclEntry, Cidr, NetworkAcl, Subnet, Vpc, protocol_name
from slurm_cluster.reachability.proof import Direction
from slurm_cluster.reachability.stacks import Stack
from slurm_cluster.reachability.template_values import cidr, ports
from slurm_cluster.reachability.values import Id, Token, text_of

_ENTRY = ("NetworkAclId", "RuleNumber", "Protocol", "RuleAction", "Egress", "CidrBlock", "Ipv6CidrBlock", "PortRange")
_DEFAULT_NUMBER = 100
"""Number of the entries by which a VPC's default network ACL admits everything."""


def vpcs(stacks: list[Stack]) -> dict[Id, Vpc]:
    """Return the VPCs that the stacks make."""
    ranges: dict[Id, list[Cidr]] = {}
    unknown: set[Id] = set()
    for stack in stacks:
        for logical_id, resource in stack.resources("AWS::EC2::VPC"):
            found = stack.properties(resource, "CidrBlock")
            if "CidrBlock" in found:
                ranges[stack.token(logical_id)] = [cidr(found["CidrBlock"], f"{stack.template}: {logical_id}")]
    for stack in stacks:
        for logical_id, resource in stack.resources("AWS::EC2::VPCCidrBlock"):
            found = stack.properties(resource, "VpcId", "CidrBlock", "Ipv4IpamPoolId")
            vpc = found.get("VpcId")
            if "CidrBlock" in found and vpc in ranges:
                ranges[vpc].append(cidr(found["CidrBlock"], f"{stack.template}: {logical_id}"))
            elif "Ipv4IpamPoolId" in found and vpc is not None:
                unknown.add(vpc)
    return {vpc: Vpc(id=vpc, cidrs=() if vpc in unknown else tuple(cidrs)) for vpc, cidrs in ranges.items()}


def subnets(stacks: list[Stack]) -> dict[Id, Subnet]:
    """Return the subnets that the stacks make, and those that they only give a network ACL."""
    found: dict[Id, Subnet] = {}
    acls = _associations(stacks)
    made_vpcs = {stack.token(name): (stack, name) for stack in stacks for name, _ in stack.resources("AWS::EC2::VPC")}
    for stack in stacks:
        for logical_id, resource in stack.resources("AWS::EC2::Subnet"):
            given = stack.properties(resource, "CidrBlock", "VpcId")
            vpc = given.get("VpcId")
            subnet = stack.token(logical_id)
            acl = acls.pop(subnet, None)
            if acl is None and vpc in made_vpcs:
                owner, name = made_vpcs[vpc]
                acl = owner.attribute(name, "DefaultNetworkAcl")
            where = f"{stack.template}: {logical_id}"
            found[subnet] = Subnet(
                id=subnet,
                name=str(subnet),
                cidr=cidr(given["CidrBlock"], where) if "CidrBlock" in given else None,
                vpc=vpc,
                acl=acl,
            )
    return found | {subnet: Subnet(id=subnet, name=str(subnet), acl=acl) for subnet, acl in acls.items()}


def network_acls(stacks: list[Stack]) -> dict[Id, NetworkAcl]:
    """Return the network ACLs that the stacks make, the default one of each VPC included."""
    entries: dict[Id, list[AclEntry]] = {}
    incomplete: set[Id] = set()
    templates: dict[Id, str] = {}
    for stack in stacks:
        for logical_id, _ in stack.resources("AWS::EC2::NetworkAcl"):
            entries[stack.token(logical_id)] = []
            templates[stack.token(logical_id)] = stack.template
        for logical_id, _ in stack.resources("AWS::EC2::VPC"):
            acl = stack.attribute(logical_id, "DefaultNetworkAcl")
            entries[acl] = [_admits_all(direction) for direction in Direction]
            templates[acl] = stack.template
    for stack in stacks:
        for logical_id, resource in stack.resources("AWS::EC2::NetworkAclEntry"):
            found = stack.properties(resource, *_ENTRY)
            acl = found.get("NetworkAclId")
            if acl not in entries:
                continue
            if isinstance(found.get("RuleNumber"), Token) or isinstance(found.get("RuleAction"), Token):
                incomplete.add(acl)
                continue
            entry = _entry(found, f"{stack.template}: {logical_id}")
            # an entry with the number of the default one takes its place
            entries[acl] = [
                other for other in entries[acl] if (other.number, other.direction) != (entry.number, entry.direction)
            ] + [entry]
    return {
        acl: NetworkAcl(
            id=acl, name=str(acl), entries=tuple(items), complete=acl not in incomplete, template=templates[acl]
        )
        for acl, items in entries.items()
    }


def _associations(stacks: list[Stack]) -> dict[Id, Id]:
    found: dict[Id, Id] = {}
    for stack in stacks:
        for _, resource in stack.resources("AWS::EC2::SubnetNetworkAclAssociation"):
            given = stack.properties(resource, "SubnetId", "NetworkAclId")
            if len(given) == 2:
                found[given["SubnetId"]] = given["NetworkAclId"]
    return found


def _entry(found: Mapping[str, Any], where: str) -> AclEntry:
    protocol = protocol_name(found.get("Protocol", "-1"))
    # with protocol -1, all ports are meant, whatever is given
    limits = found.get("PortRange") or {} if protocol != "-1" else {}
    return AclEntry(
        number=int(text_of(found.get("RuleNumber", 0))),
        allow=text_of(found.get("RuleAction")).lower() == "allow",
        direction=Direction.EGRESS if text_of(found.get("Egress", "false")).lower() == "true" else Direction.INGRESS,
        protocol=protocol,
        ports=ports(limits.get("From"), limits.get("To"), where) if limits or protocol in ("tcp", "udp") else None,
        cidr=cidr(found.get("CidrBlock", found.get("Ipv6CidrBlock", "::/0")), where),
    )


def _admits_all(direction: Direction) -> AclEntry:
    return AclEntry(
        number=_DEFAULT_NUMBER,
        allow=True,
        direction=direction,
        protocol="-1",
        ports=None,
        cidr=cidr("0.0.0.0/0", "the default network ACL"),
    )
