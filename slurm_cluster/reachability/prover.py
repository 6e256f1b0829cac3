"""Flows x network -> proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_cluster.model.flows import Flow, PortRange, SlurmPorts, cluster_flows
from slurm_cluster.reachability import ports as port_sets
from slurm_cluster.reachability.admission import Passage, through_acls, through_groups
from slurm_cluster.reachability.endpoint import Endpoint, endpoints
from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.missing import Remedies
from slurm_cluster.reachability.network import CidrPeer, GroupRule, Network
from slurm_cluster.reachability.ports import Ports
from slurm_cluster.reachability.proof import Direction, FlowProof, FoundRule, MissingRule, Proof, Status
from slurm_cluster.reachability.roles import find_roles
from slurm_cluster.reachability.rule_use import rule_uses
from slurm_cluster.reachability.template_network import network
from slurm_cluster.reachability.templates import Templates
from slurm_cluster.reachability.together import together
from slurm_cluster.reachability.values import unique
from slurm_cluster.reachability.worlds import World, explore

_SLURM_PORTS = SlurmPorts()


def prove(
    templates: Templates,
    *,
    head: Sequence[str] | None = None,
    workers: Sequence[str] | None = None,
    ports: SlurmPorts = _SLURM_PORTS,
) -> Proof:
    """Prove which of Slurm's flows the templates let through.

    Where the templates' conditions depend on unknown parameters, every cluster that they may make is proven, and a
    flow is open only if it is open in each.

    Args:
        templates: see ``load``.
        head: logical ids (or ids, such as sg-0123) of the head node's security groups or of its instance; guessed
            from names, tags and rules where not given.
        workers: the same of the workers: groups, instances, launch templates, auto scaling groups.
        ports: Slurm's ports.

    Raises:
        InputError: head or workers are not in the templates, or cannot be guessed; a template is wrong.
    """
    proofs: list[tuple[World, Proof]] = []
    errors: list[InputError] = []
    undecided: list[tuple[World, Network]] = []

    def look(world: World) -> Proof | None:
        made = network(templates, world)
        try:
            return prove_network(made, head=head, workers=workers, ports=ports)
        except InputError as error:
            errors.append(error)
            undecided.append((world, made))
            return None

    try:
        for world, proof in explore(look):
            if proof is not None:
                proofs.append((world, proof))
    except RecursionError as error:
        raise InputError(
            f"{', '.join(templates.documents)}: lists and mappings are nested too deeply; CloudFormation takes no such "
            "template, give one that it takes"
        ) from error
    if not proofs:
        raise errors[0]
    return together(proofs, undecided)


def prove_network(
    network: Network,
    *,
    head: Sequence[str] | None = None,
    workers: Sequence[str] | None = None,
    ports: SlurmPorts = _SLURM_PORTS,
) -> Proof:
    """The same for a network that was read elsewhere, such as from a live account."""
    roles, members = find_roles(network, head=head, workers=workers, ports=ports)
    ends = {role: endpoints(network, found) for role, found in members.items()}
    remedies = Remedies(network, [end for found in ends.values() for end in found])
    flows = tuple(
        _prove(network, flow, ends[flow.opener], ends[flow.listener], remedies) for flow in cluster_flows(ports)
    )
    return Proof(roles=roles, flows=flows, rules=rule_uses(network, ends, flows))


def _prove(
    network: Network, flow: Flow, openers: Sequence[Endpoint], listeners: Sequence[Endpoint], remedies: Remedies
) -> FlowProof:
    pairs = [
        _prove_pair(network, flow, opener, listener, remedies) for opener, listener in _pairs(flow, openers, listeners)
    ]
    statuses = {pair.status for pair in pairs}
    status = next((item for item in (Status.CLOSED, Status.UNKNOWN) if item in statuses), Status.OPEN)
    return FlowProof(
        flow=flow,
        status=status,
        by=unique(rule for pair in pairs for rule in pair.by),
        missing=unique(rule for pair in pairs if pair.status is status for rule in pair.missing),
        needs=unique(need for pair in pairs for need in pair.needs) if status is Status.UNKNOWN else (),
        assumed=unique(item for pair in pairs for item in pair.assumed) if status is Status.OPEN else (),
    )


def _pairs(
    flow: Flow, openers: Sequence[Endpoint], listeners: Sequence[Endpoint]
) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Yield who connects to whom: every two machines that are not one and the same.

    A lone worker is paired with another like it: a cluster of one grows without a change of its rules.
    """
    lone = flow.opener is flow.listener and len(openers) == 1
    for opener in openers:
        for listener in listeners:
            one = opener.members == listener.members and not opener.several
            if not one or lone:
                yield opener, listener


def _prove_pair(network: Network, flow: Flow, opener: Endpoint, listener: Endpoint, remedies: Remedies) -> FlowProof:
    by: list[FoundRule] = []
    missing: list[MissingRule] = []
    doubtful: list[MissingRule] = []
    needs: list[str] = []
    assumed: list[str] = []
    for guarded, peer, direction in ((listener, opener, Direction.INGRESS), (opener, listener, Direction.EGRESS)):
        passage = through_groups(network, guarded, peer, direction, flow.ports)
        by += (rule.found for rule in narrowest(passage, flow.ports))
        if passage.shut or passage.unsure:
            remedy = remedies.group_rule(flow, opener, listener, direction, passage)
            (missing if passage.shut else doubtful).append(remedy)
            needs += passage.needs
    for crossing in through_acls(network, opener, listener, flow.ports):
        needs += crossing.needs
        assumed += crossing.assumed
        if crossing.acl is not None and crossing.shut:
            missing.append(remedies.acl_entry(flow, opener, listener, crossing, crossing.acl))
    status = Status.CLOSED if missing else Status.UNKNOWN if needs else Status.OPEN
    return FlowProof(
        flow=flow,
        status=status,
        by=tuple(by),
        missing=tuple(missing or doubtful),
        needs=tuple(needs),
        assumed=tuple(assumed),
    )


def narrowest(passage: Passage, ports: PortRange) -> tuple[GroupRule, ...]:
    """Return the fewest and narrowest rules that let through what passes of the ports.

    A rule about a group comes before one about addresses. Where no rule is needed, as with the default outbound one,
    there is none.
    """
    passing = port_sets.minus([ports], (*passage.shut, *passage.unsure))
    ordered = sorted(passage.by, key=lambda item: (isinstance(item[0].peer, CidrPeer), _width(item[0])))
    for rule, allowed in ordered:
        if not port_sets.minus(passing, allowed):
            return (rule,)
    chosen: list[GroupRule] = []
    while passing:
        best = max(ordered, key=lambda item: _size(passing) - _size(port_sets.minus(passing, item[1])), default=None)
        if best is None or port_sets.minus(passing, best[1]) == passing:
            break
        chosen.append(best[0])
        passing = port_sets.minus(passing, best[1])
    return tuple(chosen)


def _width(rule: GroupRule) -> int:
    return rule.ports.last - rule.ports.first if isinstance(rule.ports, PortRange) else 1 << 16


def _size(ports: Ports) -> int:
    return sum(item.last - item.first + 1 for item in ports)
