"""Where a template's resources are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import yaml

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def resource_lines(text: str) -> Mapping[str, int]:
    """Return the line, counted from 1, on which each resource of a template in JSON or YAML begins, by logical id.

    A text that is no template has none.
    """
    try:
        places = _json_places(text) if text.lstrip().startswith("{") else _yaml_places(text)
    except (ValueError, yaml.YAMLError):
        return {}
    return {name: line + 1 for name, line in places}


def _yaml_places(text: str) -> Iterator[tuple[str, int]]:
    # composed and not loaded: short tags such as !Ref need no constructor
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in _pairs(root):
        if key.value == "Resources":
            for name, _ in _pairs(value):
                yield name.value, name.start_mark.line


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _json_places(text: str) -> Iterator[tuple[str, int]]:
    for key, _, value in _members(text, _skip(text, 0)):
        if key == "Resources":
            for name, place, _ in _members(text, value):
                yield name, text.count("\n", 0, place)


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield key, its place and the place of its value for each member of the JSON object at ``start``."""
    place = _skip(text, start + 1)
    while text[place : place + 1] == '"':
        key, after = _DECODER.raw_decode(text, place)
        value = _skip(text, _skip(text, after) + 1)
        yield key, place, value
        _, after = _DECODER.raw_decode(text, value)
        place = _skip(text, _skip(text, after) + 1)


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
