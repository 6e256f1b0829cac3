"""Keep the template of this release, from which every later one must be a harmless update.

Run it once a release, when the version in pyproject.toml is the one that is released.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

from scripts.default_template import default_template

_ROOT = Path(__file__).parents[1]
BASELINES = _ROOT / "tests" / "synth" / "baselines"


def main() -> int:
    """Run the command line."""
    version = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"]
    file = BASELINES / f"{version}.json"
    file.write_text(json.dumps(default_template(), indent=1, sort_keys=True) + "\n")
    print(file.relative_to(_ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
