"""The fewest rules that open what is closed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from slurm_cluster.model.flows import ALL_TCP, Flow, PortRange
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
            way, towards = ("in", "from") if rule.direction is Direction.INGRESS else ("out", "to")
            where = f" {towards} {self._addresses}" if self._addresses else ""
            return f"network ACL {rule.network_acl}: let TCP {rule.ports} {way}{where}"
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

    @property
    def _addresses(self) -> str:
        """The addresses of a network ACL's entry; empty where only the deployment knows them."""
        value = json.loads(self.rule.cidr) if self.rule.cidr else None
        return value if isinstance(value, str) else ""

    def _acl_entry(self) -> str:
        rule = self.rule
        if not (rule.network_acl.startswith("acl-") and self._addresses and rule.number is not None):
            return ""
        return (
            f"aws ec2 create-network-acl-entry --network-acl-id {rule.network_acl} --{rule.direction} "
            f"--rule-number {rule.number} --protocol tcp --port-range From={rule.ports.first},To={rule.ports.last} "
            f"--cidr-block {self._addresses} --rule-action allow"
        )


def fixes(proofs: Iterable[FlowProof]) -> tuple[Fix, ...]:
    """Return the rules that open the given flows, each once, with the flows that need it.

    Between the same groups, a rule for all of TCP stands for the narrower ones. No other range stands for one inside
    it, as in ``slurm_cluster.model.flows.rules``: narrowing the srun ports later takes no daemon's port away. In a
    network ACL, which has few entries, every range stands for those inside it.
    """
    missing = [rule for proof in proofs for rule in proof.missing]
    served: dict[tuple[object, ...], list[MissingRule]] = {}
    chosen: dict[tuple[object, ...], MissingRule] = {}
    for rule in missing:
        wide = max((other for other in missing if _stands_for(other, rule)), key=lambda other: _size(other.ports))
        key = (*_place(wide), wide.ports)
        chosen.setdefault(key, wide)
        served.setdefault(key, []).append(rule)
    return tuple(
        Fix(rule=rule, flows=tuple(dict.fromkeys(item.flow for item in served[key]))) for key, rule in chosen.items()
    )


def _stands_for(wide: MissingRule, rule: MissingRule) -> bool:
    if _place(wide) != _place(rule):
        return False
    return wide.ports in (rule.ports, ALL_TCP) or (bool(wide.network_acl) and rule.ports in wide.ports)


def _size(ports: PortRange) -> int:
    return ports.last - ports.first


def _place(rule: MissingRule) -> tuple[object, ...]:
    ends = (rule.network_acl, rule.cidr) if rule.network_acl else (rule.listener, rule.opener)
    return rule.template, rule.direction, *ends
