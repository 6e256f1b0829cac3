"""Proofs of every kind, made by hand."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_cluster.model.flows import Flow, PortRange, Role, SlurmPorts, cluster_flows
from slurm_cluster.reachability import (
    Direction,
    FlowProof,
    FoundRule,
    MissingRule,
    Proof,
    Roles,
    RuleUse,
    Status,
)

TEMPLATE = "cluster.yaml"
GROUPS = {Role.HEAD: "HeadGroup", Role.WORKER: "ComputeGroup"}
FLOWS = cluster_flows(SlurmPorts())


def rule_for(flow: Flow) -> FoundRule:
    """The rule that opens a flow, inline in its listener's group."""
    group, peer = GROUPS[flow.listener], GROUPS[flow.opener]
    return FoundRule(
        id=f"{group}/SecurityGroupIngress/0",
        template=TEMPLATE,
        group=group,
        direction=Direction.INGRESS,
        protocol="tcp",
        ports=flow.ports,
        peer=peer,
        text=f"{group} lets TCP {flow.ports} in from {peer}",
    )


def missing_for(flow: Flow) -> MissingRule:
    """The rule that would open a flow."""
    group, peer = GROUPS[flow.listener], GROUPS[flow.opener]
    return MissingRule(
        flow=flow,
        listener=group,
        opener=peer,
        ports=flow.ports,
        direction=Direction.INGRESS,
        reason=f"no rule of {group} lets TCP {flow.ports} in from {peer}",
        template=TEMPLATE,
        listener_value=f'{{"Fn::GetAtt": ["{group}", "GroupId"]}}',
        opener_value=f'{{"Fn::GetAtt": ["{peer}", "GroupId"]}}',
    )


SSH = RuleUse(
    rule=FoundRule(
        id="SshFromAnywhere",
        template=TEMPLATE,
        group="HeadGroup",
        direction=Direction.INGRESS,
        protocol="tcp",
        ports=PortRange(22, 22),
        peer="0.0.0.0/0",
        text="HeadGroup lets TCP 22 in from 0.0.0.0/0",
    ),
    flows=(),
    wider="no flow needs it",
)


def proof(
    *,
    closed: Iterable[str] = (),
    unknown: Iterable[str] = (),
    wider: Iterable[RuleUse] = (),
    flows: tuple[Flow, ...] = FLOWS,
    guessed: tuple[str, ...] = (),
) -> Proof:
    """A proof in which the named flows are closed or unknown, and the others are open."""
    closed, unknown = set(closed), set(unknown)
    proofs = []
    for flow in flows:
        if flow.id in closed:
            proofs.append(FlowProof(flow=flow, status=Status.CLOSED, missing=(missing_for(flow),)))
        elif flow.id in unknown:
            needs = (f"the rules of the imported group {GROUPS[flow.listener]}: pass its template as well",)
            proofs.append(FlowProof(flow=flow, status=Status.UNKNOWN, needs=needs, missing=(missing_for(flow),)))
        else:
            proofs.append(FlowProof(flow=flow, status=Status.OPEN, by=(rule_for(flow),)))
    uses = [RuleUse(rule=item.by[0], flows=(item.flow,)) for item in proofs if item.by]
    return Proof(
        roles=Roles(
            head=("HeadGroup",),
            workers=("ComputeGroup",),
            guessed=guessed,
            head_members=("Head",),
            worker_members=("Worker1", "Worker2"),
        ),
        flows=tuple(proofs),
        rules=(*uses, *wider),
    )
