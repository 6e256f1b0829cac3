"""Checks of options, of the kinds that several constructs take; each returns what is wrong, or None."""

from __future__ import annotations

from aws_cdk import Size, SizeRoundingBehavior, Token

LARGEST_GP3_GIB = 65536
"""https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"""


def kind_problem(name: str, value: object, kind: type, example: str) -> str | None:
    """Return what is wrong with an option that must be a ``kind``, for which ``example`` stands in the message."""
    return None if isinstance(value, kind) else f"{name} is {value!r}: give {example}"


def whole_number_problem(name: str, value: object, *, most: int | None = None) -> str | None:
    """Return what is wrong with an option that is a whole number from 1, to ``most`` if there is a limit."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= (value if most is None else most):
        return None
    if Token.is_unresolved(value):
        return f"{name} is a token, which has no value before the deploy: give a literal number"
    return f"{name} is {value!r}: give a whole number, 1 {'or more' if most is None else f'to {most}'}"


def size_problem(name: str, value: Size | None, *, least: int) -> str | None:
    """Return what is wrong with the size of a gp3 volume of at least ``least`` GiB; None, for a default, is fine."""
    if value is None:
        return None
    if not isinstance(value, Size):
        return f"{name} is {value!r}: give a size such as Size.gibibytes(50)"
    if value.is_unresolved():
        return f"{name} is a token, which has no value before the deploy: give a literal size"
    gibibytes = value.to_gibibytes(rounding=SizeRoundingBehavior.NONE)
    if gibibytes == int(gibibytes) and least <= gibibytes <= LARGEST_GP3_GIB:
        return None
    return f"{name} is {gibibytes:g} GiB: give whole GiB from {least} to {LARGEST_GP3_GIB}"
