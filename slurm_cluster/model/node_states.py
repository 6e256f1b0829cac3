"""What base states and flags of a node mean, scontrol(1) show node; slurmctld joins them by ``+``."""

from __future__ import annotations

NOT_SERVING = frozenset(
    {"DOWN", "UNKNOWN", "FUTURE", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "INVALID_REG"}
)
"""slurmctld does not reach it, or does not take it: no job can run there."""

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
"""Jobs have it, or are leaving it."""

KEPT_BACK = frozenset({"DRAIN", "FAIL", "MAINTENANCE", "RESERVED"})
"""Somebody keeps it from running jobs."""

ASLEEP = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "FUTURE"})
"""Power saving has it switched off, or it does not exist yet."""

NEVER_SEEN = frozenset({"UNKNOWN", "FUTURE", "DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_UP"})
"""It may never have registered."""
