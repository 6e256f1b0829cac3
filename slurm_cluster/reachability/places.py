"""Where what a proof speaks of is written: from names such as ``Nested/HeadGroup/SecurityGroupIngress/0``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurm_cluster.reachability.proof import Direction, FoundRule, MissingRule

_INLINE = re.compile(r"(?P<resource>.+)/(?P<property>SecurityGroup(?:Ingress|Egress))/(?P<number>\d+)")


@dataclass(frozen=True)
class Place:
    """A resource of a template.

    Args:
        resource: its name, with the way to it through nested stacks.
        inline: the property that holds an inline rule; empty for the resource itself.
        number: number of the inline rule, from 0.
    """

    resource: str
    inline: str = ""
    number: int = 0

    @property
    def logical_id(self) -> str:
        """Its logical id in its own template; of an attribute such as ``Vpc.DefaultSecurityGroup`` the resource's."""
        return self.resource.rpartition("/")[2].split(".")[0]


def place_of_rule(rule: FoundRule) -> Place:
    """Return where a rule is written."""
    match = _INLINE.fullmatch(rule.id)
    return Place(match["resource"], match["property"], int(match["number"])) if match else Place(rule.id)


def place_for_rule(rule: MissingRule) -> Place:
    """Return the group or network ACL that lacks a rule."""
    return Place(rule.network_acl or (rule.listener if rule.direction is Direction.INGRESS else rule.opener))


def rule_name(rule: FoundRule) -> str:
    """Return where a rule is, for people: the resource, and which of its inline rules."""
    place = place_of_rule(rule)
    return f"{place.resource}, {rule.direction} rule {place.number + 1}" if place.inline else place.resource
