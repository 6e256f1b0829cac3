"""Security groups and prefix lists of templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from slurm_cluster.model.flows import PortRange
from slurm_cluster.reachability.network import (
    Cidr,
    CidrPeer,
    Group,
    GroupPeer,
    GroupRule,
    Peer,
    PrefixListPeer,
    group_rule,
    protocol_name,
)
from slurm_cluster.reachability.proof import Direction
from slurm_cluster.reachability.stacks import Stack
from slurm_cluster.reachability.template_values import cidr, ports, tags
from slurm_cluster.reachability.values import Id, Token, text_of

_GROUP = "AWS::EC2::SecurityGroup"
_STANDALONE = {
    Direction.INGRESS: "AWS::EC2::SecurityGroupIngress",
    Direction.EGRESS: "AWS::EC2::SecurityGroupEgress",
}
_INLINE = {Direction.INGRESS: "SecurityGroupIngress", Direction.EGRESS: "SecurityGroupEgress"}
_PEERS: Mapping[Direction, Mapping[str, str]] = {
    Direction.INGRESS: {
        "CidrIp": "cidr",
        "CidrIpv6": "cidr",
        "SourceSecurityGroupId": "group",
        "SourceSecurityGroupName": "name",
        "SourcePrefixListId": "prefix list",
    },
    Direction.EGRESS: {
        "CidrIp": "cidr",
        "CidrIpv6": "cidr",
        "DestinationSecurityGroupId": "group",
        "DestinationPrefixListId": "prefix list",
    },
}
_RULE = ("IpProtocol", "FromPort", "ToPort", "GroupId", "GroupName")
_RESTRICTION = "Custom::VpcRestrictDefaultSG"
"""Type of the custom resource by which the CDK takes every rule from a VPC's default group."""


def groups_and_rules(stacks: list[Stack]) -> tuple[dict[Id, Group], tuple[GroupRule, ...]]:
    """Return the security groups that the stacks make, and every rule in them."""
    groups: dict[Id, Group] = {}
    rules: list[GroupRule] = []
    names = dict(_named(stacks))
    for stack in stacks:
        for logical_id, resource in stack.resources(_GROUP):
            group, inline = _group(stack, logical_id, resource, names)
            groups[group.id] = group
            rules += inline
        for logical_id, _ in stack.resources("AWS::EC2::VPC"):
            group, inline = _default_group(stack, logical_id)
            groups[group.id] = group
            rules += inline
    for stack in stacks:
        for direction, kind in _STANDALONE.items():
            for logical_id, resource in stack.resources(kind):
                found = stack.properties(resource, *_RULE, *_PEERS[direction])
                group_id = _group_id(found, names)
                if group_id is not None:
                    rules += _rules(stack, f"{stack.prefix}{logical_id}", group_id, direction, found, names)
    return _without_default_egress(groups, rules), tuple(rules)


def prefix_lists(stacks: list[Stack]) -> dict[Id, tuple[Cidr, ...]]:
    """Return the prefix lists that the stacks make; one with an unknown entry is left out."""
    found: dict[Id, tuple[Cidr, ...]] = {}
    for stack in stacks:
        for logical_id, resource in stack.resources("AWS::EC2::PrefixList"):
            entries = stack.properties(resource, "Entries").get("Entries", [])
            if isinstance(entries, list) and all(isinstance(entry, dict) and "Cidr" in entry for entry in entries):
                where = f"{stack.template}: {logical_id}"
                found[stack.token(logical_id)] = tuple(cidr(entry["Cidr"], where) for entry in entries)
    return found


def _named(stacks: list[Stack]) -> Iterator[tuple[str, Id]]:
    for stack in stacks:
        for logical_id, resource in stack.resources(_GROUP):
            name = stack.properties(resource, "GroupName").get("GroupName")
            if isinstance(name, str):
                yield name, stack.token(logical_id)


