"""How the rehearsal's CloudFormation resource types are described, and the refusal of properties it does not act on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_cluster.rehearsal.cloud.emulator import Emulator

Properties = dict[str, Any]
Provisioned = tuple[str, dict[str, Any]]
"""Physical id, which ``Ref`` gives, and the attributes for ``Fn::GetAtt``."""


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A type that ministack does not have.

    Args:
        properties: paths of the properties acted on; ``A.B`` is member B of A or of A's items, ``A.*`` anything in A.
        create: make the resource; gets its logical id, its properties and the stack's name.
        update: change it in place; gets its physical id, the old and the new properties. None: nothing can.
        delete: remove it; gets its physical id and its properties. One that is gone already is no error.
        replace_on: top-level properties whose change makes a new resource.
        waits: whether create, update and delete wait for a machine, and so must not hold up other requests.
    """

    properties: frozenset[str]
    create: Callable[[Emulator, str, Properties, str], Provisioned]
    delete: Callable[[Emulator, str, Properties], None]
    update: Callable[[Emulator, str, Properties, Properties], Provisioned] | None = None
    replace_on: tuple[str, ...] = ()
    waits: bool = False


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What AWS's ``Ref`` gives where ministack's physical id is something else.

    Args:
        outward: AWS's physical id, of ministack's physical id and the attributes.
        inward: ministack's physical id, of AWS's.
    """

    outward: Callable[[Emulator, str, Mapping[str, Any]], str]
    inward: Callable[[Emulator, str], str]


@dataclass(frozen=True, kw_only=True)
class ExistingType:
    """A type of ministack's that the synthesized app may use.

    Args:
        properties: as in ResourceType.
        prepare: the properties to give to ministack for those declared now and, in an update, before.
        created: called with the physical id and the properties after ministack made one.
        applied: the same, after each create and update.
        deleting: called with the physical id before ministack removes one; refuses by an error.
        reference: how its physical id differs from AWS's.
    """

    properties: frozenset[str]
    prepare: Callable[[Properties, Properties | None], Properties] | None = None
    created: Callable[[Emulator, str, Properties], None] | None = None
    applied: Callable[[Emulator, str, Properties], None] | None = None
    deleting: Callable[[Emulator, str], None] | None = None
    reference: Reference | None = None


def property_paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of each leaf below ``value``, without list positions."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from property_paths(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for item in value:
            yield from property_paths(item, prefix)
    elif prefix:
        yield prefix


def unsupported_properties(properties: Mapping[str, Any], supported: frozenset[str]) -> list[str]:
    """Return the paths in ``properties`` that are not among ``supported``, sorted."""

    def is_supported(path: str) -> bool:
        parts = path.split(".")
        return path in supported or any(
            ".".join((*parts[:length], "*")) in supported for length in range(len(parts) + 1)
        )

    return sorted({path for path in property_paths(dict(properties)) if not is_supported(path)})


def refuse_unsupported(resource_type: str, properties: Mapping[str, Any], supported: frozenset[str]) -> None:
    """Refuse a resource with properties that would be ignored.

    Raises:
        ValueError: it has one; the message names each.
    """
    unsupported = unsupported_properties(properties, supported)
    if unsupported:
        raise ValueError(
            f"{resource_type}: {', '.join(unsupported)} is not rehearsed; supported are {', '.join(sorted(supported))}"
        )
