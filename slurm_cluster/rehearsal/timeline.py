"""Picture of a rehearsal's times: a pure function from spans to SVG text, a row a span, without any library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from slurm_cluster.rehearsal.progress import Span

_LABELS, _BARS, _MARGIN = 250, 700, 20
_ROW, _BAR, _TOP, _AXIS = 24, 16, 46, 24
_CHARACTER = 6.2
"""Width of a letter of the font below, to know which texts fit into their bars."""

_LABEL_LETTERS = 38
_TICKS = 8
_STEPS = (1, 2, 5, 10, 20, 30)
_MINUTE = 60

_STYLE = """\
svg { background: #ffffff; font: 11px system-ui, sans-serif; }
text { fill: #1f2328; } .title { font-size: 14px; font-weight: 600; } .quiet { fill: #59636e; }
.bar { fill: #4c8dd6; } .part { fill: #4c8dd6; } .part.even { fill: #2f6fb5; } .failed { fill: #cf222e; }
.inside { fill: #ffffff; } .grid { stroke: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  svg { background: #0d1117; } text { fill: #f0f6fc; } .quiet { fill: #9198a1; } .inside { fill: #ffffff; }
  .grid { stroke: #3d444d; }
}"""


def render(spans: Sequence[Span], *, title: str) -> str:
    """Return an SVG picture of the spans in the order of their beginning, times in seconds.

    Each bar tells its times when pointed at; a failed one is red. Equal spans and title give equal text.
    """
    rows = sorted(spans, key=lambda span: (span.began, span.ended))
    last = max((span.ended for span in rows), default=0.0)
    step = tick_seconds(last)
    total = step * max(1, math.ceil(last / step))
    width, height = _LABELS + _BARS + 2 * _MARGIN, _TOP + len(rows) * _ROW + _AXIS + _MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{_attribute(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="{_MARGIN}" y="28">{escape(title)}</text>',
            *_grid(total, step, len(rows)),
            *(line for number, span in enumerate(rows) for line in _row(span, number, total)),
            "</svg>",
            "",
        )
    )


def tick_seconds(last: float) -> int:
    """Return the distance of the axis's ticks: round, and few enough to be read."""
    unit = 1
    while True:
        for step in _STEPS:
            if step * unit * _TICKS >= last:
                return step * unit
        unit *= _MINUTE


def _grid(total: float, step: int, rows: int) -> Iterator[str]:
    bottom = _TOP + rows * _ROW
    for second in range(0, int(total) + 1, step):
        x = _x(second, total)
        yield f'<line class="grid" x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}"/>'
        yield f'<text class="quiet" x="{x}" y="{bottom + 16}" text-anchor="middle">{second} s</text>'


def _row(span: Span, number: int, total: float) -> Iterator[str]:
    top = _TOP + number * _ROW
    label = span.what if len(span.what) <= _LABEL_LETTERS else f"{span.what[: _LABEL_LETTERS - 1]}…"
    yield f'<text x="{_LABELS + _MARGIN - 10}" y="{top + 13}" text-anchor="end">{escape(label)}</text>'
    yield from _bar("bar failed" if span.failed else "bar", span.what, span.began, span.ended, top, total)
    for place, (name, began, ended) in enumerate(span.parts):
        broke = span.failed and place == len(span.parts) - 1
        shade = "part failed" if broke else ("part even" if place % 2 else "part")
        yield from _bar(shade, f"{span.what}: {name}", began, ended, top, total)
        if (ended - began) / total * _BARS > len(name) * _CHARACTER + 6:
            yield f'<text class="inside" x="{round(_x(began, total) + 4, 1)}" y="{top + 12}">{escape(name)}</text>'
    took = f"{span.ended - span.began:.1f} s"
    beside = _x(span.ended, total) + 5
    if beside + len(took) * _CHARACTER < _LABELS + _BARS + 2 * _MARGIN:
        yield f'<text class="quiet" x="{round(beside, 1)}" y="{top + 13}">{took}</text>'


def _bar(shade: str, what: str, began: float, ended: float, top: int, total: float) -> Iterator[str]:
    left = _x(began, total)
    width = max(1.0, round(_x(ended, total) - left, 1))
    told = escape(f"{what}: from {began:.1f} s to {ended:.1f} s")
    yield f'<rect class="{shade}" x="{left}" y="{top}" width="{width}" height="{_BAR}"><title>{told}</title></rect>'


def _x(second: float, total: float) -> float:
    return round(_LABELS + _MARGIN + second / total * _BARS, 1)


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})
