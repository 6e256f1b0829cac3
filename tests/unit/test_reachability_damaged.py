"""Damaged templates: whatever stands in a property, the answer is a proof or an error that says what is wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_cluster.reachability import InputError, load, prove

TEMPLATES = sorted(Path("tests/unit/reachability_templates").glob("*.*"))

junk: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        70000,
        1.5,
        "",
        "x",
        "0.0.0.0/99",
        [],
        ["x"],
        [[]],
        [None],
        {},
        {"x": 1},
        {"Ref": 1},
        {"Ref": "AWS::NoValue"},
        {"Ref": "AWS::Region"},
        {"Fn::GetAtt": []},
        {"Fn::Join": ["", [["x"]]]},
        {"Fn::Sub": None},
        {"Fn::If": []},
        {"Fn::Select": ["x", []]},
        {"Fn::Split": [1, 2]},
        {"Fn::ImportValue": []},
        {"Fn::Unheard": "x"},
    ]
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything inside of a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_template_is_proven_or_refused(path: Path, data: st.DataObject) -> None:
    template = copy.deepcopy(dict(load(path).documents[str(path)]))
    spots = [spot for spot in places(template) if len(spot) > 1]
    for _ in range(data.draw(st.integers(1, 3))):
        spot = data.draw(st.sampled_from(spots))
        place: Any = template
        try:
            for key in spot[:-1]:
                place = place[key]
            place[spot[-1]] = copy.deepcopy(data.draw(junk))
        except (KeyError, IndexError, TypeError):
            continue  # the spot went with an earlier one
    with suppress(InputError):
        assert prove(load({"damaged": template})).flows
