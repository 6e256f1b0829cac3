"""CloudFormation's functions: what is known is computed, the rest becomes tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from itertools import islice
from typing import Any, Protocol

from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.values import NO_VALUE, Token, concat, element, marked, split, text_of

_DYNAMIC = re.compile(r"\{\{resolve:[^}]*\}\}")
_PLACE = re.compile(r"\$\{(!?)([^}]*)\}")


class Scope(Protocol):
    """What a function needs of the stack that it stands in."""

    @property
    def name(self) -> str:
        """The stack's name, for errors."""

    @property
    def home(self) -> str:
        """Name of the outermost stack."""

    @property
    def mappings(self) -> Mapping[str, Any]:
        """The template's Mappings."""

    def ref(self, name: str) -> Any:
        """Return what ``!Ref name`` gives."""

    def attribute(self, name: str, attribute: str) -> Any:
        """Return what ``!GetAtt name.attribute`` gives."""

    def condition(self, name: str) -> bool:
        """Return whether a condition of the template holds."""

    def equals(self, one: str | Token, other: str | Token) -> bool:
        """Return whether two values are equal."""

    def imported(self, name: str | Token) -> Any:
        """Return the value of another stack's export."""

    def output_of(self, stack: str | Token, output: str | Token) -> Any:
        """Return an output of another stack, known by its name."""


def resolve(scope: Scope, value: Any) -> Any:
    """Return a value of the template with every function in it computed; what is AWS::NoValue is left out."""
    if isinstance(value, str):
        return _text(value) if "{{resolve:" in value else value
    if isinstance(value, list):
        return [item for item in (resolve(scope, item) for item in value) if item != NO_VALUE]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        name, argument = next(iter(value.items()))
        if name == "Ref" and isinstance(argument, str):
            return scope.ref(argument)
        if name in _FUNCTIONS:
            try:
                return _FUNCTIONS[name](scope, argument)
            except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"{scope.name}: {name} cannot take {argument!r}: {error}") from error
        if str(name).startswith("Fn::"):
            return _opaque(scope, name, argument)
    return {key: item for key, item in ((key, resolve(scope, item)) for key, item in value.items()) if item != NO_VALUE}


def holds(scope: Scope, condition: Any) -> bool:
    """Return whether a condition's expression is true.

    Raises:
        InputError: it is no condition.
    """
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, dict) and len(condition) == 1:
        name, argument = next(iter(condition.items()))
        if name == "Condition":
            return scope.condition(argument)
        if name == "Fn::Equals" and isinstance(argument, list) and len(argument) == 2:
            one, other = (_comparable(scope, resolve(scope, item)) for item in argument)
            return scope.equals(one, other)
        if name == "Fn::Not" and isinstance(argument, list) and len(argument) == 1:
            return not holds(scope, argument[0])
        if name in ("Fn::And", "Fn::Or") and isinstance(argument, list):
            return (all if name == "Fn::And" else any)(holds(scope, item) for item in argument)
    raise InputError(
        f"{scope.name}: {condition!r} is no condition: give Fn::Equals, Fn::And, Fn::Or, Fn::Not or Condition"
    )


def _comparable(scope: Scope, value: Any) -> str | Token:
    if isinstance(value, Token):
        return value
    return text_of(value) if not isinstance(value, (dict, list)) else _opaque(scope, "Value", value)


def _text(value: str) -> str | Token:
    parts: list[Any] = []
    end = 0
    for found in _DYNAMIC.finditer(value):
        parts += [value[end : found.start()], Token(found[0], ("dynamic", found[0]))]
        end = found.end()
    return concat([*parts, value[end:]])


def _opaque(scope: Scope, name: str, argument: Any) -> Token:
    short = repr(argument)
    return Token(f"{name.removeprefix('Fn::')}({short})", ("opaque", scope.name, name, short), home=scope.home)


