"""CloudFormation's create, update and delete of each type: refuse what would be ignored, act, note the declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slurm_cluster.rehearsal.cloud.declared import Declared
from slurm_cluster.rehearsal.cloud.emulator import Emulator
from slurm_cluster.rehearsal.cloud.resource_types import (
    ExistingType,
    Properties,
    Provisioned,
    ResourceType,
    refuse_unsupported,
)

Handlers = dict[str, Any]
"""ministack's: "create" (logical id, properties, stack name), "update" (physical id, old and new properties, stack
name, and the logical id where "update_with_logical_id" is set), "delete" (physical id, properties).
"""


class Provisioning:
    """Makes the handlers of types.

    Args:
        emulator: where the resources are.
        declared: where their properties are noted.
    """

    def __init__(self, emulator: Emulator, declared: Declared) -> None:
        self._emulator = emulator
        self._declared = declared

    def added(self, name: str, kind: ResourceType) -> Handlers:
        """Return the handlers of a type that ministack lacks."""

        def create(logical_id: str, properties: Properties, stack: str) -> Provisioned:
            refuse_unsupported(name, properties, kind.properties)
            physical_id, attributes = kind.create(self._emulator, logical_id, properties, stack)
            self._declared.put(name, physical_id, properties)
            return physical_id, attributes

        def update(physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
            del stack
            refuse_unsupported(name, new, kind.properties)
            if kind.update is None:
                raise ValueError(f"{name} {physical_id} cannot be changed in place")
            provisioned = kind.update(self._emulator, physical_id, old, new)
            self._declared.put(name, physical_id, new)
            return provisioned

        def delete(physical_id: str, properties: Properties) -> None:
            kind.delete(self._emulator, physical_id, properties)
            self._declared.remove(name, physical_id)

        return {"create": create, "update": update, "delete": delete}

    def guarded(self, name: str, kind: ExistingType, handlers: Mapping[str, Any]) -> Handlers:
        """Return the handlers of a type that ministack has, around ministack's own."""
        reference = kind.reference
        prepare: Callable[[Properties, Properties | None], Properties] = kind.prepare or (lambda now, _: now)

        def own(physical_id: str) -> str:
            return reference.inward(self._emulator, physical_id) if reference else physical_id

        def provisioned(result: Provisioned, properties: Properties, before: str | None) -> Provisioned:
            physical_id = reference.outward(self._emulator, *result) if reference else result[0]
            if physical_id != before and kind.created:
                kind.created(self._emulator, physical_id, properties)
            if kind.applied:
                kind.applied(self._emulator, physical_id, properties)
            self._declared.put(name, physical_id, properties)
            return physical_id, result[1]

        def create(logical_id: str, properties: Properties, stack: str) -> Provisioned:
            refuse_unsupported(name, properties, kind.properties)
            return provisioned(handlers["create"](logical_id, prepare(properties, None), stack), properties, None)

        def update(physical_id: str, old: Properties, new: Properties, *rest: Any) -> Provisioned:
            refuse_unsupported(name, new, kind.properties)
            result = handlers["update"](own(physical_id), old, prepare(new, old), *rest)
            return provisioned(result, new, physical_id)

        def delete(physical_id: str, *rest: Any) -> None:
            if kind.deleting:
                kind.deleting(self._emulator, physical_id)
            handlers["delete"](own(physical_id), *rest)
            self._declared.remove(name, physical_id)

        guarded = {**handlers, "create": create, "delete": delete}
        if "update" in handlers:
            guarded["update"] = update
        return guarded
