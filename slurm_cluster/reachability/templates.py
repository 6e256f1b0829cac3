"""The templates that a proof is made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Templates:
    """CloudFormation templates that belong together, by name.

    Args:
        documents: each template's content by its name, which for a file is its path as given.
        parameters: values of template parameters.
    """

    documents: Mapping[str, Mapping[str, Any]]
    parameters: Mapping[str, str]


def load(
    sources: Iterable[str | Path] | Mapping[str, Mapping[str, Any]], parameters: Mapping[str, str] | None = None
) -> Templates:
    """Read templates from files (JSON or YAML), or take them by name as they are.

    Raises:
        InputError: a file is missing or no template.
    """
    raise NotImplementedError
