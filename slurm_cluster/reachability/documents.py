"""Reading CloudFormation templates: JSON, or YAML with short tags such as ``!Ref`` and ``!GetAtt``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.values import text_of

Document = dict[str, Any]

_DEEPEST = 100
_LARGEST = 500_000
"""What a megabyte, the most that CloudFormation takes, has no room for:
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
"""

# libyaml's parser reads a large template ten times faster, where PyYAML was built with it
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]  # which of the two is known at run time only
    """YAML as CloudFormation reads it: short tags are functions, dates are texts, a key is there once."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}


def _function(loader: Any, suffix: str, node: yaml.Node) -> Any:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        # !GetAtt Group.GroupId is Fn::GetAtt: [Group, GroupId]
        return {name: value.split(".", 1) if suffix == "GetAtt" and "." in value else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


def _mapping(loader: Any, node: yaml.MappingNode) -> Document:
    seen: set[str] = set()
    for key, _ in node.value:
        name = str(key.value)
        if name in seen:
            raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} is there twice", key.start_mark)
        seen.add(name)
    # keys taken over by "<<" come first, so that own ones replace them
    loader.flatten_mapping(node)
    found = {}
    for key, value in node.value:
        name = loader.construct_object(key, deep=True)
        # an account id as key is a text to CloudFormation
        found[name if isinstance(name, str) else text_of(name)] = loader.construct_object(value, deep=True)
    return found


_Loader.add_multi_constructor("!", _function)
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def read(path: Path) -> Document:
    """Read one template.

    Raises:
        InputError: the file cannot be read, is neither JSON nor YAML, or is no template.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise InputError(f"cannot read {path}: {reason}; give a CloudFormation template in JSON or YAML") from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """Return a template's content.

    Args:
        text: JSON or YAML.
        name: what to call it in errors.

    Raises:
        InputError: it is neither, or is no template.
    """
    document = _parse_json(text, name) if text.lstrip()[:1] == "{" else _parse_yaml(text, name)
    _check_size(document, name)
    return check(document, name)


def _check_size(document: Any, name: str) -> None:
    """Check that everything in a document can be looked at; by aliases a short text can be larger than any memory.

    Raises:
        InputError: it is too large, or too deep.
    """
    sizes: dict[int, int] = {}

    def size(value: Any, level: int) -> int:
        if not isinstance(value, dict | list):
            return 1
        if level > _DEEPEST:
            raise InputError(f"{name}: values nest more than {_DEEPEST} levels deep; make it flatter")
        if id(value) not in sizes:
            inner = value.values() if isinstance(value, dict) else value
            sizes[id(value)] = 1 + sum(size(item, level + 1) for item in inner)
        return sizes[id(value)]

    if size(document, 0) > _LARGEST:
        raise InputError(
            f"{name}: holds more than {_LARGEST} values, aliases counted as often as they are used; CloudFormation "
            "takes no template of more than a megabyte"
        )


def check(document: Any, name: str) -> Document:
    """Return a document that is a template.

    Raises:
        InputError: it has no resources.
    """
    resources = document.get("Resources") if isinstance(document, dict) else None
    if not isinstance(resources, dict) or not resources:
        raise InputError(f"{name}: is no CloudFormation template: it has no mapping Resources with resources in it")
    for logical_id, resource in resources.items():
        if str(logical_id).startswith("Fn::"):
            raise InputError(
                f"{name}: {logical_id} makes resources when the template is deployed; give the processed template "
                "(aws cloudformation get-template --template-stage Processed)"
            )
        if not isinstance(resource, dict) or not isinstance(resource.get("Type"), str):
            raise InputError(f"{name}: the resource {logical_id} has no Type; each resource needs one")
    for section in ("Parameters", "Mappings", "Conditions", "Outputs"):
        _check_section(document, section, name)
    for logical_id, resource in resources.items():
        for part in ("Properties", "Metadata"):
            if not isinstance(resource.get(part) or {}, dict):
                raise InputError(f"{name}: {part} of the resource {logical_id} is no mapping; make it one")
        if not isinstance(resource.get("Condition", ""), str):
            raise InputError(f"{name}: Condition of the resource {logical_id} is no text; give a condition's name")
    checked: Document = document
    return checked


def _check_section(document: Document, section: str, name: str) -> None:
    """Check that a section is a mapping, and of those that hold descriptions each item, too."""
    items = document.get(section)
    if items is None:
        return
    if not isinstance(items, dict):
        raise InputError(f"{name}: {section} is {items!r}; it has to be a mapping")
    for key, item in items.items():
        if section != "Conditions" and not isinstance(item, dict):
            raise InputError(f"{name}: {key} in {section} is {item!r}; it has to be a mapping")


def _parse_json(text: str, name: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> Document:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(f"{name}: the key {twice!r} is there twice in one object; CloudFormation takes each once")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except InputError:
        raise
    except json.JSONDecodeError as error:
        # a YAML template may begin with a brace as well
        try:
            return _parse_yaml(text, name)
        except InputError:
            raise InputError(
                f"{name}, line {error.lineno}, column {error.colno}: {error.msg}; the file begins like JSON and is none"
            ) from error
    except (ValueError, RecursionError) as error:
        # json's limits: digits of a number, levels of nesting
        raise InputError(f"{name}: {error}; CloudFormation takes no such template, give one that it takes") from error


def _parse_yaml(text: str, name: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
    except RecursionError as error:
        raise InputError(f"{name}: values nest more than {_DEEPEST} levels deep; make it flatter") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{name}{where}: {error.problem}; the file must be valid YAML") from error
    except yaml.YAMLError as error:
        raise InputError(f"{name}: {error}; the file must be valid JSON or YAML") from error
