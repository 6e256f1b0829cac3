"""The resolved properties of every provisioned resource, in a file: what ``verify.py`` compares with the API."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Declared:
    """Properties by type and physical id; every change is written at once.

    Args:
        path: a JSON file, replaced as a whole at each change.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._resources: dict[str, dict[str, dict[str, Any]]] = {}

    def put(self, resource_type: str, physical_id: str, properties: Mapping[str, Any]) -> None:
        """Remember what a resource was declared with."""
        with self._lock:
            self._resources.setdefault(resource_type, {})[physical_id] = dict(properties)
            self._write()

    def remove(self, resource_type: str, physical_id: str) -> None:
        """Forget a resource that is deleted."""
        with self._lock:
            self._resources.get(resource_type, {}).pop(physical_id, None)
            self._write()

    def _write(self) -> None:
        draft = self._path.with_suffix(".new")
        draft.write_text(json.dumps(self._resources, sort_keys=True))
        draft.replace(self._path)


def read(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the properties by type and physical id; nothing before the first deployment."""
    if not path.exists():
        return {}
    resources: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text())
    return resources
