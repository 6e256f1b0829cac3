"""What a reachability proof says: for each flow whether it is open, and for each rule what needs it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from slurm_cluster.model.flows import Flow, PortRange
from slurm_cluster.reachability.code import python_code

_NAME_LIMIT = 80
"""Longest part of a logical id, of which CloudFormation allows 255 characters."""


class Status(StrEnum):
    """What is known of a flow."""

    OPEN = "open"
    """Every machine that opens it reaches every machine that listens."""

    CLOSED = "closed"
    """It is certain that one of them does not."""

    UNKNOWN = "unknown"
    """It depends on something that the templates do not say."""


class Direction(StrEnum):
    """Which way a rule looks, from the machine that has it."""

    INGRESS = "ingress"
    EGRESS = "egress"


@dataclass(frozen=True, kw_only=True)
class FoundRule:
    """One rule of a security group, as found.

    Args:
        id: its address in the template: a logical id, or for an inline rule ``LogicalId/SecurityGroupIngress/0``.
        template: name of the template (or stack) that holds it.
        group: the group that has the rule, as written.
        direction: whether it lets in or out.
        protocol: ``tcp``, ``udp``, ``icmp``, ``-1`` for all, or as written.
        ports: its ports; None for all of them, and for a protocol without ports.
        peer: who is let in, or where to: a group, address range or prefix list, as written.
        text: all of that in one line.
    """

    id: str
    template: str
    group: str
    direction: Direction
    protocol: str
    ports: PortRange | None
    peer: str
    text: str


@dataclass(frozen=True, kw_only=True)
class MissingRule:
    """One rule that would open a closed flow.

    Args:
        flow: the flow that it opens.
        listener: group of the machine that listens, as written.
        opener: group of the machine that opens the connection, as written.
        ports: TCP ports.
        direction: ``ingress`` is a rule of the listener's group, ``egress`` one of the opener's. With
            ``network_acl``, whether the entry looks into the subnet or out of it.
        reason: why the flow is closed, in a sentence.
        template: template to add it to; empty where it belongs to none that was given.
        listener_value: the listener's group as a CloudFormation value in JSON; by default the text of ``listener``.
        opener_value: the same of the opener.
        network_acl: the network ACL that is in the way, as written; empty where a security group is.
        network_acl_value: it as a CloudFormation value in JSON.
        cidr: with ``network_acl``, the addresses that the entry is about, as a CloudFormation value in JSON.
        number: with ``network_acl``, a free rule number before the entry that denies; None where none is free.
    """

    flow: Flow
    listener: str
    opener: str
    ports: PortRange
    direction: Direction
    reason: str
    template: str = ""
    listener_value: str = ""
    opener_value: str = ""
    network_acl: str = ""
    network_acl_value: str = ""
    cidr: str = ""
    number: int | None = None

    @property
    def logical_id(self) -> str:
        """Name of the resource that would be added; the same rule has the same name whichever flow needs it."""
        way = f"{self.direction}-from-{_short(self.opener)}-to-{_short(self.listener)}"
        if self.network_acl:
            # answers of several flows need the same entry
            way = f"{self.direction}-of-{_short(self.network_acl)}-number-{self.number}"
        name = f"slurm-{self.ports}-{way}"
        return "".join(f"{word[0].upper()}{word[1:]}" for word in re.split(r"[^A-Za-z0-9]+", name) if word)

    def resource(self) -> dict[str, Any]:
        """Return the resource to add, as it stands in a template's Resources."""
        if self.network_acl:
            return self._entry()
        ingress = self.direction is Direction.INGRESS
        own, peer = (self.listener, self.opener) if ingress else (self.opener, self.listener)
        own_value, peer_value = self.listener_value, self.opener_value
        if not ingress:
            own_value, peer_value = peer_value, own_value
        return {
            "Type": f"AWS::EC2::SecurityGroup{'Ingress' if ingress else 'Egress'}",
            "Properties": {
                "GroupId": _value(own_value, own),
                "SourceSecurityGroupId" if ingress else "DestinationSecurityGroupId": _value(peer_value, peer),
                "IpProtocol": "tcp",
                "FromPort": self.ports.first,
                "ToPort": self.ports.last,
                "Description": f"Slurm: TCP {self.ports}",
            },
        }

    def _entry(self) -> dict[str, Any]:
        return {
            "Type": "AWS::EC2::NetworkAclEntry",
            "Properties": {
                "NetworkAclId": _value(self.network_acl_value, self.network_acl),
                "RuleNumber": self.number or 1,
                "Protocol": 6,
                "RuleAction": "allow",
                "Egress": self.direction is Direction.EGRESS,
                "CidrBlock": _value(self.cidr, "0.0.0.0/0"),
                "PortRange": {"From": self.ports.first, "To": self.ports.last},
            },
        }

    def cdk(self) -> str:
        """Return Python code that adds it in a Stack's constructor, given ``cdk`` and ``ec2`` of ``aws_cdk``."""
        return python_code(self.logical_id, self.resource())

    def cloudformation(self) -> str:
        """Return the resource to add to the template's Resources: JSON, which a YAML template takes as well."""
        resource = self.resource()
        # a property a line
        properties = ",\n".join(
            f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in resource["Properties"].items()
        )
        return (
            f'{json.dumps(self.logical_id)}: {{\n  "Type": {json.dumps(resource["Type"])},\n'
            f'  "Properties": {{\n{properties}\n  }}\n}}'
        )


