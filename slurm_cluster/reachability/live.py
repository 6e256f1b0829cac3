"""The network of a running cluster, read from the account that it runs in.

The caller needs these permissions and no other; none of them can be limited to a resource::

    ec2:DescribeInstances
    ec2:DescribeSecurityGroups
    ec2:DescribeSecurityGroupRules
    ec2:DescribeSubnets
    ec2:DescribeVpcs
    ec2:DescribeNetworkAcls
    ec2:GetManagedPrefixListEntries    where a rule names a prefix list
    cloudformation:ListStackResources  where a stack is given
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from slurm_cluster.model.flows import PortRange
from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.live_stack import LaunchedBy, launched_by
from slurm_cluster.reachability.network import (
    AclEntry,
    CidrPeer,
    Group,
    GroupPeer,
    GroupRule,
    Member,
    Network,
    NetworkAcl,
    Peer,
    PrefixListPeer,
    Subnet,
    Vpc,
)
from slurm_cluster.reachability.proof import Direction, FoundRule
from slurm_cluster.reachability.values import Id

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import (
        FilterTypeDef,
        InstanceTypeDef,
        NetworkAclEntryTypeDef,
        SecurityGroupRuleTypeDef,
    )

_CONFIG = Config(retries={"mode": "standard", "max_attempts": 10})
_PROTOCOLS = {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmpv6"}
_ALIVE = ("pending", "running", "stopping", "stopped")
_CHUNK = 200
"""Values of one filter, https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html."""


def read(*, stack: str | None = None, instance_ids: Sequence[str] = (), region: str | None = None) -> Network:
    """Read the instances of a cluster, and what decides who reaches whom.

    Args:
        stack: name or id of a CloudFormation stack. Its instances are looked at, those of nested stacks, and those
            that its launch templates and auto scaling groups have launched.
        instance_ids: the instances themselves, in place of a stack.
        region: the Region; that of the caller's AWS configuration by default.

    Raises:
        InputError: AWS does not answer, or there is no such stack or instance.
    """
    try:
        session = boto3.Session(region_name=region)
        ec2 = session.client("ec2", config=_CONFIG)
        if stack is None:
            instances = _by_filter(ec2, "instance-id", instance_ids)
            _check_all_there(instances, instance_ids)
        else:
            launched = launched_by(session.client("cloudformation", config=_CONFIG), stack)
            instances = _of_stack(ec2, launched)
            if not instances:
                raise InputError(
                    f"stack {stack} has no instance: give one that has head and workers, or --instance-ids"
                )
        return _network(ec2, list(instances.values()))
    except ClientError as error:
        raise InputError(_refused(error)) from error
    except BotoCoreError as error:
        raise InputError(
            f"AWS cannot be asked: {error}; sign in, and give a Region by --region or AWS_REGION"
        ) from error


def _refused(error: ClientError) -> str:
    code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
    operation = error.operation_name
    if code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"):
        return f"AWS refuses {operation}: {message}; allow it to your role, it only reads"
    return f"AWS answers {operation} with {code}: {message}"


def _check_all_there(found: Mapping[str, InstanceTypeDef], wanted: Sequence[str]) -> None:
    if absent := [name for name in wanted if name not in found]:
        raise InputError(
            f"no such instance here, or it is terminated: {', '.join(absent)}; "
            "check the ids, the Region (--region) and the account"
        )


def _of_stack(ec2: EC2Client, launched: LaunchedBy) -> dict[str, InstanceTypeDef]:
    found: dict[str, InstanceTypeDef] = {}
    for name, values in (
        ("instance-id", launched.instances),
        ("tag:aws:ec2launchtemplate:id", launched.launch_templates),
        ("tag:aws:autoscaling:groupName", launched.auto_scaling_groups),
    ):
        found |= _by_filter(ec2, name, values)
    return found


def _by_filter(ec2: EC2Client, name: str, values: Sequence[str]) -> dict[str, InstanceTypeDef]:
    pages = ec2.get_paginator("describe_instances")
    return {
        instance["InstanceId"]: instance
        for chosen in _filters(name, values)
        for page in pages.paginate(Filters=[*chosen, {"Name": "instance-state-name", "Values": list(_ALIVE)}])
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }


def _filters(name: str, values: Sequence[str]) -> Iterator[list[FilterTypeDef]]:
    for start in range(0, len(values), _CHUNK):
        yield [{"Name": name, "Values": list(values[start : start + _CHUNK])}]


def _network(ec2: EC2Client, instances: Sequence[InstanceTypeDef]) -> Network:
    members = tuple(_member(instance) for instance in instances)
    group_ids = _distinct(str(group) for member in members for group in member.groups)
    subnet_ids = _distinct(str(subnet) for member in members for subnet in member.subnets)
    rules = tuple(_rules(ec2, group_ids))
    acl_of, acls = _acls(ec2, subnet_ids)
    subnets = _subnets(ec2, subnet_ids, acl_of)
    lists = _distinct(str(rule.peer.id) for rule in rules if isinstance(rule.peer, PrefixListPeer))
    return Network(
        groups=_groups(ec2, group_ids),
        rules=rules,
        members=members,
        subnets=subnets,
        vpcs=_vpcs(ec2, _distinct(str(subnet.vpc) for subnet in subnets.values())),
        acls=acls,
        prefix_lists={name: found for name in lists if (found := _prefix_list(ec2, name)) is not None},
    )


def _distinct(values: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _member(instance: InstanceTypeDef) -> Member:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    address = instance.get("PrivateIpAddress")
    return Member(
        name=instance["InstanceId"],
        kind="instance",
        # of the primary network interface
        groups=tuple(group["GroupId"] for group in instance.get("SecurityGroups", ())),
        subnets=(instance["SubnetId"],) if "SubnetId" in instance else (),
        address=IPv4Address(address) if address else None,
        tags=tags,
        words=(tags["Name"],) if "Name" in tags else (),
    )


def _groups(ec2: EC2Client, group_ids: Sequence[str]) -> dict[Id, Group]:
    pages = ec2.get_paginator("describe_security_groups")
    return {
        group["GroupId"]: Group(
            id=group["GroupId"],
            name=group["GroupId"],
            complete=True,
            vpc=group["VpcId"],
            words=(
                group["GroupName"],
                *(tag["Value"] for tag in group.get("Tags", ()) if tag["Key"] == "Name"),
                group["Description"],
            ),
        )
        for chosen in _filters("group-id", group_ids)
        for page in pages.paginate(Filters=chosen)
        for group in page["SecurityGroups"]
    }


def _rules(ec2: EC2Client, group_ids: Sequence[str]) -> Iterator[GroupRule]:
    pages = ec2.get_paginator("describe_security_group_rules")
    for chosen in _filters("group-id", group_ids):
        for page in pages.paginate(Filters=chosen):
            for rule in page["SecurityGroupRules"]:
                yield _rule(rule)


def _rule(rule: SecurityGroupRuleTypeDef) -> GroupRule:
    peer = _peer(rule)
    direction = Direction.EGRESS if rule["IsEgress"] else Direction.INGRESS
    protocol = _protocol(rule["IpProtocol"])
    ports = _ports(protocol, rule.get("FromPort", -1), rule.get("ToPort", -1))
    name = str(_name_of(peer))
    what = "everything" if protocol == "-1" else f"{protocol.upper()} {ports}" if ports else protocol.upper()
    way = "out to" if direction is Direction.EGRESS else "in from"
    found = FoundRule(
        id=rule["SecurityGroupRuleId"],
        template="",
        group=rule["GroupId"],
        direction=direction,
        protocol=protocol,
        ports=ports,
        peer=name,
        text=f"{rule['GroupId']} lets {what} {way} {name}",
    )
    return GroupRule(found=found, group=rule["GroupId"], protocol=protocol, ports=ports, peer=peer)


def _peer(rule: SecurityGroupRuleTypeDef) -> Peer:
    if "ReferencedGroupInfo" in rule:
        return GroupPeer(rule["ReferencedGroupInfo"]["GroupId"])
    if "PrefixListId" in rule:
        return PrefixListPeer(rule["PrefixListId"])
    return CidrPeer(ip_network(rule["CidrIpv4"] if "CidrIpv4" in rule else rule["CidrIpv6"], strict=False))


def _name_of(peer: Peer) -> object:
    if isinstance(peer, GroupPeer):
        return peer.group
    return peer.id if isinstance(peer, PrefixListPeer) else peer.cidr


def _protocol(text: str) -> str:
    return _PROTOCOLS.get(text, text)


def _ports(protocol: str, first: int, last: int) -> PortRange | None:
    # the two numbers of ICMP are no ports, and -1 is all
    return PortRange(first, last) if protocol in ("tcp", "udp") and 0 <= first <= last else None


def _acls(ec2: EC2Client, subnet_ids: Sequence[str]) -> tuple[dict[str, str], dict[Id, NetworkAcl]]:
    """Return the network ACL of each subnet, and the ACLs."""
    acl_of: dict[str, str] = {}
    acls: dict[Id, NetworkAcl] = {}
    pages = ec2.get_paginator("describe_network_acls")
    for chosen in _filters("association.subnet-id", subnet_ids):
        for page in pages.paginate(Filters=chosen):
            for acl in page["NetworkAcls"]:
                name = acl["NetworkAclId"]
                acl_of |= {item["SubnetId"]: name for item in acl["Associations"]}
                acls[name] = NetworkAcl(id=name, name=name, entries=tuple(map(_acl_entry, acl["Entries"])))
    return acl_of, acls


def _acl_entry(entry: NetworkAclEntryTypeDef) -> AclEntry:
    protocol = _protocol(entry["Protocol"])
    ports = entry.get("PortRange", {})
    return AclEntry(
        number=entry["RuleNumber"],
        allow=entry["RuleAction"] == "allow",
        direction=Direction.EGRESS if entry["Egress"] else Direction.INGRESS,
        protocol=protocol,
        ports=_ports(protocol, ports.get("From", -1), ports.get("To", -1)),
        cidr=ip_network(entry["CidrBlock"] if "CidrBlock" in entry else entry["Ipv6CidrBlock"], strict=False),
    )


def _subnets(ec2: EC2Client, subnet_ids: Sequence[str], acl_of: Mapping[str, str]) -> dict[Id, Subnet]:
    pages = ec2.get_paginator("describe_subnets")
    return {
        subnet["SubnetId"]: Subnet(
            id=subnet["SubnetId"],
            name=subnet["SubnetId"],
            cidr=IPv4Network(subnet["CidrBlock"]) if subnet.get("CidrBlock") else None,
            vpc=subnet["VpcId"],
            acl=acl_of.get(subnet["SubnetId"]),
        )
        for chosen in _filters("subnet-id", subnet_ids)
        for page in pages.paginate(Filters=chosen)
        for subnet in page["Subnets"]
    }


def _vpcs(ec2: EC2Client, vpc_ids: Sequence[str]) -> dict[Id, Vpc]:
    pages = ec2.get_paginator("describe_vpcs")
    return {
        vpc["VpcId"]: Vpc(
            id=vpc["VpcId"],
            cidrs=tuple(
                IPv4Network(item["CidrBlock"])
                for item in vpc["CidrBlockAssociationSet"]
                if item["CidrBlockState"]["State"] == "associated"
            ),
        )
        for chosen in _filters("vpc-id", vpc_ids)
        for page in pages.paginate(Filters=chosen)
        for vpc in page["Vpcs"]
    }


def _prefix_list(ec2: EC2Client, name: str) -> tuple[IPv4Network | IPv6Network, ...] | None:
    """Return the networks of a prefix list; None for one that was deleted or is another account's."""
    try:
        pages = ec2.get_paginator("get_managed_prefix_list_entries").paginate(PrefixListId=name)
        return tuple(ip_network(entry["Cidr"]) for page in pages for entry in page["Entries"])
    except ClientError as error:
        if error.response["Error"]["Code"] == "InvalidPrefixListID.NotFound":
            return None
        raise
