"""README's list of what a rehearsal leaves unproven, the same that every rehearsal prints."""

from __future__ import annotations

from slurm_cluster.rehearsal.report import NOT_REHEARSED


def limits() -> str:
    """Return the list in Markdown."""
    return "\n".join(f"- {item}" for item in NOT_REHEARSED)