def _group(
    stack: Stack, logical_id: str, resource: Mapping[str, Any], names: Mapping[str, Id]
) -> tuple[Group, list[GroupRule]]:
    found = stack.properties(resource, "GroupName", "GroupDescription", "VpcId", "Tags", *_INLINE.values())
    rules: list[GroupRule] = []
    complete = True
    for direction, name in _INLINE.items():
        entries = found.get(name, [])
        # one rule may stand there without a list
        for number, entry in enumerate([entries] if isinstance(entries, (Mapping, Token)) else entries):
            if isinstance(entry, Mapping):
                where = f"{stack.prefix}{logical_id}/{name}/{number}"
                rules += _rules(stack, where, stack.token(logical_id), direction, entry, names)
            else:
                complete = False
    words = [found.get("GroupName"), tags(found.get("Tags")).get("Name"), found.get("GroupDescription")]
    group = Group(
        id=stack.token(logical_id),
        name=f"{stack.prefix}{logical_id}",
        complete=complete,
        vpc=found.get("VpcId"),
        allows_all_egress=not found.get(_INLINE[Direction.EGRESS]),
        template=stack.template,
        words=tuple(word for word in words if isinstance(word, str)),
    )
    return group, rules


def _default_group(stack: Stack, vpc: str) -> tuple[Group, list[GroupRule]]:
    """Return the group that comes into being with a VPC, which lets in what is in it."""
    group_id = stack.attribute(vpc, "DefaultSecurityGroup")
    restricted = any(
        stack.properties(resource, "DefaultSecurityGroupId").get("DefaultSecurityGroupId") == group_id
        for _, resource in stack.resources(_RESTRICTION)
    )
    group = Group(
        id=group_id,
        name=str(group_id),
        complete=True,
        vpc=stack.token(vpc),
        allows_all_egress=not restricted,
        template=stack.template,
    )
    own = group_rule(
        rule_id=f"{stack.prefix}{vpc}/DefaultSecurityGroup",
        template=stack.template,
        group=group_id,
        direction=Direction.INGRESS,
        protocol="-1",
        ports=None,
        peer=GroupPeer(group_id),
    )
    return group, [] if restricted else [own]


def _group_id(found: Mapping[str, Any], names: Mapping[str, Id]) -> Id | None:
    if "GroupId" in found:
        return found["GroupId"] if isinstance(found["GroupId"], Token) else text_of(found["GroupId"])
    return _by_name(found["GroupName"], names) if "GroupName" in found else None


def _by_name(name: Any, names: Mapping[str, Id]) -> Id:
    if isinstance(name, Token):
        return name
    return names.get(name, Token(text_of(name), ("group name", text_of(name))))


def _rules(
    stack: Stack,
    rule_id: str,
    group: Id,
    direction: Direction,
    found: Mapping[str, Any],
    names: Mapping[str, Id],
) -> Iterator[GroupRule]:
    where = f"{stack.template}: {rule_id}"
    protocol = protocol_name(found.get("IpProtocol", "-1"))
    allowed: PortRange | Token | None = None
    if protocol in ("tcp", "udp") or isinstance(protocol, Token):
        allowed = ports(found.get("FromPort"), found.get("ToPort"), where)
    for name, kind in _PEERS[direction].items():
        if name in found and found[name] != "":
            yield group_rule(
                rule_id=rule_id,
                template=stack.template,
                group=group,
                direction=direction,
                protocol=protocol,
                ports=allowed,
                peer=_peer(kind, found[name], where, names),
            )


def _peer(kind: str, value: Any, where: str, names: Mapping[str, Id]) -> Peer:
    if kind == "cidr":
        return CidrPeer(cidr(value, where))
    if kind == "name":
        return GroupPeer(_by_name(value, names))
    known = value if isinstance(value, Token) else text_of(value)
    return GroupPeer(known) if kind == "group" else PrefixListPeer(known)


def _without_default_egress(groups: dict[Id, Group], rules: list[GroupRule]) -> dict[Id, Group]:
    """Return the groups; one with an outbound rule of its own no longer has the one that EC2 gave it."""
    own = {rule.group for rule in rules if rule.direction is Direction.EGRESS}
    return {
        group_id: replace(group, allows_all_egress=False) if group_id in own else group
        for group_id, group in groups.items()
    }
