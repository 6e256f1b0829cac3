"""Properties of a resource, computed and of the kind that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from slurm_cluster.model.flows import ALL_TCP, PortRange
from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.network import Cidr
from slurm_cluster.reachability.values import NO_VALUE, Id, Token, text_of


class Properties:
    """The properties of one resource, or of a part of it.

    Args:
        where: template and resource, for errors.
        given: the properties as the template has them.
        compute: computes the functions in a value.
    """

    def __init__(self, where: str, given: Any, compute: Callable[[Any], Any]) -> None:
        if not isinstance(given, Mapping):
            raise InputError(f"{where}: {given!r} stands where properties are expected: give a mapping")
        self._where = where
        self._given = given
        self._compute = compute

    def __contains__(self, name: str) -> bool:
        return self.value(name) is not None

    def value(self, name: str) -> Any:
        """Return a property of any kind; None where it is not given."""
        if name not in self._given:
            return None
        found = self._compute(self._given[name])
        return None if found == NO_VALUE or found == "" else found

    def raw(self, name: str) -> Any:
        """Return a property as the template has it."""
        return self._given.get(name)

    def scalar(self, name: str) -> str | Token | None:
        """Return a text, a number as text, or the token of one."""
        return self._scalar(name, self.value(name))

    def text(self, name: str) -> str | None:
        """Return a text that is known."""
        found = self.scalar(name)
        return found if isinstance(found, str) else None

    def ids(self, name: str) -> tuple[Id, ...]:
        """Return a list of ids; a list that is not known is one unknown id."""
        found = self.value(name)
        items = found if isinstance(found, list) else [] if found is None else [found]
        scalars = (self._scalar(name, item) for item in items)
        return tuple(item for item in scalars if item is not None and item != "")

    def cidr(self, name: str) -> Cidr | None:
        """Return an address range."""
        found = self.scalar(name)
        if found is None or isinstance(found, Token):
            return found
        try:
            return ip_network(found.strip(), strict=False)
        except ValueError as error:
            raise InputError(
                f"{self._where}: {name} {found!r} is no address range: give one such as 10.0.0.0/16"
            ) from error

    def ports(self, first: str, last: str) -> PortRange | Token:
        """Return the ports of a TCP or UDP rule, between two properties; a token where one is not known."""
        values = self.scalar(first), self.scalar(last)
        if None in values:
            return Token("that are not given", ("no port", self._where))
        tokens = [value for value in values if isinstance(value, Token)]
        if tokens:
            text = str(values[0]) if values[0] == values[1] else f"{values[0]}-{values[1]}"
            return Token(text, ("ports", *values), home=tokens[0].home)
        try:
            numbers = int(str(values[0])), int(str(values[1]))
            return ALL_TCP if numbers[0] == -1 else PortRange(*numbers)
        except ValueError as error:
            raise InputError(
                f"{self._where}: the ports {values[0]!r} to {values[1]!r} are not valid: "
                "give two from 0 to 65535, the lower one first"
            ) from error

    def part(self, name: str) -> Properties:
        """Return a property that is a mapping; an empty one where it is not given or not known."""
        found = self.value(name)
        return self._inner(name, {} if found is None or isinstance(found, Token) else found)

    def parts(self, name: str) -> list[Properties | Token]:
        """Return a property that is a list of mappings; what of it is not known is a token."""
        found = self.value(name)
        # one item may stand there without a list
        items = found if isinstance(found, list) else [] if found is None else [found]
        return [item if isinstance(item, Token) else self._inner(name, item) for item in items]

    def known_parts(self, name: str) -> list[Properties]:
        """Return what is known of a list of mappings."""
        return [item for item in self.parts(name) if isinstance(item, Properties)]

    def tags(self, name: str = "Tags") -> dict[str, str]:
        """Return a list of tags by key."""
        return dict(self._tags(name))

    def _tags(self, name: str) -> Iterator[tuple[str, str]]:
        for tag in self.known_parts(name):
            yield str(tag.scalar("Key")), str(tag.scalar("Value") or "")

    def _inner(self, name: str, value: Any) -> Properties:
        # it is computed already
        return Properties(f"{self._where}, {name}", value, lambda item: item)

    def _scalar(self, name: str, value: Any) -> str | Token | None:
        if value is None or isinstance(value, Token):
            return value
        if isinstance(value, (list, Mapping)):
            raise InputError(f"{self._where}: {name} is {value!r}: give one text or number")
        return text_of(value)
