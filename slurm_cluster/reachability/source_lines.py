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
    # a text that begins like JSON may be YAML
    readers = [_json_places, _yaml_places] if text.lstrip().startswith("{") else [_yaml_places]
    for read in readers:
        try:
            return {name: line + 1 for name, line in read(text)}
        except (ValueError, yaml.YAMLError):
            continue
    return {}


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
    if text[place : place + 1] == "}":
        return
    while text[place : place + 1] == '"':
        key, after = _DECODER.raw_decode(text, place)
        value = _skip(text, _skip(text, after) + 1)
        yield key, place, value
        _, after = _DECODER.raw_decode(text, value)
        end = _skip(text, after)
        if text[end : end + 1] == "}":
            return
        place = _skip(text, end + 1)
    raise ValueError(f"no JSON object: a key was expected at character {place}")


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place
