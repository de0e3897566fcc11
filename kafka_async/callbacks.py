"""Checks callbacks and objects that an application passes to a client. Pure."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from kafka_async.errors import InvalidConfigurationError

V = TypeVar("V")

__all__ = ["PLAIN_FUNCTION", "awaitable_result", "check_interceptors", "is_async", "plain_function"]

PLAIN_FUNCTION: Final = "define it with `def`; it may start a task for what has to wait"
"""Advice in messages about async functions."""


def is_async(value: object) -> bool:
    """Return True if a callable is an async function or generator, by its definition."""
    while isinstance(value, functools.partial):
        value = value.func
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        return True
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return False  # a fast path, since each delivery's callback is checked
    call = getattr(value, "__call__", None)  # noqa: B004  # the method of a callable object
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def plain_function(value: V, name: str) -> V:
    """Return a callable that is not async; raise TypeError for anything else."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {type(value).__name__}: {value!r:.60}")
    if is_async(value):
        raise TypeError(f"{name} is async, and is called without waiting: {PLAIN_FUNCTION}")
    return value


def awaitable_result(
    result: object, function: Callable[..., object], name: str
) -> Awaitable[object]:
    """Return the result of an application's function; raise TypeError unless it is awaitable.

    Args:
        result: The function's return value.
        function: The function, for the message.
        name: Name of the function's parameter, for the message.
    """
    if inspect.isawaitable(result):
        return result
    raise TypeError(
        f"{name} must be `async def`: {function!r:.60} returned {type(result).__name__}"
    )


def check_interceptors(interceptors: Sequence[object], base: str, methods: Sequence[str]) -> None:
    """Raise InvalidConfigurationError if an interceptor lacks a method or has an async one."""
    for each in interceptors:
        for name in methods:
            method = getattr(each, name, None)
            if isinstance(each, type) or not callable(method):
                raise InvalidConfigurationError(
                    f"interceptors has {each!r:.100}, which has no method {name}: pass objects of "
                    f"classes derived from {base}"
                )
            if is_async(method):
                raise InvalidConfigurationError(
                    f"interceptors has {each!r:.100}, whose method {name} is async, and is called "
                    f"without waiting: {PLAIN_FUNCTION}"
                )
