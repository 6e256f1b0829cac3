"""The picture of a rehearsal's times."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_cluster.rehearsal.progress import Span
from slurm_cluster.rehearsal.timeline import render, tick_seconds

SVG = "{http://www.w3.org/2000/svg}"
SPANS = [
    Span("cdk deploy", 3.5, 20.0),
    Span("head: bootstrap", 10.0, 18.0, parts=(("packages", 10.0, 17.0), ("munge", 17.0, 18.0))),
    Span("cpu-static-1: bootstrap", 11.0, 16.0, failed=True, parts=(("packages", 11.0, 15.0), ("munge", 15.0, 16.0))),
]


def bars(text: str) -> dict[str, tuple[str, float, float]]:
    """Shade, left edge and width of each bar by what it tells when pointed at."""
    found = {}
    for rect in ElementTree.fromstring(text).iter(f"{SVG}rect"):  # noqa: S314 - made by the code under test
        title = rect.find(f"{SVG}title")
        assert title is not None
        assert title.text
        found[title.text] = (rect.attrib["class"], float(rect.attrib["x"]), float(rect.attrib["width"]))
    return found


def test_each_span_and_step_is_a_bar_at_its_time_and_scale() -> None:
    found = bars(render(SPANS, title="a run"))
    assert len(found) == 3 + 4
    _, deploy, width = found["cdk deploy: from 3.5 s to 20.0 s"]
    _, munge, munge_width = found["head: bootstrap: munge: from 17.0 s to 18.0 s"]
    second = width / 16.5
    assert munge - deploy == pytest.approx(13.5 * second, abs=0.2)
    assert munge_width == pytest.approx(second, abs=0.2)


def test_only_what_failed_is_red() -> None:
    red = {told for told, (shade, _, _) in bars(render(SPANS, title="a run")).items() if "failed" in shade}
    assert red == {
        "cpu-static-1: bootstrap: from 11.0 s to 16.0 s",
        "cpu-static-1: bootstrap: munge: from 15.0 s to 16.0 s",
    }


def test_names_cannot_break_the_picture() -> None:
    text = render([Span('<a & "b">', 0, 1)], title='"<&>"')
    root = ElementTree.fromstring(text)  # noqa: S314 - made by the code under test
    assert root.attrib["aria-label"] == '"<&>"'
    assert '<a & "b">' in [element.text for element in root.iter(f"{SVG}text")]


def test_equal_spans_give_equal_text_in_any_order_and_none_gives_a_picture() -> None:
    assert render(SPANS, title="a") == render(SPANS[::-1], title="a")
    assert bars(render([], title="nothing")) == {}


@given(st.lists(st.tuples(st.floats(0, 4000), st.floats(0, 4000)), max_size=8))
def test_every_bar_is_inside_the_picture(times: list[tuple[float, float]]) -> None:
    text = render([Span(f"s{n}", b, b + took) for n, (b, took) in enumerate(times)], title="t")
    match = re.search(r'width="(\d+)"', text)
    assert match
    assert all(left >= 0 and left + width <= int(match[1]) for _, left, width in bars(text).values())


@pytest.mark.parametrize(("last", "step"), [(0, 1), (8, 1), (40, 5), (41, 10), (240, 30), (241, 60), (4000, 600)])
def test_ticks_are_round(last: float, step: int) -> None:
    assert tick_seconds(last) == step
