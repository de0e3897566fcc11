"""Turns serializers and deserializers into functions of (topic, headers, data).

A function's form is determined once, when a client is constructed. A function with three required
positional parameters takes (topic, headers, value). Any other function, including one without a
readable signature such as `int`, takes the value alone and is not called for null.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from kafka_async.config.spelling import option_error
from kafka_async.foundation.arguments import is_async
from kafka_async.types import Headers

Serialize = Callable[[str, Headers, Any], "bytes | None"]
Deserialize = Callable[[str, Headers, "bytes | None"], Any]
AnyFunction = Callable[..., Any]

_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_BYTES: Final = (bytes, bytearray, memoryview)


def serializer(option: str, given: object) -> Serialize | None:
    """Return an option's serializer as a function of three arguments, or None if it is not set.

    Raise InvalidConfigurationError if `given` is not a function, is async, or takes other
    arguments.
    """
    if given is None:
        return None
    function = _function(option, given, "serialize", "value")
    wanted = (
        f"{option} must return bytes, str or None, as f(value) or f(topic, headers, value) does"
    )

    def encoded(data: object) -> bytes | None:
        if isinstance(data, str):
            return data.encode()
        if data is None or isinstance(data, _BYTES):
            return cast("bytes | None", data)
        if inspect.iscoroutine(data):
            cast("Coroutine[Any, Any, Any]", data).close()  # avoids the warning: never awaited
        raise TypeError(f"{wanted}, not {type(data).__name__}")

    def of_one(topic: str, headers: Headers, value: Any) -> bytes | None:
        if value is None:
            return None
        data = function(value)
        return data if type(data) is bytes else encoded(data)

    def of_three(topic: str, headers: Headers, value: Any) -> bytes | None:
        data = function(topic, headers, value)
        return data if type(data) is bytes else encoded(data)

    return of_three if takes_topic_and_headers(function) else of_one


def deserializer(option: str, given: object) -> Deserialize | None:
    """Return an option's deserializer as a function of three arguments; see `serializer`."""
    if given is None:
        return None
    function = _function(option, given, "deserialize", "data")
    if takes_topic_and_headers(function):
        return function

    def of_one(topic: str, headers: Headers, data: bytes | None) -> Any:
        return None if data is None else function(data)

    return of_one


def takes_topic_and_headers(function: AnyFunction) -> bool:
    """Return True if a function has exactly three required positional parameters."""
    signature = _signature(function)
    return signature is not None and len(_required(signature)) == 3


def _function(option: str, given: object, role: str, argument: str) -> AnyFunction:
    """Check and return the function of an option: `given`, or its method `role`."""
    found = getattr(given, role, given)
    wanted = f"a function ({argument}) or (topic, headers, {argument}), or an object of serde"
    if isinstance(given, type) and found is not given:
        raise option_error(option, f": {given.__name__} is a class: make an object")
    if not callable(found):
        raise option_error(option, f" must be {wanted}, not {found!r:.60}")
    if is_async(found):
        raise option_error(
            option,
            f" is async, and records are converted without waiting: give {wanted}; await what it "
            "needs beforehand",
        )
    signature = _signature(found)
    if signature is not None and len(_required(signature)) != 3:
        try:
            signature.bind(None)
        except TypeError:
            raise option_error(option, f" takes {signature}: give {wanted}") from None
    return found


def _required(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in _POSITIONAL and parameter.default is parameter.empty
    ]


def _signature(function: AnyFunction) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