@dataclass(frozen=True, kw_only=True)
class FlowProof:
    """What is known of one flow.

    Args:
        flow: the flow.
        status: open, closed or unknown.
        by: the rules that open it, the narrowest that suffice.
        missing: what to add where it is closed; where it is unknown, what would have to be added if it were.
        needs: what one would have to know where it is unknown, a sentence each.
        assumed: what was taken for granted although no template says so, a sentence each.
    """

    flow: Flow
    status: Status
    by: tuple[FoundRule, ...] = ()
    missing: tuple[MissingRule, ...] = ()
    needs: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RuleUse:
    """What one rule of the cluster's groups is for.

    Args:
        rule: the rule.
        flows: the flows that it opens.
        wider: what of it no flow needs, such as ``0.0.0.0/0: any address; ports 0-1023``; empty where it is as narrow
            as the flows allow. Outbound rules are not judged: nodes also call AWS and fetch packages.
    """

    rule: FoundRule
    flows: tuple[Flow, ...]
    wider: str = ""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Who is what.

    Args:
        head: groups of the head node, as written.
        workers: groups of the workers, as written.
        guessed: what was guessed and why, a sentence each; empty where all was told.
        head_members: machines of the head node (one, as a rule), as written.
        worker_members: machines of the workers: instances, launch templates, auto scaling groups.
    """

    head: tuple[str, ...]
    workers: tuple[str, ...]
    guessed: tuple[str, ...] = ()
    head_members: tuple[str, ...] = ()
    worker_members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The proof of a cluster: who is what, each flow, each rule."""

    roles: Roles
    flows: tuple[FlowProof, ...]
    rules: tuple[RuleUse, ...]

    @property
    def closed(self) -> tuple[FlowProof, ...]:
        """The flows that are closed."""
        return tuple(item for item in self.flows if item.status is Status.CLOSED)

    @property
    def unknown(self) -> tuple[FlowProof, ...]:
        """The flows of which nobody can tell."""
        return tuple(item for item in self.flows if item.status is Status.UNKNOWN)

    @property
    def wider(self) -> tuple[RuleUse, ...]:
        """The rules that let in more than the flows need."""
        return tuple(use for use in self.rules if use.wider)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object; a missing rule comes with the code that adds it."""
        return {
            "roles": {name: list(value) for name, value in asdict(self.roles).items()},
            "flows": [_flow_proof(item) for item in self.flows],
            "rules": [
                {"rule": _rule(use.rule), "flows": [flow.id for flow in use.flows], "wider": use.wider}
                for use in self.rules
            ],
        }


def _flow_proof(item: FlowProof) -> dict[str, Any]:
    return {
        **{name: str(getattr(item.flow, name)) for name in ("id", "opener", "listener", "ports", "purpose", "symptom")},
        "status": str(item.status),
        "by": [_rule(rule) for rule in item.by],
        "missing": [
            {
                "listener": missing.listener,
                "opener": missing.opener,
                "direction": str(missing.direction),
                "ports": str(missing.ports),
                "network_acl": missing.network_acl,
                "template": missing.template,
                "reason": missing.reason,
                "cloudformation": {missing.logical_id: missing.resource()},
                "cdk": missing.cdk(),
            }
            for missing in item.missing
        ],
        "needs": list(item.needs),
        "assumed": list(item.assumed),
    }


def _rule(rule: FoundRule) -> dict[str, Any]:
    return asdict(rule) | {"direction": str(rule.direction), "ports": None if rule.ports is None else str(rule.ports)}


def _short(name: str) -> str:
    return name[-_NAME_LIMIT:]


def _value(expression: str, text: str) -> Any:
    return json.loads(expression) if expression else text
