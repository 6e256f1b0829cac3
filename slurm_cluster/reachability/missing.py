"""The rules that would open a closed flow."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network

from slurm_cluster.model.flows import Flow
from slurm_cluster.reachability import ports as port_sets
from slurm_cluster.reachability.admission import AclCrossing, Passage
from slurm_cluster.reachability.endpoint import Endpoint
from slurm_cluster.reachability.network import Network, NetworkAcl, Reference
from slurm_cluster.reachability.proof import Direction, MissingRule
from slurm_cluster.reachability.values import Id, Token

_FIRST_NUMBER = 100
"""Number of the first entry of a network ACL without any."""


class Remedies:
    """Chooses what to add, the same group of each role wherever it serves all its machines.

    Args:
        network: the network.
        endpoints: all machines of the cluster.
    """

    def __init__(self, network: Network, endpoints: Sequence[Endpoint]) -> None:
        self._network = network
        self._numbers: dict[tuple[Id, Direction], dict[object, int | None]] = {}
        self._carriers = Counter(group for endpoint in endpoints for group in endpoint.groups)

    def group_rule(
        self, flow: Flow, opener: Endpoint, listener: Endpoint, direction: Direction, passage: Passage
    ) -> MissingRule:
        """Return the rule of a security group that lets the flow through."""
        listening, opening = self._group(listener, opener), self._group(opener, listener)
        own, other = (listening, opening) if direction is Direction.INGRESS else (opening, listening)
        closed = port_sets.text(port_sets.union((*passage.shut, *passage.unsure)))
        known = "known " if passage.needs else ""
        way = "in" if direction is Direction.INGRESS else "out"
        own_reference, other_reference = self._written(own, other)
        values = own_reference.value, other_reference.value
        listener_value, opener_value = values if direction is Direction.INGRESS else values[::-1]
        return MissingRule(
            flow=flow,
            listener=str(listening),
            opener=str(opening),
            ports=flow.ports,
            direction=direction,
            reason=f"no {known}rule of {own} lets {way} TCP {closed} {_from(direction)} {other}",
            template=own_reference.template,
            listener_value=listener_value,
            opener_value=opener_value,
        )

    def acl_entry(
        self, flow: Flow, opener: Endpoint, listener: Endpoint, crossing: AclCrossing, acl: NetworkAcl
    ) -> MissingRule:
        """Return the entry of a network ACL that lets the flow, or its answers, through."""
        reference = next(iter(self._references(acl.id)))
        cidr = self._cidr(crossing.peer)
        number = self._number(acl, crossing, cidr)
        crowded = "" if number is not None else "; no number before its first entry is free: give that a higher one"
        way = "into" if crossing.direction is Direction.INGRESS else "out of"
        back = "" if crossing.ports == flow.ports else " for the answers"
        return MissingRule(
            flow=flow,
            listener=str(self._group(listener, opener)),
            opener=str(self._group(opener, listener)),
            ports=crossing.ports,
            direction=crossing.direction,
            reason=f"network ACL {acl.name} denies TCP {port_sets.text(crossing.shut)}{back} {way} the subnet "
            f"of {crossing.subnet.name} {_from(crossing.direction)} {crossing.peer.name}{crowded}",
            template=reference.template,
            network_acl=acl.name,
            network_acl_value=reference.value,
            cidr=cidr,
            number=number,
        )

    def _number(self, acl: NetworkAcl, crossing: AclCrossing, cidr: str) -> int | None:
        """Return a free number before every entry of the ACL, another one for each new entry."""
        given = self._numbers.setdefault((acl.id, crossing.direction), {})
        wanted = (crossing.ports, cidr)
        if wanted not in given:
            taken = {entry.number for entry in acl.entries if entry.direction is crossing.direction}
            first = min((*taken, *filter(None, given.values())), default=_FIRST_NUMBER + 1)
            given[wanted] = first - 1 if first > 1 else None
        return given[wanted]

    def _group(self, endpoint: Endpoint, peer: Endpoint) -> Id:
        """Return the group to name: one that most machines have and the other end has not, if there is one."""
        return max(
            endpoint.groups,
            key=lambda group: (
                group in self._network.groups,
                group not in peer.groups or set(endpoint.groups) <= set(peer.groups),
                self._carriers[group],
                -endpoint.groups.index(group),
            ),
        )

    def _written(self, own: Id, other: Id) -> tuple[Reference, Reference]:
        """Return how one template writes both groups: the one that makes the first, if it can."""
        others = {reference.stack: reference for reference in self._references(other)}
        for reference in self._references(own):
            fitting = others.get(reference.stack) or others.get("")
            if fitting is not None:
                return reference, fitting
            if not reference.stack and others:
                return reference, next(iter(others.values()))
        # no template knows both
        return next(iter(self._references(own))), _as_parameter(other)

    def _references(self, item: Id) -> tuple[Reference, ...]:
        known = self._network.references.get(item)
        if known:
            return known
        value: object = str(item)
        if isinstance(item, Token):
            if item.key[0] != "import" or isinstance(item.key[1], Token):
                return (_as_parameter(item),)
            value = {"Fn::ImportValue": str(item.key[1])}
        return (Reference(stack="", template="", value=json.dumps(value)),)

    def _cidr(self, endpoint: Endpoint) -> str:
        for possible in endpoint.within:
            for item in possible:
                if isinstance(item, IPv4Network):
                    return json.dumps(str(item))
                if isinstance(item, Token) and item in self._network.references:
                    return self._network.references[item][0].value
        return ""


def _as_parameter(item: Id) -> Reference:
    """Return how to write an id that has to come in as a parameter."""
    name = "".join(character for character in str(item) if character.isascii() and character.isalnum())
    return Reference(stack="", template="", value=json.dumps({"Ref": f"{name}Id"}))


def _from(direction: Direction) -> str:
    return "from" if direction is Direction.INGRESS else "to"
