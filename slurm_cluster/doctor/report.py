"""What the doctor says, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slurm_cluster.doctor.probes import Outcome, Row
from slurm_cluster.runtime.fault import Verdict

HEALTHY, FAULTY, UNSURE = 0, 1, 2
"""Exit statuses: everything was looked at and is well; a fault was found; neither, or it was not asked rightly."""

_WIDTH = 110
_MARKS = {Outcome.OK: "ok", Outcome.FAULT: "FAULT", Outcome.UNKNOWN: "?", Outcome.NOT_APPLICABLE: "-"}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole of it.

    Args:
        faults: the most fundamental first.
        rows: what each probe says.
        notes: what is worth knowing and is no fault.
        seconds: how long it took.
    """

    faults: Sequence[Verdict]
    rows: Sequence[Row]
    notes: Sequence[str]
    seconds: float

    @property
    def status(self) -> int:
        """Exit status."""
        if self.faults:
            return FAULTY
        return UNSURE if any(row.outcome is Outcome.UNKNOWN for row in self.rows) else HEALTHY

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "status": {HEALTHY: "healthy", FAULTY: "fault", UNSURE: "could not tell"}[self.status],
            "seconds": self.seconds,
            "faults": [{**fault.to_dict(), "reason": fault.reason} for fault in self.faults],
            "probes": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Return it for people."""
        width = max(len(row.probe) for row in self.rows)
        lines = []
        for row in self.rows:
            took = "" if row.seconds is None else f" ({row.seconds:.1f} s)"
            lines += _wrapped(f"{_MARKS[row.outcome]:<6}{row.probe:<{width}}  ", f"{row.evidence}{took}")
        for note in self.notes:
            lines += _wrapped("note: ", note)
        for number, fault in enumerate(self.faults, 1):
            lines += ["", f"{number}. {fault.code}" + (f" ({fault.node})" if fault.node else "")]
            lines += [*_wrapped("   ", fault.sentence), *_wrapped("   change: ", fault.change)]
        last = {
            HEALTHY: "No fault was found.",
            FAULTY: f"{len(self.faults)} fault{'s' if len(self.faults) > 1 else ''} found; mend the first one first.",
            UNSURE: "No fault was found, but not everything could be looked at.",
        }[self.status]
        return "\n".join([*lines, "", f"{last} ({self.seconds:.0f} s)"])


def _wrapped(start: str, text: str) -> list[str]:
    indent = " " * len(start)
    # names of nodes have hyphens, and are searched for
    wrapper = textwrap.TextWrapper(_WIDTH, start, indent, break_on_hyphens=False, break_long_words=False)
    return wrapper.wrap(text) or [start.rstrip()]
