"""A proof as an SVG picture: who may open what to whom. Closed connections are red, unknown ones dashed.

A pure function from a proof to text, without any library. Equal proofs give equal pictures.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from slurm_cluster.model.flows import Role
from slurm_cluster.reachability.fixes import fixes
from slurm_cluster.reachability.places import rule_name
from slurm_cluster.reachability.proof import FlowProof, Proof, RuleUse, Status
from slurm_cluster.reachability.table import not_needed, opened_by, summary

_WIDTH, _MARGIN = 940, 24
_BOX = 200
"""Width of a box; the lanes with the arrows are between two of them."""

_TOP, _LANE, _GAP, _LINE = 84, 50, 28, 18
_LEFT, _RIGHT = _MARGIN + _BOX, _WIDTH - _MARGIN - _BOX
_TITLE_LETTERS, _BOX_LETTERS, _LANE_LETTERS, _NOTE_LETTERS = 100, 27, 74, 118
_MANY = 12
"""Rules too wide that are drawn; the table lists all."""

_STYLE = """\
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
text { fill: #1f2328; } .title { font-size: 16px; font-weight: 600; } .quiet { fill: #59636e; font-size: 11px; }
.name { font-size: 14px; font-weight: 600; } .id { font-weight: 600; }
.box { fill: #f6f8fa; stroke: #59636e; } .outside { fill: #fff8c5; stroke: #9a6700; }
.lane { stroke-width: 1.8; fill: none; }
.open .lane { stroke: #1a7f37; } .open .head { fill: #1a7f37; }
.closed .lane { stroke: #cf222e; stroke-width: 2.4; } .closed .head { fill: #cf222e; }
.closed .id, .closed .state { fill: #cf222e; } .closed .cross { stroke: #cf222e; stroke-width: 3; }
.unknown .lane { stroke: #9a6700; stroke-dasharray: 6 5; } .unknown .head { fill: #9a6700; }
.unknown .id, .unknown .state { fill: #9a6700; }
.wide .lane { stroke: #9a6700; } .wide .head { fill: #9a6700; }
.add { font: 12px ui-monospace, monospace; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } text { fill: #f0f6fc; } .quiet { fill: #9198a1; }
  .box { fill: #151b23; stroke: #9198a1; } .outside { fill: #272115; stroke: #d29922; }
  .open .lane { stroke: #3fb950; } .open .head { fill: #3fb950; }
  .closed .lane, .closed .cross { stroke: #f85149; } .closed .head, .closed .id, .closed .state { fill: #f85149; }
  .unknown .lane, .wide .lane { stroke: #d29922; } .unknown .head, .wide .head { fill: #d29922; }
  .unknown .id, .unknown .state { fill: #d29922; }
}"""


def render(proof: Proof, *, title: str) -> str:
    """Return the picture.

    Args:
        proof: what to show.
        title: what was looked at.
    """
    between = [item for item in proof.flows if item.flow.opener is not item.flow.listener]
    among = [item for item in proof.flows if item.flow.opener is item.flow.listener]
    body: list[str] = []
    top = _TOP
    workers_end = top + _height(between) + (_GAP + _height(among) if among else 0)
    roles = proof.roles
    body += _box(_MARGIN, top, _height(between), "head node", roles.head, roles.head_members)
    body += _box(_RIGHT, top, workers_end - top, "worker", roles.workers, roles.worker_members)
    body += _lanes(between, top)
    if among:
        top += _height(between) + _GAP
        body += _box(_MARGIN, top, _height(among), "another worker", roles.workers, ())
        body += _lanes(among, top)
    top = workers_end + _GAP
    for heading, lines in (("Add", _additions(proof)), ("To know", _needs(proof))):
        if lines:
            body += _notes(heading, lines, top)
            top += _LINE * (len(lines) + 1) + _GAP // 2
    if proof.wider:
        body.append(f'<text class="name" x="{_MARGIN}" y="{top + 4}">Wider than Slurm needs</text>')
        body += _outsiders(proof.wider, top + 14)
        top += 14 + min(len(proof.wider), _MANY + 1) * _LANE
    height = top + _MARGIN
    heading = f"Slurm's connections in {title}"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label={quoteattr(heading)}>',
            f"<title>{escape(heading)}</title>",
            f"<desc>{escape(summary(proof))}</desc>",
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="{_MARGIN}" y="34">{_fitting(heading, _TITLE_LETTERS)}</text>',
            f'<text x="{_MARGIN}" y="58">{escape(summary(proof))}</text>',
            *body,
            "</svg>",
            "",
        )
    )


def _height(items: Sequence[FlowProof]) -> int:
    return max(1, len(items)) * _LANE


def _box(x: int, y: int, height: int, name: str, groups: Sequence[str], members: Sequence[str]) -> Iterator[str]:
    yield f'<rect class="box" x="{x}" y="{y}" width="{_BOX}" height="{height}" rx="6"/>'
    yield f'<text class="name" x="{x + 12}" y="{y + 24}">{escape(name)}</text>'
    lines = [*groups, *(f"({member})" for member in members)]
    room = (height - 30) // _LINE
    if len(lines) > room:
        lines = [*lines[: max(room - 1, 0)], f"and {len(lines) - max(room - 1, 0)} more"]
    for number, line in enumerate(lines):
        yield (f'<text class="quiet" x="{x + 12}" y="{y + 44 + number * _LINE}">{_fitting(line, _BOX_LETTERS)}</text>')


def _lanes(items: Sequence[FlowProof], top: int) -> Iterator[str]:
    for number, item in enumerate(items):
        # the box on the left is the head, or the other worker
        rightwards = item.flow.opener is Role.HEAD
        yield from _lane(item, top + number * _LANE, rightwards=rightwards)


def _lane(item: FlowProof, top: int, *, rightwards: bool) -> Iterator[str]:
    flow = item.flow
    state = {
        Status.OPEN: f"open by {opened_by(item)}",
        Status.CLOSED: f"CLOSED: {flow.symptom}",
        Status.UNKNOWN: "unknown",
    }[item.status]
    yield f'<g class="{item.status.value}">'
    yield f"<title>{escape(f'{flow.id}: {flow.purpose}')}</title>"
    yield (
        f'<text x="{_LEFT + 18}" y="{top + 16}"><tspan class="id">{escape(flow.id)}</tspan> '
        f"TCP {escape(str(flow.ports))}</text>"
    )
    yield from _arrow(top + 24, rightwards=rightwards, ends_early=item.status is Status.CLOSED)
    yield f'<text class="quiet state" x="{_LEFT + 18}" y="{top + 40}">{_fitting(state, _LANE_LETTERS)}</text>'
    yield "</g>"


def _arrow(y: int, *, rightwards: bool, ends_early: bool = False) -> Iterator[str]:
    start, end = (_LEFT + 4, _RIGHT - 4) if rightwards else (_RIGHT - 4, _LEFT + 4)
    step = 1 if rightwards else -1
    if ends_early:
        end -= step * 10
    yield f'<line class="lane" x1="{start}" y1="{y}" x2="{end - step * 8}" y2="{y}"/>'
    if ends_early:
        yield (f'<path class="cross" d="M{end - 5} {y - 5} L{end + 5} {y + 5} M{end - 5} {y + 5} L{end + 5} {y - 5}"/>')
    else:
        yield f'<path class="head" d="M{end} {y} l{-step * 10} -5 l0 10 z"/>'


def _additions(proof: Proof) -> list[str]:
    return [
        line
        for fix in fixes(proof.closed)
        for line in _wrap(f"{fix.title}   (opens {', '.join(flow.id for flow in fix.flows)})")
    ]


def _needs(proof: Proof) -> list[str]:
    sentences = dict.fromkeys(need for item in proof.unknown for need in item.needs)
    return [line for sentence in sentences for line in _wrap(sentence)]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _NOTE_LETTERS, subsequent_indent="    ", break_on_hyphens=False)


def _notes(heading: str, lines: Sequence[str], top: int) -> Iterator[str]:
    yield f'<text class="name" x="{_MARGIN}" y="{top + 4}">{escape(heading)}</text>'
    for number, line in enumerate(lines, 1):
        yield (
            f'<text class="add" x="{_MARGIN + 10}" y="{top + 4 + number * _LINE}" xml:space="preserve">'
            f"{escape(line)}</text>"
        )


def _outsiders(uses: Sequence[RuleUse], top: int) -> Iterator[str]:
    for number, use in enumerate(uses[:_MANY]):
        y = top + number * _LANE
        rule = use.rule
        ports = f"{rule.protocol.upper()} {rule.ports}" if rule.ports else rule.protocol.replace("-1", "everything")
        yield '<g class="wide">'
        for x, kind, text in ((_MARGIN, "outside", rule.peer), (_RIGHT, "box", rule.group)):
            yield f'<rect class="{kind}" x="{x}" y="{y + 8}" width="{_BOX}" height="30" rx="6"/>'
            yield f'<text x="{x + 12}" y="{y + 27}">{_fitting(text, _BOX_LETTERS)}</text>'
        yield f'<text x="{_LEFT + 18}" y="{y + 16}">{_fitting(f"{ports} by {rule_name(rule)}", _LANE_LETTERS)}</text>'
        yield from _arrow(y + 24, rightwards=True)
        yield (f'<text class="quiet" x="{_LEFT + 18}" y="{y + 40}">{_fitting(not_needed(use), _LANE_LETTERS)}</text>')
        yield "</g>"
    if len(uses) > _MANY:
        y = top + _MANY * _LANE
        yield f'<text class="quiet" x="{_MARGIN}" y="{y + 20}">and {len(uses) - _MANY} more</text>'


def _fitting(text: str, letters: int) -> str:
    """Return a text as XML, cut to its room; pointed at, it shows the whole of it."""
    if len(text) <= letters:
        return escape(text)
    return f"{escape(text[: letters - 1])}…<title>{escape(text)}</title>"
