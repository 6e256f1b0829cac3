"""The deployments that a template may have: one for each way its unknown conditions may turn out.

A template whose condition compares a parameter without a default is two clusters. Each is looked at by itself, so that
inside of one every condition is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from slurm_cluster.reachability.errors import InputError
from slurm_cluster.reachability.values import Token, marked

LIMIT = 64
"""Most worlds that are looked at."""

Atom = tuple[Token, str | Token]
Result = TypeVar("Result")


@dataclass
class World:
    """One way in which the comparisons of unknown values may turn out.

    Args:
        assumed: the comparisons that are decided.
        allowed: the only values that a parameter takes, where its template lists them.
        asked: those of the decided comparisons that were new here, in the order in which they came up.
    """

    assumed: dict[Atom, bool] = field(default_factory=dict)
    allowed: dict[Token, frozenset[str]] = field(default_factory=dict)
    asked: list[Atom] = field(default_factory=list)

    def equals(self, one: str | Token, other: str | Token) -> bool:
        """Return whether two values are equal in this world."""
        if one == other:
            return True
        if not isinstance(one, Token):
            one, other = other, one
        if not isinstance(one, Token):
            return False
        if one.made or (isinstance(other, Token) and other.made):
            return False
        atom = (one, other)
        if atom not in self.assumed:
            decided = self._follows(one, other)
            if decided is not None:
                return decided
            self.assumed[atom] = True
            self.asked.append(atom)
        return self.assumed[atom]

    def _follows(self, one: Token, other: str | Token) -> bool | None:
        """Return what the other comparisons say of this one."""
        if isinstance(other, Token):
            return None
        values = {value: equal for (token, value), equal in self.assumed.items() if token == one}
        if any(values.values()):
            return False  # it is equal to another text
        allowed = self.allowed.get(one)
        if allowed is None:
            return None
        if other not in allowed:
            return False
        return True if allowed - {other} <= {value for value in values if isinstance(value, str)} else None

    def text(self) -> str:
        """Return its assumptions in words; empty where it has none."""
        return " and ".join(
            f"{marked(one)} {'is' if equal else 'is not'} {marked(other) or repr('')}"
            for (one, other), equal in self.assumed.items()
        )


def explore(look: Callable[[World], Result]) -> Iterator[tuple[World, Result]]:
    """Look at every world; which comparisons there are shows while looking.

    Raises:
        InputError: there are more than ``LIMIT`` of them.
    """
    waiting: list[dict[Atom, bool]] = [{}]
    number = 0
    while waiting:
        number += 1
        if number > LIMIT:
            raise InputError(
                f"the templates' conditions depend on so many unknown values that there are more than {LIMIT} clusters "
                "to prove: give some of them as parameters, "
                + ", ".join(sorted({marked(one) for assumed in waiting for one, _ in assumed}))
            )
        world = World(dict(waiting.pop()))
        yield world, look(world)
        decided = {atom: equal for atom, equal in world.assumed.items() if atom not in world.asked}
        for atom in world.asked:
            waiting.append({**decided, atom: False})
            decided[atom] = True
