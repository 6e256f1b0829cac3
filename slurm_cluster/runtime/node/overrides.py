"""A site's own settings: ``override.d/<file>`` over the rendered file of that name, e.g. ``override.d/slurm.conf``."""

from __future__ import annotations

import re
from pathlib import Path

from slurm_cluster.model.node_files import OVERRIDE_DIR

_SETTING = re.compile(r"\s*(\w+)\s*=")
_RECORDS = frozenset({"nodename", "partitionname", "nodeset", "downnodes", "frontendname", "name", "include"})


def apply(name: str, text: str, *, directory: Path = OVERRIDE_DIR) -> tuple[str, bool]:
    """Return ``text`` with the override of file ``name`` appended, and whether there is one.

    A setting that the override gives is taken out of the rendered part: Slurm would use the last one as well, and
    complain about each. Records such as NodeName, of which a file has many, are only added.
    """
    path = directory / name
    try:
        override = path.read_text()
    except FileNotFoundError:
        return text, False
    given = {key for line in override.splitlines() if (key := _key(line)) and key not in _RECORDS}
    kept = [line for line in text.splitlines() if _key(line) not in given]
    return "\n".join([*kept, "", f"# From {path}.", override.rstrip("\n")]) + "\n", True


def _key(line: str) -> str:
    found = _SETTING.match(line)
    return found.group(1).lower() if found else ""
