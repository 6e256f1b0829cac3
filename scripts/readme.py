"""Write the generated tables of README.md anew, or tell with --check that they are stale."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from scripts import cost_table, port_table, rehearsal_limits
from scripts.default_template import default_template
from slurm_cluster.model.flows import SlurmPorts

README = Path(__file__).parents[1] / "README.md"
_SECTION = re.compile(r"(<!-- generated: (?P<name>\S+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def sections() -> dict[str, str]:
    """Return the Markdown text of each generated section, by the name in its marker."""
    return {
        "cost": cost_table.table(default_template(), cost_table.Prices.load()),
        "flows": port_table.flow_table(SlurmPorts()),
        "rules": port_table.rule_table(SlurmPorts()),
        "limits": rehearsal_limits.limits(),
    }


def render(text: str, made: Mapping[str, str]) -> str:
    """Return ``text`` with each generated section replaced by what is made now.

    Raises:
        ValueError: a marker names a section that nothing makes, or a section has no marker.
    """
    marked = [match["name"] for match in _SECTION.finditer(text)]
    if sorted(marked) != sorted(made):
        raise ValueError(f"the text has markers for {sorted(marked)}, and the sections made are {sorted(made)}")
    return _SECTION.sub(lambda match: f"{match[1]}{made[match['name']]}\n{match[3]}", text)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when README.md is stale")
    arguments = parser.parse_args()
    old = README.read_text(encoding="utf-8")
    new = render(old, sections())
    if arguments.check:
        if old != new:
            print("README.md is stale: run `make docs`", file=sys.stderr)
        return int(old != new)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
