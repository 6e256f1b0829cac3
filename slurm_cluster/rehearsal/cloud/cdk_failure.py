"""Why the CDK CLI failed, out of what it printed: the resources that failed by themselves, before everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TAIL = 60
_EVENT = re.compile(
    r"^\s*(?P<stack>\S+) \|(?: +\d+/\d+ \|)? [^|]+ \| (?P<status>[A-Z_]+) +\| (?P<type>\S+) +\| (?P<rest>.*)$"
)
_STACK = "AWS::CloudFormation::Stack"
_CANCELLED = re.compile(r"\) Resource (creation|update) cancelled$")
"""The reason of resources that another one's failure has stopped."""


def failure_lines(printed: Sequence[str]) -> Iterator[str]:
    """Yield what to know of a failure: resources with their reasons and the stack's last state, else the last lines.

    Args:
        printed: every line of the CDK CLI, with ``--progress events``.
    """
    events = [found for line in printed if (found := _EVENT.match(line))]
    # each is printed once more at the end
    failed = dict.fromkeys(_told(event) for event in events if _failed_by_itself(event))
    if not failed:
        yield from printed[-_TAIL:]
        return
    yield from failed
    last = {event["stack"]: event["status"] for event in events if event["type"] == _STACK}
    yield from (f"{stack}: {status}" for stack, status in last.items())


def _failed_by_itself(event: re.Match[str]) -> bool:
    return event["status"].endswith("_FAILED") and event["type"] != _STACK and _CANCELLED.search(event["rest"]) is None


def _told(event: re.Match[str]) -> str:
    return f"{event['stack']}: {event['status']} {event['type']} {event['rest']}"