def _get_att(scope: Scope, argument: Any) -> Any:
    if isinstance(argument, str):
        argument = argument.split(".", 1)
    name, attribute = argument
    return scope.attribute(name, text_of(resolve(scope, attribute)))


def _join(scope: Scope, argument: Any) -> Any:
    delimiter, items = argument
    values = resolve(scope, items)
    if isinstance(values, Token):
        return Token(f"Join({delimiter!r}, {marked(values)})", ("join", delimiter, values), home=values.home)
    parts: list[Any] = []
    for item in values:
        parts += [delimiter, item] if parts else ["", item]
    return concat(parts)


def _split(scope: Scope, argument: Any) -> Any:
    delimiter, value = argument
    return split(delimiter, resolve(scope, value))


def _select(scope: Scope, argument: Any) -> Any:
    index, items = (resolve(scope, item) for item in argument)
    if isinstance(items, Token):
        return element(items, text_of(index))
    return _opaque(scope, "Fn::Select", argument) if isinstance(index, Token) else items[int(index)]


def _sub(scope: Scope, argument: Any) -> Any:
    template, given = (argument, {}) if isinstance(argument, str) else argument
    own = {name: resolve(scope, value) for name, value in given.items()}
    parts: list[Any] = []
    end = 0
    for found in _PLACE.finditer(template):
        literal, name = found[1], found[2].strip()
        if literal:
            value: Any = f"${{{name}}}"
        elif name in own:
            value = own[name]
        else:
            value = _get_att(scope, name) if "." in name else scope.ref(name)
        parts += [template[end : found.start()], value]
        end = found.end()
    return concat([*parts, template[end:]])


def _if(scope: Scope, argument: Any) -> Any:
    condition, then, otherwise = argument
    return resolve(scope, then if scope.condition(condition) else otherwise)


def _find_in_map(scope: Scope, argument: Any) -> Any:
    keys = [resolve(scope, item) for item in argument[:3]]
    found: Any = scope.mappings
    if any(isinstance(key, Token) for key in keys):
        return Token(f"FindInMap({', '.join(map(marked, keys))})", ("map", scope.name, *keys), home=scope.home)
    for key in keys:
        if text_of(key) not in found:
            if len(argument) > 3 and isinstance(argument[3], dict) and "DefaultValue" in argument[3]:
                return resolve(scope, argument[3]["DefaultValue"])
            raise InputError(f"{scope.name}: FindInMap finds no {key!r}; allowed are {', '.join(map(str, found))}")
        found = found[text_of(key)]
    return resolve(scope, found)


def _cidr(scope: Scope, argument: Any) -> Any:
    values = [resolve(scope, item) for item in argument]
    if any(isinstance(value, Token) for value in values):
        return Token(f"Cidr({', '.join(map(marked, values))})", ("cidr", *map(str, values)), home=scope.home)
    network, count, bits = ip_network(values[0]), int(values[1]), int(values[2]) if len(values) > 2 else 8
    return [str(item) for item in islice(network.subnets(new_prefix=network.max_prefixlen - bits), count)]


def _import_value(scope: Scope, argument: Any) -> Any:
    return scope.imported(resolve(scope, argument))


def _get_stack_output(scope: Scope, argument: Any) -> Any:
    # the same output of another Region's stack would be no id of this network: the Region is not looked at
    return scope.output_of(*(resolve(scope, argument[name]) for name in ("StackName", "OutputName")))


_FUNCTIONS: Mapping[str, Callable[[Scope, Any], Any]] = {
    "Fn::GetAtt": _get_att,
    "Fn::Join": _join,
    "Fn::Split": _split,
    "Fn::Select": _select,
    "Fn::Sub": _sub,
    "Fn::If": _if,
    "Fn::FindInMap": _find_in_map,
    "Fn::Cidr": _cidr,
    "Fn::ImportValue": _import_value,
    "Fn::GetStackOutput": _get_stack_output,
    "Fn::Base64": resolve,
}
