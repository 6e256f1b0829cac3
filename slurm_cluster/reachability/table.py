"""A proof as plain text: what is open, by which rule, and which rule to add, to be pasted into a ticket."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from slurm_cluster.model.flows import Flow, Role
from slurm_cluster.reachability.fixes import Fix, fixes
from slurm_cluster.reachability.places import rule_name
from slurm_cluster.reachability.proof import Direction, FlowProof, Proof, RuleUse, Status

_WIDTH = 110
_MEMBERS = 6
"""Machines of a role that are shown; JSON lists all."""

_NAMES = {Role.HEAD: "head", Role.WORKER: "worker"}
_COLOURS = {"CLOSED": "31", "UNKNOWN": "33", "open": "32"}


def render(proof: Proof, *, title: str, colour: bool = False) -> str:
    """Return the proof as text of at most 110 columns, code to be copied excepted.

    Args:
        proof: what to show.
        title: what was looked at.
        colour: whether to colour the states for a terminal.
    """
    parts = [
        [f"Slurm's connections in {title}", summary(proof)],
        list(_roles(proof)),
        list(_flows(proof)),
        # what to do comes before why
        list(_to_add(fixes(proof.closed))),
        *(list(_closed(item)) for item in proof.closed),
        list(_unknown(proof)),
        list(_wider(proof.wider)),
        list(_assumed(proof)),
    ]
    text = "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"
    return _coloured(text) if colour else text


def summary(proof: Proof) -> str:
    """Return the result in one sentence."""
    if not proof.closed and not proof.unknown:
        text = f"Proven: all {len(proof.flows)} connections that Slurm opens are let through"
    else:
        number = {
            "closed": len(proof.closed),
            "unknown": len(proof.unknown),
            "open": len(proof.flows) - len(proof.closed) - len(proof.unknown),
        }
        text = "Not proven: " + ", ".join(f"{count} {state}" for state, count in number.items() if count)
    if proof.wider:
        count = len(proof.wider)
        text += f"; {count} {'rule lets' if count == 1 else 'rules let'} in more than Slurm needs"
    return f"{text}."


def way(flow: Flow) -> str:
    """Return who opens a flow to whom."""
    listener = f"another {_NAMES[flow.listener]}" if flow.opener is flow.listener else _NAMES[flow.listener]
    return f"{_NAMES[flow.opener]} -> {listener}"


def opened_by(item: FlowProof) -> str:
    """Return the rules that let a flow in; those that let it out are most often one that lets everything out."""
    inwards = [rule for rule in item.by if rule.direction is Direction.INGRESS]
    return ", ".join(dict.fromkeys(rule_name(rule) for rule in inwards or item.by))


def _roles(proof: Proof) -> Iterator[str]:
    for name, groups, members in (
        ("head", proof.roles.head, proof.roles.head_members),
        ("workers", proof.roles.workers, proof.roles.worker_members),
    ):
        text = ", ".join(groups) + (f"   ({_few(members)})" if members else "")
        yield from _wrapped(text, first=f"  {name:9}", rest=" " * 11)
    for sentence in proof.roles.guessed:
        yield from _wrapped(sentence, first="  guessed: ", rest=" " * 11)


def _few(names: Sequence[str]) -> str:
    shown = names if len(names) <= _MEMBERS else names[: _MEMBERS - 1]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _flows(proof: Proof) -> Iterator[str]:
    rows = [("FLOW", "WHO OPENS IT", "TCP PORTS", "STATE", "BY")]
    for item in proof.flows:
        state = item.status.value if item.status is Status.OPEN else item.status.value.upper()
        by = opened_by(item) if item.status is Status.OPEN else ""
        rows.append((item.flow.id, way(item.flow), str(item.flow.ports), state, by))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    indent = sum(widths) + 2 + 2 * 4
    for row in rows:
        start = "  " + "  ".join(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)) + "  "
        yield from _wrapped(row[4], first=start, rest=" " * indent) if row[4] else [start.rstrip()]


def _closed(item: FlowProof) -> Iterator[str]:
    flow = item.flow
    yield f"CLOSED  {flow.id}: {way(flow)}, TCP {flow.ports}"
    yield from _wrapped(flow.purpose, first="  carries    ", rest=" " * 13)
    yield from _wrapped(flow.symptom, first="  you see    ", rest=" " * 13)
    for reason in dict.fromkeys(rule.reason for rule in item.missing):
        yield from _wrapped(reason, first="  because    ", rest=" " * 13)


def _to_add(found: Sequence[Fix]) -> Iterator[str]:
    if not found:
        return
    yield "ADD THIS RULE" if len(found) == 1 else f"ADD THESE {len(found)} RULES"
    for number, fix in enumerate(found, 1):
        yield ""
        opens = ", ".join(flow.id for flow in fix.flows)
        yield from _wrapped(f"{fix.title}   (opens {opens})", first=f"  {number}. ", rest=" " * 5)
        for language, code in (
            ("AWS CLI", fix.aws_cli()),
            ("CloudFormation", fix.rule.cloudformation()),
            ("CDK (Python)", fix.rule.cdk()),
        ):
            if code:
                yield f"     {language}:"
                yield textwrap.indent(code.rstrip(), " " * 7)


def _unknown(proof: Proof) -> Iterator[str]:
    if not proof.unknown:
        return
    yield "UNKNOWN  To decide, one must know"
    for need in dict.fromkeys(need for item in proof.unknown for need in item.needs):
        yield from _wrapped(need, first="  - ", rest="    ")
        decides = ", ".join(item.flow.id for item in proof.unknown if need in item.needs)
        yield from _wrapped(f"(for {decides})", first="    ", rest="     ")


def _wider(uses: Sequence[RuleUse]) -> Iterator[str]:
    if not uses:
        return
    yield "WIDER THAN SLURM NEEDS"
    for use in uses:
        serves = f"   (serves {', '.join(flow.id for flow in use.flows)})" if use.flows else ""
        yield from _wrapped(f"{rule_name(use.rule)}: {use.rule.text}{serves}", first="  ", rest=" " * 4)
        yield from _wrapped(not_needed(use), first=" " * 4, rest=" " * 6)


def not_needed(use: RuleUse) -> str:
    """Return what of a rule Slurm does not need."""
    return f"not needed: {use.wider}" if use.flows else use.wider


def _assumed(proof: Proof) -> Iterator[str]:
    for sentence in dict.fromkeys(sentence for item in proof.flows for sentence in item.assumed):
        yield from _wrapped(sentence, first="assumed: ", rest=" " * 9)


def _wrapped(text: str, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        # ids and rules are to be found by a search
        break_long_words=False,
        break_on_hyphens=False,
    )


def _coloured(text: str) -> str:
    states = "|".join(_COLOURS)
    return re.sub(
        rf"^(  \S+ .*  )?({states})\b",
        lambda match: f"{match[1] or ''}\x1b[{_COLOURS[match[2]]}m{match[2]}\x1b[0m",
        text,
        flags=re.MULTILINE,
    )
