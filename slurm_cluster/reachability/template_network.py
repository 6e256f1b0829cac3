"""Templates -> network."""

from __future__ import annotations

import json
from collections.abc import Iterator

from slurm_cluster.reachability.network import Network, Reference
from slurm_cluster.reachability.stacks import Deployment, Stack
from slurm_cluster.reachability.template_groups import groups_and_rules, prefix_lists
from slurm_cluster.reachability.template_machines import members
from slurm_cluster.reachability.template_subnets import network_acls, subnets, vpcs
from slurm_cluster.reachability.templates import Templates
from slurm_cluster.reachability.values import Id, Token
from slurm_cluster.reachability.worlds import World

Written = tuple[Token, dict[str, object]]


def network(templates: Templates, world: World) -> Network:
    """Return the network that the templates make where a world's conditions hold."""
    stacks = Deployment(templates.documents, templates.parameters, world).stacks
    groups, rules = groups_and_rules(stacks)
    found = subnets(stacks)
    references: dict[Id, list[Reference]] = {}
    # the stack that makes a resource comes first
    for stack, written in [(stack, _own(stack)) for stack in stacks] + [(stack, _foreign(stack)) for stack in stacks]:
        for token, value in written:
            reference = Reference(stack=stack.name, template=stack.template, value=json.dumps(value))
            references.setdefault(token, []).append(reference)
    machines = members(stacks, found)
    used = [*(rule.group for rule in rules), *(group for member in machines for group in member.groups)]
    for token, reference in _attributes(stacks, used):
        references.setdefault(token, [reference])
    return Network(
        groups=groups,
        rules=rules,
        members=machines,
        subnets=found,
        vpcs=vpcs(stacks),
        acls=network_acls(stacks),
        prefix_lists=prefix_lists(stacks),
        references={token: tuple(items) for token, items in references.items()},
    )


def _own(stack: Stack) -> Iterator[Written]:
    """Yield how a stack's template writes what it makes."""
    for logical_id, _ in stack.resources("AWS::EC2::SecurityGroup"):
        yield stack.token(logical_id), {"Fn::GetAtt": [logical_id, "GroupId"]}
    for logical_id, _ in stack.resources("AWS::EC2::NetworkAcl", "AWS::EC2::Subnet"):
        yield stack.token(logical_id), {"Ref": logical_id}
    for logical_id, _ in stack.resources("AWS::EC2::VPC"):
        for name in ("DefaultSecurityGroup", "DefaultNetworkAcl"):
            yield stack.attribute(logical_id, name), {"Fn::GetAtt": [logical_id, name]}


def _attributes(stacks: list[Stack], ids: list[Id]) -> Iterator[tuple[Token, Reference]]:
    """Yield how the ids are written that are attributes, or that a macro makes."""
    made_by = {stack.name: stack for stack in stacks}
    for item in ids:
        if isinstance(item, Token) and item.key[0] in ("attribute", "transformed"):
            _, name, logical_id, *attribute = item.key
            stack = made_by[name]
            value = {"Fn::GetAtt": [logical_id, *attribute]} if attribute else {"Ref": logical_id}
            yield item, Reference(stack=stack.name, template=stack.template, value=json.dumps(value))


def _foreign(stack: Stack) -> Iterator[Written]:
    """Yield how a stack's template writes what it is given by its parameters and by the stacks that it nests."""
    for name in stack.parameters:
        value = stack.ref(name)
        if isinstance(value, Token):
            written: dict[str, object] = {"Ref": name}
            # where one id is wanted, a list of them is none
            yield value, {"Fn::Select": [0, written]} if stack.takes_list(name) else written
    for logical_id, nested in stack.nested.items():
        for name in nested.outputs:
            value = nested.output(name)
            if isinstance(value, Token):
                yield value, {"Fn::GetAtt": [logical_id, f"Outputs.{name}"]}
