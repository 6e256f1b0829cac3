"""Values of a template: known ones, and tokens for what only a deployment knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Token:
    """A value that only the deployment knows; equal to itself.

    Args:
        text: how it is written, such as ``HeadGroup`` or ``${VpcCidr}``.
        key: what it is: kind and operands, which make two tokens the same.
        home: name of the outermost stack whose deployment makes or receives it; empty where it belongs to none.
    """

    text: str = field(compare=False)
    key: tuple[Any, ...]
    home: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        try:
            hash(self.key)
        except TypeError:  # an operand is an object or a list of the template
            object.__setattr__(self, "key", _hashable(self.key))

    def __str__(self) -> str:
        return self.text

    @property
    def made(self) -> bool:
        """Whether the deployment of a template makes it, so that it is the id of nothing that existed before."""
        return self.key[0] == "resource" or self.key[-1] in DEFAULTS_OF_VPC


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ("object", *((key, _hashable(item)) for key, item in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


Id = str | Token
"""Identity of a resource: a literal id such as sg-0123, or the token of a resource that a template makes."""

DEFAULTS_OF_VPC = ("DefaultSecurityGroup", "DefaultNetworkAcl")
"""Attributes of a VPC that are ids of what comes into being with it."""

NO_VALUE = Token("AWS::NoValue", ("no value",))
"""What ``!Ref AWS::NoValue`` gives: the property is as if it were not there."""


def same(one: Id, other: Id) -> bool | None:
    """Return whether two ids are the same; None where that depends on the deployment.

    A resource that a template makes is no other resource, and none that existed before: nobody knows its id when the
    parameters of its own stack are given.
    """
    if one == other:
        return True
    if isinstance(one, str) and isinstance(other, str):
        return False
    made = [item for item in (one, other) if isinstance(item, Token) and item.made]
    if len(made) == 2:
        return False
    if made:
        foreign = other if made[0] is one else one
        if isinstance(foreign, str):
            return False
        if _source(foreign).key[0] in ("parameter", "import") and foreign.home == made[0].home:
            return False
    return None


def _source(item: Token) -> Token:
    """Return the unknown list that an item is taken from; of any other token itself."""
    while item.key[0] in ("select", "split") and isinstance(item.key[2], Token):
        item = item.key[2]
    return item


def among(item: Id, items: Collection[Id]) -> bool | None:
    """Return whether an id is one of several, some of which may be unknown lists of ids; None where that depends."""
    if item in items or (isinstance(item, Token) and item.key[0] == "select" and item.key[2] in items):
        return True
    return None if any(same(item, other) is None for other in items) else False


def concat(parts: Iterable[Any]) -> str | Token:
    """Return the parts as one text; a token where one of them is not known.

    However a text is put together, the same parts make the same token.
    """
    flat: list[str | Token] = []
    for part in parts:
        for piece in _pieces(part):
            if isinstance(piece, str) and flat and isinstance(flat[-1], str):
                flat[-1] += piece
            elif piece != "":
                flat.append(piece)
    if not flat:
        return ""
    if len(flat) == 1:
        return flat[0]
    homes = {piece.home for piece in flat if isinstance(piece, Token)}
    text = "".join(piece if isinstance(piece, str) else marked(piece) for piece in flat)
    return Token(text, ("text", *flat), home=homes.pop() if len(homes) == 1 else "")


def split(delimiter: str, value: str | Token) -> list[Any] | Token:
    """Return a text in parts; a token where that is not known."""
    if isinstance(value, str):
        return list(value.split(delimiter))
    if value.key[:2] == ("join", delimiter):
        joined: list[Any] | Token = value.key[2]
        return joined
    pieces = _pieces(value)
    # ids of resources hold no comma or bar; any other token may hold the delimiter
    if not delimiter or not all(isinstance(piece, str) or piece.made for piece in pieces):
        return Token(f"Split({delimiter!r}, {marked(value)})", ("split", delimiter, value), home=value.home)
    parts: list[list[Any]] = [[]]
    for piece in pieces:
        if isinstance(piece, Token):
            parts[-1].append(piece)
            continue
        first, *others = piece.split(delimiter)
        parts[-1].append(first)
        parts.extend([other] for other in others)
    return [concat(part) for part in parts]


def element(items: Token, index: int | str) -> Token:
    """Return the token of one item of an unknown list."""
    return Token(f"Select({index}, {marked(items)})", ("select", str(index), items), home=items.home)


def tokens_in(value: Any) -> Iterator[Token]:
    """Yield the tokens that a value is, or is made of."""
    if isinstance(value, Token):
        yield value
        value = value.key
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        yield from tokens_in(item)


def marked(value: Any) -> str:
    """Return a value as it would be written inside a ``!Sub``."""
    if not isinstance(value, Token):
        return str(value)
    return value.text if value.text.startswith(("$", "Split", "Select")) else f"${{{value.text}}}"


def _pieces(part: Any) -> list[str | Token]:
    if isinstance(part, Token):
        return list(part.key[1:]) if part.key[0] == "text" else [part]
    return [text_of(part)]


def text_of(value: Any) -> str:
    """Return a scalar as CloudFormation writes it: every value of a template is a text in the end."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def unique(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return each item once, in the order of their first appearance."""
    return tuple(dict.fromkeys(items))
