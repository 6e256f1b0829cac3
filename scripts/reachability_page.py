"""docs/reachability.md and its picture: what the proof says of the template on the page."""

from __future__ import annotations

import re
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from slurm_cluster.reachability import Proof, load, picture, prove, table

PAGE = Path(__file__).parents[1] / "docs" / "reachability.md"
PICTURE = PAGE.with_suffix(".svg")

_NAME = "slurm.yaml"
_COMMAND = f"$ python -m slurm_cluster.reachability {_NAME}\n"
_TEMPLATE = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OUTPUT = re.compile(rf"(?<=^```console\n){re.escape(_COMMAND)}.*?(?=^```$)", re.MULTILINE | re.DOTALL)


def template(text: str) -> str:
    """Return the template that the page shows."""
    (found,) = _TEMPLATE.findall(text)
    return str(found)


def page(text: str) -> str:
    """Return the page with what the command prints."""
    shown = _COMMAND + table.render(_proof(text), title=_NAME)
    return _OUTPUT.sub(lambda _: shown, text, count=1)


def drawing(text: str) -> str:
    """Return the picture of the page's template."""
    return picture.render(_proof(text), title=_NAME)


def _proof(text: str) -> Proof:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path(_NAME).write_text(template(text), encoding="utf-8")
        return prove(load([_NAME]))


def main() -> int:
    """Write page and picture."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(text), encoding="utf-8")
    PICTURE.write_text(drawing(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
