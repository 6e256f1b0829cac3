"""VPCs, subnets and network ACLs of templates."""

from __future__ import annotations

from ipaddress import IPv4Network

from slurm_cluster.reachability.network import AclEntry, Cidr, NetworkAcl, Subnet, Vpc, protocol_name
from slurm_cluster.reachability.proof import Direction
from slurm_cluster.reachability.properties import Properties
from slurm_cluster.reachability.stacks import Stack
from slurm_cluster.reachability.values import Id, Token

_EVERYWHERE = IPv4Network("0.0.0.0/0")
_DEFAULT_NUMBER = 100
"""Number of the entries by which a VPC's default network ACL admits everything."""


def vpcs(stacks: list[Stack]) -> dict[Id, Vpc]:
    """Return the VPCs that the stacks make."""
    ranges: dict[Id, list[Cidr]] = {}
    unknown: set[Id] = set()
    for stack in stacks:
        for logical_id, found in stack.properties("AWS::EC2::VPC"):
            cidr = found.cidr("CidrBlock")
            if cidr is not None:
                ranges[stack.token(logical_id)] = [cidr]
    for stack in stacks:
        for _, found in stack.properties("AWS::EC2::VPCCidrBlock"):
            vpc, cidr = found.scalar("VpcId"), found.cidr("CidrBlock")
            if vpc in ranges and cidr is not None:
                ranges[vpc].append(cidr)
            elif vpc is not None and "Ipv4IpamPoolId" in found:
                unknown.add(vpc)
    return {vpc: Vpc(id=vpc, cidrs=() if vpc in unknown else tuple(cidrs)) for vpc, cidrs in ranges.items()}


def subnets(stacks: list[Stack]) -> dict[Id, Subnet]:
    """Return the subnets that the stacks make, and those that they only give a network ACL."""
    found: dict[Id, Subnet] = {}
    acls = _associations(stacks)
    made_vpcs = {stack.token(name): (stack, name) for stack in stacks for name, _ in stack.resources("AWS::EC2::VPC")}
    for stack in stacks:
        for logical_id, given in stack.properties("AWS::EC2::Subnet"):
            vpc = given.scalar("VpcId")
            subnet = stack.token(logical_id)
            acl = acls.pop(subnet, None)
            if acl is None and vpc in made_vpcs:
                owner, name = made_vpcs[vpc]
                acl = owner.attribute(name, "DefaultNetworkAcl")
            found[subnet] = Subnet(id=subnet, name=str(subnet), cidr=given.cidr("CidrBlock"), vpc=vpc, acl=acl)
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
        for _, found in stack.properties("AWS::EC2::NetworkAclEntry"):
            owner = found.scalar("NetworkAclId")
            if owner not in entries:
                continue
            entry = _entry(found)
            if entry is None:
                incomplete.add(owner)
                continue
            # an entry with the number of the default one takes its place
            entries[owner] = [
                other for other in entries[owner] if (other.number, other.direction) != (entry.number, entry.direction)
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
        for _, given in stack.properties("AWS::EC2::SubnetNetworkAclAssociation"):
            subnet, acl = given.scalar("SubnetId"), given.scalar("NetworkAclId")
            if subnet is not None and acl is not None:
                found[subnet] = acl
    return found


def _entry(found: Properties) -> AclEntry | None:
    """Return an entry; None where its place or its action is not known."""
    number, action = found.text("RuleNumber"), found.text("RuleAction")
    if number is None or not number.isdecimal() or action is None:
        return None
    protocol = protocol_name(found.scalar("Protocol") or Token("that is not given", ("no protocol", number)))
    limits = found.part("PortRange")
    # with protocol -1, all ports are meant, whatever is given
    limited = protocol != "-1" and ("From" in limits or protocol in ("tcp", "udp"))
    return AclEntry(
        number=int(number),
        allow=action.lower() == "allow",
        direction=Direction.EGRESS if (found.text("Egress") or "").lower() == "true" else Direction.INGRESS,
        protocol=protocol,
        ports=limits.ports("From", "To") if limited else None,
        cidr=found.cidr("CidrBlock") or found.cidr("Ipv6CidrBlock") or _EVERYWHERE,
    )


def _admits_all(direction: Direction) -> AclEntry:
    return AclEntry(
        number=_DEFAULT_NUMBER,
        allow=True,
        direction=direction,
        protocol="-1",
        ports=None,
        cidr=_EVERYWHERE,
    )
