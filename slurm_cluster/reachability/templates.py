"""The templates that a proof is made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_cluster.reachability.documents import check, read
from slurm_cluster.reachability.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Templates:
    """CloudFormation templates that belong together, by name.

    Args:
        documents: each template's content by its name, which for a file is its path as given.
        parameters: values of the parameters of templates that no other one nests, and of pseudo parameters such as
            AWS::Region.
    """

    documents: Mapping[str, Mapping[str, Any]]
    parameters: Mapping[str, str]


def load(
    sources: str | Path | Iterable[str | Path] | Mapping[str, Mapping[str, Any]],
    parameters: Mapping[str, str] | None = None,
) -> Templates:
    """Read templates from files (JSON or YAML), or take them by name as they are.

    Nested stacks are joined to the template of the same file name; exports of one template are what another imports.

    Args:
        sources: path or paths, or contents by name.
        parameters: values of template parameters; a parameter that is not given has its default, or is unknown.

    Raises:
        InputError: a file is missing or no template, none is given, or no template has such a parameter.
    """
    if isinstance(sources, Mapping):
        documents: dict[str, Mapping[str, Any]] = {name: check(item, name) for name, item in sources.items()}
    else:
        paths = [sources] if isinstance(sources, (str, Path)) else sources
        documents = {str(path): read(Path(path)) for path in paths}
    if not documents:
        raise InputError("no template is given: give one or more CloudFormation templates")
    given = dict(parameters or {})
    declared = sorted({name for document in documents.values() for name in document.get("Parameters") or {}})
    for name in given:
        if name not in declared and not name.startswith("AWS::"):
            raise InputError(
                f"no template has a parameter {name!r}; they have {', '.join(declared) if declared else 'none'}"
            )
    return Templates(documents=documents, parameters=given)
