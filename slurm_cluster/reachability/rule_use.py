"""What each rule is for, and what of it no flow needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network

from slurm_cluster.model.flows import ALL_TCP, Flow, PortRange, Role
from slurm_cluster.reachability import ports as port_sets
from slurm_cluster.reachability.endpoint import Endpoint, is_peer
from slurm_cluster.reachability.network import CidrPeer, GroupPeer, GroupRule, Network
from slurm_cluster.reachability.proof import Direction, FlowProof, RuleUse

RoleEndpoints = Mapping[Role, Sequence[Endpoint]]


def rule_uses(network: Network, roles: RoleEndpoints, proofs: Sequence[FlowProof]) -> tuple[RuleUse, ...]:
    """Return every rule of the cluster's groups, with the flows that it opens and what of it none of them needs."""
    return tuple(_uses(network, roles, proofs))


def _uses(network: Network, roles: RoleEndpoints, proofs: Sequence[FlowProof]) -> Iterator[RuleUse]:
    for rule in network.rules:
        having = [role for role, ends in roles.items() if any(rule.group in end.groups for end in ends)]
        if not having:
            continue
        flows = tuple(proof.flow for proof in proofs if rule.found in proof.by)
        wider = ""
        if rule.direction is Direction.INGRESS:
            possible = [proof.flow for proof in proofs if proof.flow.listener in having]
            wider = "; ".join(_wider(network, rule, roles, flows, possible))
        yield RuleUse(rule=rule.found, flows=flows, wider=wider)


def _wider(
    network: Network, rule: GroupRule, roles: RoleEndpoints, flows: Sequence[Flow], possible: Sequence[Flow]
) -> Iterator[str]:
    answers = {role: [is_peer(network, rule.peer, end) for end in ends] for role, ends in roles.items()}
    served = [flow for flow in possible if any(answers[flow.opener])]
    if not flows:
        if not any(isinstance(answer, str) for flow in served for answer in answers[flow.opener]):
            shared = any(port_sets.common(flow.ports, _ports(rule)) for flow in served)
            yield "no flow needs it" + (", other rules suffice" if shared and rule.protocol in ("tcp", "-1") else "")
        return
    if isinstance(rule.peer, GroupPeer):
        cluster = {member.name for ends in roles.values() for end in ends for member in end.members}
        others = [item.name for item in network.members if rule.peer.group in item.groups and item.name not in cluster]
        if others:
            yield f"{rule.found.peer} also holds {', '.join(others)}"
    elif not _exact(rule, roles):
        yield f"{rule.found.peer}: any address" + ("" if rule.found.peer.endswith("/0") else " in it")
    if rule.protocol == "-1":
        efa = isinstance(rule.peer, GroupPeer) and any(flow.opener is flow.listener for flow in served)
        yield "protocols other than TCP" + (", which only EFA needs" if efa else "")
    unused = port_sets.minus([_ports(rule)], port_sets.union(flow.ports for flow in served))
    if unused:
        yield f"ports {port_sets.text(unused)}"


def _ports(rule: GroupRule) -> PortRange:
    return rule.ports if isinstance(rule.ports, PortRange) else ALL_TCP


def _exact(rule: GroupRule, roles: RoleEndpoints) -> bool:
    """Return whether a range of addresses is no more than the fixed address of one of the machines."""
    closest = [possible for ends in roles.values() for end in ends for possible in end.within[:1]]
    fixed = {
        item for possible in closest for item in possible if isinstance(item, IPv4Network) and item.prefixlen == 32
    }
    return isinstance(rule.peer, CidrPeer) and rule.peer.cidr in fixed
