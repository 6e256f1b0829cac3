"""How CloudFormation invokes the function of a custom resource on AWS: asynchronously.

An invocation that fails then goes where the function's event invoke configuration says, and CloudFormation waits for
the answer all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

Function = Callable[..., Any]


def made_asynchronous(
    invoke_custom_resource: Function, execute: Function, later: Function
) -> tuple[Function, Function]:
    """Return the first two so that inside the first, ``later`` takes the place of the second.

    Args:
        invoke_custom_resource: has a function executed and waits for its answer.
        execute: executes a function and waits for its end; gets the function and the event.
        later: executes a function without waiting; gets the same.
    """
    asked: ContextVar[bool] = ContextVar("asked", default=False)

    def invoke(*arguments: Any, **options: Any) -> Any:
        token = asked.set(True)
        try:
            return invoke_custom_resource(*arguments, **options)
        finally:
            asked.reset(token)

    def execute_or_later(function: Any, event: Any) -> Any:
        if not asked.get():
            return execute(function, event)
        token = asked.set(False)  # what the function itself starts is no longer CloudFormation's
        try:
            return later(function, event)
        finally:
            asked.reset(token)

    return invoke, execute_or_later
