"""What the readers of declared resources share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slurm_cluster.rehearsal.cloud.server import Cloud

Reader = Callable[[Cloud, str, Mapping[str, Any]], dict[str, Any]]
"""Cloud, physical id and declared properties in; the properties as the API reports them, by their declared names, out.

The declared properties are for finding the resource where the physical id does not name it.
"""


class NotFound(Exception):
    """The API does not know the resource."""


def only(items: Iterable[Any], what: str) -> Any:
    """Return the only item.

    Raises:
        NotFound: there is none, or more than one.
    """
    found = list(items)
    if len(found) != 1:
        raise NotFound(f"{len(found)} of {what}")
    return found[0]


def renamed(source: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of ``source`` that are there, by their declared names: ``names`` maps those to the API's."""
    return {declared: source[api] for declared, api in names.items() if api in source}


def same(source: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the members of ``source`` that are there and bear the same name in the API."""
    return renamed(source, {name: name for name in names})
