"""Security groups and prefix lists of templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

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
from slurm_cluster.reachability.properties import Properties
from slurm_cluster.reachability.stacks import STACK_TYPE, Stack
from slurm_cluster.reachability.values import Id, Token, tokens_in

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
_RESTRICTION = "Custom::VpcRestrictDefaultSG"
"""Type of the custom resource by which the CDK takes every rule from a VPC's default group."""


def groups_and_rules(stacks: list[Stack]) -> tuple[dict[Id, Group], tuple[GroupRule, ...]]:
    """Return the security groups that the stacks make, and every rule in them."""
    groups: dict[Id, Group] = {}
    rules: list[GroupRule] = []
    names = group_names(stacks)
    for stack in stacks:
        for logical_id, found in stack.properties(_GROUP):
            group, inline = _group(stack, logical_id, found, names)
            groups[group.id] = group
            rules += inline
        for logical_id, _ in stack.resources("AWS::EC2::VPC"):
            group, inline = _default_group(stack, logical_id)
            groups[group.id] = group
            rules += inline
    for stack in stacks:
        for direction, kind in _STANDALONE.items():
            for logical_id, found in stack.properties(kind):
                group_id = found.scalar("GroupId") or _by_name(found.scalar("GroupName"), names)
                if group_id is not None:
                    rules += _rules(stack, f"{stack.prefix}{logical_id}", group_id, direction, found, names)
    extended: dict[Id, str] = dict(_extended(stacks))
    groups = {group_id: replace(group, extended_by=extended.get(group_id, "")) for group_id, group in groups.items()}
    return _without_default_egress(groups, rules), tuple(rules)


def prefix_lists(stacks: list[Stack]) -> dict[Id, tuple[Cidr, ...]]:
    """Return the prefix lists that the stacks make; one with an unknown entry is left out."""
    found: dict[Id, tuple[Cidr, ...]] = {}
    for stack in stacks:
        for logical_id, given in stack.properties("AWS::EC2::PrefixList"):
            entries = [None if isinstance(item, Token) else item.cidr("Cidr") for item in given.parts("Entries")]
            known = tuple(item for item in entries if item is not None)
            if len(known) == len(entries):
                found[stack.token(logical_id)] = known
    return found


def group_names(stacks: list[Stack]) -> dict[str, Id]:
    """Return the groups that the stacks make with a name of their own, by that name."""
    return dict(_named(stacks))


def _named(stacks: list[Stack]) -> Iterator[tuple[str, Id]]:
    for stack in stacks:
        for logical_id, found in stack.properties(_GROUP):
            name = found.text("GroupName")
            if name is not None:
                yield name, stack.token(logical_id)


def _extended(stacks: list[Stack]) -> Iterator[tuple[Token, str]]:
    """Yield every token that is given to a nested stack whose template is not known, and the stack."""
    for stack in stacks:
        for logical_id, found in stack.properties(STACK_TYPE):
            if logical_id not in stack.nested:
                for token in tokens_in(found.value("Parameters")):
                    yield token, f"{stack.prefix}{logical_id}"


def _group(stack: Stack, logical_id: str, found: Properties, names: Mapping[str, Id]) -> tuple[Group, list[GroupRule]]:
    rules: list[GroupRule] = []
    complete = True
    for direction, name in _INLINE.items():
        for number, entry in enumerate(found.parts(name)):
            if isinstance(entry, Token):
                complete = False
            else:
                where = f"{stack.prefix}{logical_id}/{name}/{number}"
                rules += _rules(stack, where, stack.token(logical_id), direction, entry, names)
    words = [found.text("GroupName"), found.tags().get("Name"), found.text("GroupDescription")]
    group = Group(
        id=stack.token(logical_id),
        name=f"{stack.prefix}{logical_id}",
        complete=complete,
        vpc=found.scalar("VpcId"),
        allows_all_egress=not found.parts(_INLINE[Direction.EGRESS]),
        template=stack.template,
        words=tuple(word for word in words if word is not None),
    )
    return group, rules


def _default_group(stack: Stack, vpc: str) -> tuple[Group, list[GroupRule]]:
    """Return the group that comes into being with a VPC, which lets in what is in it."""
    group_id = stack.attribute(vpc, "DefaultSecurityGroup")
    restricted = any(found.scalar("DefaultSecurityGroupId") == group_id for _, found in stack.properties(_RESTRICTION))
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


def _by_name(name: str | Token | None, names: Mapping[str, Id]) -> Id | None:
    return None if name is None else by_name(name, names)


def by_name(name: Id, names: Mapping[str, Id]) -> Id:
    """Return the group of a name, which may be an id: where names are taken, CloudFormation takes ids as well."""
    if isinstance(name, Token) or name.startswith("sg-"):
        return name
    return names.get(name, Token(name, ("group name", name)))


def _rules(
    stack: Stack, rule_id: str, group: Id, direction: Direction, found: Properties, names: Mapping[str, Id]
) -> Iterator[GroupRule]:
    protocol = protocol_name(found.scalar("IpProtocol") or Token("that is not given", ("no protocol", rule_id)))
    allowed: PortRange | Token | None = None
    if protocol in ("tcp", "udp") or isinstance(protocol, Token):
        allowed = found.ports("FromPort", "ToPort")
    for name, kind in _PEERS[direction].items():
        peer = _peer(kind, found, name, names)
        if peer is not None:
            yield group_rule(
                rule_id=rule_id,
                template=stack.template,
                group=group,
                direction=direction,
                protocol=protocol,
                ports=allowed,
                peer=peer,
            )


def _peer(kind: str, found: Properties, name: str, names: Mapping[str, Id]) -> Peer | None:
    if kind == "cidr":
        cidr = found.cidr(name)
        return None if cidr is None else CidrPeer(cidr)
    value = found.scalar(name)
    if value is None or kind == "prefix list":
        return None if value is None else PrefixListPeer(value)
    group = _by_name(value, names) if kind == "name" else value
    return None if group is None else GroupPeer(group)


def _without_default_egress(groups: dict[Id, Group], rules: list[GroupRule]) -> dict[Id, Group]:
    """Return the groups; one with an outbound rule of its own no longer has the one that EC2 gave it."""
    own = {rule.group for rule in rules if rule.direction is Direction.EGRESS}
    return {
        group_id: replace(group, allows_all_egress=False) if group_id in own else group
        for group_id, group in groups.items()
    }
