"""Ports, address ranges and ids as templates write them."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from slurm_cluster.model.flows import ALL_TCP, PortRange
from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.network import Cidr
from slurm_cluster.reachability.values import Id, Token, text_of


def ports(first: Any, last: Any, where: str) -> PortRange | Token:
    """Return the ports of a TCP or UDP rule.

    Args:
        first: FromPort, None where it is not given.
        last: ToPort.
        where: the rule, for errors.
    """
    if first is None or last is None:
        return Token("an unknown port", ("no port", where))
    for value in (first, last):
        if isinstance(value, Token):
            return Token(f"{first}-{last}" if first != last else str(first), ("ports", first, last), home=value.home)
    try:
        numbers = int(text_of(first)), int(text_of(last))
        return ALL_TCP if numbers[0] == -1 else PortRange(*numbers)
    except ValueError as error:
        raise InputError(
            f"{where}: the ports {first!r} to {last!r} are not valid: give two from 0 to 65535, the lower one first"
        ) from error


def cidr(value: Any, where: str) -> Cidr:
    """Return an address range."""
    if isinstance(value, Token):
        return value
    try:
        return ip_network(text_of(value).strip(), strict=False)
    except ValueError as error:
        raise InputError(f"{where}: {value!r} is no address range: give one such as 10.0.0.0/16") from error


def ids(value: Any) -> tuple[Id, ...]:
    """Return a list of ids; a list that is not known is one unknown id."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(item if isinstance(item, Token) else text_of(item) for item in items if item != "")


def tags(value: Any) -> dict[str, str]:
    """Return a list of tags by key."""
    items = value if isinstance(value, list) else []
    return {text_of(item.get("Key")): text_of(item.get("Value", "")) for item in items if isinstance(item, Mapping)}
