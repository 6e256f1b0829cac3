"""Show in README.md what a rehearsal printed: ``make rehearse | tee log``, then this program with ``log``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.readme import README

LEFT_OUT = "..."
_OUTPUT = re.compile(r"(\$ make rehearse\n).*?(```)", re.DOTALL)
_PROGRESS = re.compile(r"\+ *[\d.]+s (?P<who>.{16}) (?P<text>.+)")
# what a node does between boot and ready, and what the CDK CLI prints line by line, is too much for a first screen
_NEWS = re.compile(r"(boot|ready|smoke test|removed|deploy|destroy|session \w+|the emulated AWS answers)")
_RESULTS = re.compile(r"(srun printed|check \S+: |  \S+ ip-[\d-]+$|timeline: | +[\d.]+s +[\d.]+s  |passed; )")


def excerpt(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that a reader wants to see first, with one mark for each gap."""
    gap = False
    begun = False
    for line in lines:
        progress = _PROGRESS.fullmatch(line)
        wanted = _NEWS.fullmatch(progress["text"]) if progress else _RESULTS.match(line)
        if wanted:
            if gap and begun:
                yield LEFT_OUT
            yield line
            begun = True
        gap = not wanted


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="what `make rehearse` printed")
    lines = parser.parse_args().log.read_text(encoding="utf-8").splitlines()
    shown = "".join(f"{line}\n" for line in excerpt(lines))
    text = README.read_text(encoding="utf-8")
    README.write_text(_OUTPUT.sub(lambda match: f"{match[1]}{shown}{match[2]}", text, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
