"""What CloudFormation would do to each resource of a stack that is updated from one template to another.

Which property replaces its resource is read from the resource schemas of AWS that cfn-lint brings along.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

Template = Mapping[str, Any]

_REGION = "us-east-1"


class Impact(IntEnum):
    """What happens to a resource, from the least to the worst."""

    UPDATE = 1
    INTERRUPTION = 2
    """It is stopped and started."""
    REPLACEMENT = 3
    DELETION = 4
    UNSUPPORTED = 5
    """The update fails."""


@dataclass(frozen=True, order=True)
class Change:
    """One property that changes, or a whole resource."""

    logical_id: str
    resource_type: str
    what: str
    impact: Impact


_STOPPED_BY = {
    "AWS::EC2::Instance": {
        *("AdditionalInfo", "Affinity", "EbsOptimized", "HostId", "InstanceType", "KernelId", "PrivateDnsNameOptions"),
        *("RamdiskId", "Tenancy", "UserData"),
    }
}
"""Of a schema's conditional properties those that stop an instance with an EBS root volume, by EC2's user guide."""

_UNSUPPORTED = {
    "AWS::EC2::Volume": {"AvailabilityZone", "Encrypted", "KmsKeyId", "OutpostArn", "SnapshotId"},
    "AWS::CloudFormation::CustomResource": {"ServiceToken"},
}
"""Properties of which the CloudFormation reference says "Updates are not supported", which schemas do not say."""

_UNANSWERED = {"ServiceToken", "ServiceTimeout"}
"""Properties of a custom resource that its function does not see as a change of what it is asked."""


def changes(old: Template, new: Template) -> list[Change]:
    """Return every change of the update, and what follows where a resource refers to one that is replaced."""
    before, after = old["Resources"], new["Resources"]
    found = {
        Change(name, item["Type"], "removed", Impact.DELETION) for name, item in before.items() if name not in after
    }
    moved: set[str] = set()
    while True:
        for name, item in after.items():
            if name in before:
                found.update(_changes_of(name, before[name], item, moved))
        now_moved = {change.logical_id for change in found if _moves(change)}
        if now_moved == moved:
            return sorted(found)
        moved = now_moved


def _moves(change: Change) -> bool:
    """Return whether references to the resource may give another value than before."""
    if _is_custom(change.resource_type):
        return change.what not in _UNANSWERED
    return change.impact >= Impact.REPLACEMENT


def _is_custom(resource_type: str) -> bool:
    return resource_type.startswith("Custom::") or resource_type == "AWS::CloudFormation::CustomResource"


def _changes_of(name: str, old: Mapping[str, Any], new: Mapping[str, Any], moved: set[str]) -> Iterator[Change]:
    kind = new["Type"]
    if old["Type"] != kind:
        yield Change(name, old["Type"], "Type", Impact.REPLACEMENT)
        return
    before, after = old.get("Properties", {}), new.get("Properties", {})
    for key in sorted({*before, *after}):
        impact = max(
            (impact for path, impact in _rules(kind, key) if _differ(_at(before, path), _at(after, path), moved)),
            default=None,
        )
        if impact is not None:
            yield Change(name, kind, key, impact)


def _rules(kind: str, key: str) -> Iterator[tuple[tuple[str, ...], Impact]]:
    """Yield what a change at each path at or below a property does."""
    yield (key,), Impact.UPDATE
    generic = "AWS::CloudFormation::CustomResource" if _is_custom(kind) else kind
    if key in _UNSUPPORTED.get(generic, ()):
        yield (key,), Impact.UNSUPPORTED
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema(_REGION, kind).schema
    for path in _paths(schema.get("createOnlyProperties", ())):
        if path[0] == key:
            yield path, Impact.REPLACEMENT
    for path in _paths(schema.get("conditionalCreateOnlyProperties", ())):
        if path[0] == key:
            yield path, Impact.INTERRUPTION if key in _STOPPED_BY.get(kind, ()) else Impact.REPLACEMENT


def _paths(pointers: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of JSON pointers below ``/properties``, each only down to the first list."""
    for pointer in pointers:
        parts = pointer.split("/")[2:]
        yield tuple(parts[: parts.index("*")] if "*" in parts else parts)


def _at(properties: Any, path: tuple[str, ...]) -> Any:
    value = properties
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _differ(old: Any, new: Any, moved: set[str]) -> bool:
    return json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True) or bool(_references(new) & moved)


def _references(value: Any) -> set[str]:
    if isinstance(value, Mapping):
        if set(value) == {"Ref"}:
            return {value["Ref"]}
        if set(value) == {"Fn::GetAtt"}:
            return {value["Fn::GetAtt"][0]}
        return {name for item in value.values() for name in _references(item)}
    if isinstance(value, list):
        return {name for item in value for name in _references(item)}
    return set()
