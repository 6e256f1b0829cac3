"""What the rehearsal's own parts of the emulated AWS share: the stores they keep, requests, answers and errors.

``adapter.py`` makes the one ``Emulator`` from ministack's internals, so nothing else here knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

Record = dict[str, Any]
Store = MutableMapping[str, Record]


class ApiError(Exception):
    """An error that AWS answers to a request.

    Args:
        code: AWS's error code, e.g. ``VolumeInUse``.
        message: AWS's wording where it is known.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, kw_only=True)
class Profile:
    """An IAM instance profile and the name of its role."""

    arn: str
    id: str
    role: str | None


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """The emulated region.

    Args:
        nodes: directory with one directory per instance id; ``pid1`` in it exists while the instance's machine runs,
            ``agent-online`` while its SSM agent does, ``console.log`` is its console.
        call: run an EC2 action of the emulator, nested parameters in, nested answer out; raises ``ApiError``.
        profile: find an instance profile by name or ARN.
        role_allows: whether a role's policies allow an action on a resource.
        region: region of the request in hand.
        account: account of the request in hand.
    """

    nodes: Path
    instances: Store
    volumes: Store
    subnets: Store
    security_groups: Store
    images: Store
    launch_templates: Store
    addresses: Store
    nat_gateways: Store
    flow_logs: Store
    hosted_zones: Store
    tags: MutableMapping[str, list[dict[str, str]]]
    call: Callable[[str, Mapping[str, Any]], Any]
    profile: Callable[[str], Profile | None]
    role_allows: Callable[[str, str, str], bool]
    region: Callable[[], str]
    account: Callable[[], str]
    public_parameters: MutableMapping[str, str] = field(default_factory=dict)

    def node(self, instance_id: str, name: str) -> Path:
        """Return the path of a file about an instance's machine."""
        return self.nodes / instance_id / name

    def machine_is_on(self, instance_id: str) -> bool:
        """Return whether the instance's machine runs."""
        return self.node(instance_id, "pid1").exists()


Action = Callable[[Emulator, dict[str, Any]], dict[str, Any]]
"""An EC2 action: nested request parameters in, nested answer out."""


def nested(flat: Mapping[str, str]) -> dict[str, Any]:
    """Return query parameters as a tree: ``A.1.B=x`` becomes ``{"A": [{"B": "x"}]}``."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return {key: _lists(value) for key, value in tree.items()}


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdigit() for key in value):
        return [_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _lists(item) for key, item in value.items()}


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return the query parameters of a tree, the inverse of ``nested``; None is left out."""
    if isinstance(value, Mapping):
        items: Iterable[tuple[str, Any]] = value.items()
    elif isinstance(value, list):
        items = ((str(number), item) for number, item in enumerate(value, 1))
    else:
        return {} if value is None else {prefix: text(value)}
    return {
        name: leaf for key, item in items for name, leaf in flat(item, f"{prefix}.{key}" if prefix else key).items()
    }


def text(value: Any) -> str:
    """Return a value as the Query API writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def boolean(value: Any) -> bool:
    """Return what a template or a query calls true."""
    return str(value).lower() == "true"


def xml(value: Any) -> str:
    """Return the EC2 API's XML of a tree; None is left out, list members are ``item`` elements."""
    if isinstance(value, Mapping):
        return "".join(f"<{key}>{xml(item)}</{key}>" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return "".join(f"<item>{xml(item)}</item>" for item in value)
    return escape(text(value))


def tree(element: Element) -> Any:
    """Return the tree of an XML element, the inverse of ``xml``."""
    children = list(element)
    if not children:
        return element.text or ""
    if all(child.tag.rpartition("}")[2] == "item" for child in children):
        return [tree(child) for child in children]
    return {child.tag.rpartition("}")[2]: tree(child) for child in children}


def single_values(query: Mapping[str, Any]) -> dict[str, str]:
    """Return a parsed query, whose values are lists, with the first value of each; without action and version."""
    values = {name: value[0] if isinstance(value, list) else value for name, value in query.items() if value}
    return {name: str(value) for name, value in values.items() if name not in ("Action", "Version")}


def tag_set(emulator: Emulator, resource_id: str) -> list[dict[str, str]]:
    """Return a resource's tags as EC2 answers them."""
    return [{"key": tag["Key"], "value": tag["Value"]} for tag in emulator.tags.get(resource_id, [])]


def tags_of(specifications: list[Any] | None, resource_type: str) -> list[dict[str, str]]:
    """Return the tags that a request's ``TagSpecification`` gives resources of one type."""
    return [
        {"Key": str(tag["Key"]), "Value": str(tag.get("Value", ""))}
        for specification in specifications or []
        if specification.get("ResourceType") == resource_type
        for tag in specification.get("Tag") or specification.get("Tags") or []
    ]


def merged_tags(*lists: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the tags of all lists; of one key the last value counts."""
    merged = {tag["Key"]: tag["Value"] for tags in lists for tag in tags}
    return [{"Key": key, "Value": value} for key, value in merged.items()]


def matches(emulator: Emulator, resource_id: str, facts: Mapping[str, list[str]], filters: list[Any] | None) -> bool:
    """Return whether a resource passes the ``Filter`` list of a Describe request.

    Args:
        facts: values by filter name, all that the action supports beside tags.

    Raises:
        ApiError: a filter that is not supported.
    """
    tags = {tag["Key"]: tag["Value"] for tag in emulator.tags.get(resource_id, [])}
    for item in filters or []:
        name, wanted = item["Name"], item.get("Value") or []
        if name.startswith("tag:"):
            values = [tags[name[4:]]] if name[4:] in tags else []
        elif name == "tag-key":
            values = list(tags)
        elif name in facts:
            values = facts[name]
        else:
            raise ApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
        if not any(fnmatchcase(value, pattern) for value in values for pattern in wanted):
            return False
    return True


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse parameters that the rehearsal does not act on, by name.

    Raises:
        ApiError: some of ``given`` is not in ``known``.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ApiError(
            "UnsupportedOperation", f"{what} with {', '.join(unknown)} is not rehearsed; use {', '.join(sorted(known))}"
        )
