"""What synthesis costs with this package, against the same resources declared by hand.

Both apps are run in turn, each in a process of its own, as ``cdk synth`` would run them. Compared is the least CPU time
(user and system, jsii's Node.js process included) of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
APPS = {"app.py": ["app.py"], "by hand": ["-m", "benchmarks.handwritten"]}
LIMIT = 1.15
RUNS = 5


def cpu_seconds(arguments: list[str], output: Path) -> float:
    """Run one app once and return the CPU time of it and of its children."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    environment = {**os.environ, "CDK_CONTEXT_JSON": json.dumps(context), "CDK_OUTDIR": str(output)}
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return usage.ru_utime + usage.ru_stime


def measure(runs: int) -> dict[str, list[float]]:
    """Return the CPU times of alternating runs, without a first one of each, which compiles and fills caches."""
    times: dict[str, list[float]] = {name: [] for name in APPS}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(runs + 1):
            for name, arguments in APPS.items():
                seconds = cpu_seconds(arguments, Path(directory, f"{name}-{number}"))
                if number:
                    times[name].append(seconds)
    return times


def main() -> int:
    """Print the times and their ratio; return 1 where it is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="measured runs of each app (default: %(default)s)")
    times = measure(parser.parse_args().runs)
    for name, seconds in times.items():
        print(f"{name:8} least {min(seconds):.2f} s of {', '.join(f'{item:.2f}' for item in seconds)}")
    ratio = min(times["app.py"]) / min(times["by hand"])
    print(f"ratio {ratio:.3f}, limit {LIMIT}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
