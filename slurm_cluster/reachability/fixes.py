"""The fewest rules that open what is closed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_cluster.model.flows import ALL_TCP, Flow
from slurm_cluster.reachability.proof import Direction, FlowProof, MissingRule


@dataclass(frozen=True, kw_only=True)
class Fix:
    """One rule to add, and the flows that need it."""

    rule: MissingRule
    flows: tuple[Flow, ...]

    @property
    def title(self) -> str:
        """What it does, in a line."""
        rule = self.rule
        if rule.network_acl:
            way = "in" if rule.direction is Direction.INGRESS else "out"
            return f"network ACL {rule.network_acl}: let TCP {rule.ports} {way}"
        if rule.direction is Direction.EGRESS:
            return f"{rule.opener}: let TCP {rule.ports} out to {rule.listener}"
        return f"{rule.listener}: let TCP {rule.ports} in from {rule.opener}"

    def aws_cli(self) -> str:
        """Return the AWS CLI's command that adds it to a running cluster; empty where a template names the groups."""
        rule = self.rule
        if rule.network_acl:
            return self._acl_entry()
        holder, peer = (
            (rule.listener, rule.opener) if rule.direction is Direction.INGRESS else (rule.opener, rule.listener)
        )
        if not (holder.startswith("sg-") and peer.startswith("sg-")):
            return ""
        permission = (
            f"IpProtocol=tcp,FromPort={rule.ports.first},ToPort={rule.ports.last},UserIdGroupPairs=[{{GroupId={peer}}}]"
        )
        return f"aws ec2 authorize-security-group-{rule.direction} --group-id {holder} --ip-permissions '{permission}'"

    def _acl_entry(self) -> str:
        rule = self.rule
        cidr = json.loads(rule.cidr) if rule.cidr else None
        if not (rule.network_acl.startswith("acl-") and isinstance(cidr, str) and rule.number is not None):
            return ""
        return (
            f"aws ec2 create-network-acl-entry --network-acl-id {rule.network_acl} --{rule.direction} "
            f"--rule-number {rule.number} --protocol tcp --port-range From={rule.ports.first},To={rule.ports.last} "
            f"--cidr-block {cidr} --rule-action allow"
        )


def fixes(proofs: Iterable[FlowProof]) -> tuple[Fix, ...]:
    """Return the rules that open the given flows, each once, with the flows that need it.

    A rule for all of TCP stands for the narrower ones between the same groups. No other range stands for one inside it,
    as in ``slurm_cluster.model.flows.rules``: narrowing the srun ports later takes no daemon's port away.
    """
    missing = [rule for proof in proofs for rule in proof.missing]
    everything = {_place(rule) for rule in missing if rule.ports == ALL_TCP}
    chosen: dict[tuple[object, ...], list[MissingRule]] = {}
    for rule in missing:
        place = _place(rule)
        chosen.setdefault((place, ALL_TCP if place in everything else rule.ports), []).append(rule)
    return tuple(
        Fix(
            rule=next(rule for rule in group if rule.ports == ports),
            flows=tuple(dict.fromkeys(rule.flow for rule in group)),
        )
        for (_, ports), group in chosen.items()
    )


def _place(rule: MissingRule) -> tuple[object, ...]:
    return rule.template, rule.direction, rule.listener, rule.opener, rule.network_acl, rule.cidr
