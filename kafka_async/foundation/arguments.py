"""Checks the arguments of public calls, and the functions that applications pass.

A bad argument raises TypeError (wrong type) or ValueError (wrong value). The message includes the
argument, its value and the expected one. Public calls check before they do anything else. Pure.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
import types
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition, check_topic

V = TypeVar("V")

MAX_INT16: Final = (1 << 15) - 1
MAX_INT32: Final = (1 << 31) - 1
MAX_OFFSET: Final = (1 << 63) - 1
MAX_EPOCH_SECONDS: Final = 100_000_000_000
"""Seconds since the epoch (the year 5138) from which a time is assumed to be milliseconds."""
PLAIN_FUNCTION: Final = "define it with `def`; it may start a task for what has to wait"
"""Advice of messages about async functions."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def check_timeout(
    timeout: object,
    name: str = "timeout",
    *,
    unlimited: str = "the default",
    may_have_passed: bool = False,
) -> float | None:
    """Return seconds, 0 or more, or None, which stands for `unlimited`; raise for anything else.

    A time until a deadline that `may_have_passed` may be negative: the call times out at once.
    """
    if timeout is None:
        return None
    limit = real_number(timeout)
    if limit is None:
        hint = ": call its total_seconds()" if isinstance(timeout, timedelta) else ""
        raise TypeError(f"{name} is seconds as int or float, not {_shown(timeout)}{hint}")
    if not (limit >= 0 or (may_have_passed and limit < 0)):
        raise ValueError(f"{name} is 0 seconds or more, or None for {unlimited}, not {timeout}")
    return limit


def check_duration(duration: object, name: str) -> float:
    """Return seconds, 0 or more; raise for anything else, None included."""
    limit = None if duration is None else check_timeout(duration, name)
    if limit is None:
        raise TypeError(f"{name} is seconds as int or float, not None")
    return limit


def real_number(value: object) -> float | None:
    """Return a number as a float, or None for any other object.

    A number is an int, a float, or an object with `__index__`, such as numpy's integers. Anything
    else would be a guess: a bool is a mistake, and a Decimal or a timedelta may have another unit.
    """
    if type(value) is float:
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return float(operator.index(cast("Any", value)))
    except TypeError:
        return None  # numpy's bool and timedelta64 have an `__index__` that refuses
    except OverflowError:
        return math.inf if operator.index(cast("Any", value)) > 0 else -math.inf


def whole_number(value: object, name: str, *, low: int, high: int = MAX_OFFSET) -> int:
    """Return an int; raise for another type or a value out of range."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be int, not {_shown(value)}")
    try:
        number = operator.index(cast("Any", value))
    except TypeError:
        raise TypeError(f"{name} must be int, not {_shown(value)}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} must be {low} to {high}, not {number}")
    return number


def instance_of(value: object, kind: type[V], name: str) -> V:
    """Return the value; raise unless it is of the class `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {kind.__name__}, not {_shown(value)}")
    return value


def function(value: V, name: str = "callback") -> V:
    """Return a function or another callable; raise for anything else."""
    if not callable(value):
        raise TypeError(f"{name} must be callable, not {_shown(value)}")
    return value


def text(value: object, name: str) -> str:
    """Return a str that is not empty; raise for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {_shown(value)}")
    if not value:
        raise ValueError(f"{name} must not be empty")
    return value


def texts(values: object, name: str) -> list[str]:
    """Return a list of str; raise for a single str, which is iterable too, and for other types."""
    if isinstance(values, str):
        raise TypeError(f"{name} must be a list of names: write [{values!r:.60}]")
    names = list(iterable(values, name))
    if all(names) and set(map(type, names)) <= {str}:
        return cast("list[str]", names)  # saves a call per name
    return [text(value, f"each of {name}") for value in names]


def topic_names(topics: object, name: str = "topics") -> frozenset[str]:
    """Return the names of topics; raise for a single str and for other types."""
    if isinstance(topics, re.Pattern):
        raise TypeError(f"{name} are names, not a pattern: call subscribe(pattern=...)")
    return frozenset(texts(topics, name))


def topic_partition(value: object, name: str = "partition") -> TopicPartition:
    """Return a TopicPartition; a (topic, partition) tuple is converted."""
    if (
        type(value) is TopicPartition
        and type(value.topic) is str
        and value.topic
        and type(value.partition) is int
        and 0 <= value.partition <= MAX_INT32
    ):
        return value  # a fast path: `send_batch` checks one per batch
    parts = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    if len(parts) != 2:
        shown = _shown(cast("object", value))
        raise TypeError(
            f'{name} must be a TopicPartition, as TopicPartition("orders", 0), not {shown}'
        )
    topic, partition = parts
    check_topic(topic)
    number = whole_number(partition, f"the partition of {topic}", low=0, high=MAX_INT32)
    if isinstance(value, TopicPartition) and type(partition) is int:
        return value
    return TopicPartition(cast("str", topic), number)


def topic_partitions(values: object, name: str = "partitions") -> list[TopicPartition]:
    """Return a list of partitions; a single partition is accepted."""
    if isinstance(values, TopicPartition):
        return [topic_partition(values, name)]
    if isinstance(values, str):
        raise TypeError(
            f"{name} are TopicPartitions, not {values!r:.60}: topics are subscribed to, by topics= "
            "or subscribe()"
        )
    return [topic_partition(value, f"each of {name}") for value in iterable(values, name)]


def mapping(value: object, name: str) -> Mapping[object, object]:
    """Return the mapping; raise for another type."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dict or another mapping, not {_shown(value)}")
    return cast("Mapping[object, object]", value)


def by_partition(
    values: object, name: str, convert: Callable[[object, str], V]
) -> dict[TopicPartition, V]:
    """Return a dict by partition with the result of `convert(value, name)` for each value."""
    checked: dict[TopicPartition, V] = {}
    for key, value in mapping(values, name).items():
        partition = topic_partition(key, f"each key of {name}")
        checked[partition] = convert(value, f"{name}[{partition}]")
    return checked


def offset_and_metadata(value: object, name: str) -> OffsetAndMetadata:
    """Return an offset with its metadata; an int is converted."""
    if not isinstance(value, OffsetAndMetadata):
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be int or OffsetAndMetadata, not {_shown(value)}")
        return OffsetAndMetadata(whole_number(value, name, low=0))
    whole_number(value.offset, f"the offset of {name}", low=0)
    if value.leader_epoch is not None:
        whole_number(value.leader_epoch, f"the leader epoch of {name}", low=-1, high=MAX_INT32)
    instance_of(value.metadata, str, f"the metadata of {name}")
    return value


def milliseconds(when: object, name: str = "when") -> int:
    """Return the milliseconds since the epoch of a time in seconds or of a datetime.

    Parts of a millisecond are rounded up, so that no record before the time is at or after the
    result. A datetime without a time zone is local time, as everywhere in Python.
    """
    if isinstance(when, datetime):
        return _datetime_ms(when, name)
    number = real_number(when)
    if number is None:
        raise TypeError(f"{name} is seconds since the epoch or a datetime, not {_shown(when)}")
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} is seconds since the epoch, 0 or more, not {when}")
    if number >= MAX_EPOCH_SECONDS:
        raise ValueError(
            f"{name} is seconds since the epoch, and {when} looks like milliseconds: "
            "divide it by 1000"
        )
    # A rounding error of the float must not move a whole millisecond to the next one.
    return max(0, math.ceil(number * 1000 - 2048 * math.ulp(number)))


def _datetime_ms(when: datetime, name: str) -> int:
    try:
        since_epoch = when.astimezone(UTC) - _EPOCH
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"{name} is not a time that this system can convert: {when}") from None
    if since_epoch < timedelta(0):
        raise ValueError(f"{name} is a time since 1970, not {when}")
    return -(-since_epoch // _MILLISECOND)


def group_metadata(group: object) -> GroupMetadata:
    """Return a group's metadata; a group id is converted."""
    if isinstance(group, GroupMetadata):
        return group
    if group is None:
        raise TypeError("explicit offsets need group=, the group's metadata or its id")
    return GroupMetadata(text(group, "group"))


def iterable(values: object, name: str) -> Iterable[object]:
    """Return the iterable; raise for bytes, which are iterable too, and for other types."""
    if isinstance(values, bytes | bytearray) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list or another iterable, not {_shown(values)}")
    return cast("Iterable[object]", values)


# --- Functions and objects of applications that a client calls ------------------------------------


def is_async(value: object) -> bool:
    """Return True if a callable is an async function or generator, by its definition."""
    while isinstance(value, functools.partial):
        value = value.func
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        return True
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return False  # Skips the check of `__call__`, since each delivery's callback is checked.
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
    """Return what an application's function returned; raise TypeError unless it can be awaited.

    Args:
        result: What the function returned.
        function: The function, for the message.
        name: Name of the parameter that takes the function, for the message.
    """
    if inspect.isawaitable(result):
        return result
    raise TypeError(
        f"{name} must be `async def`: {function!r:.60} returned {type(result).__name__}"
    )


def check_interceptors(interceptors: Sequence[object], base: str, methods: Sequence[str]) -> None:
    """Raise InvalidConfigurationError for an interceptor without one of the methods, or async."""
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


# --- Packages that are not installed --------------------------------------------------------------


def missing_extra(purpose: str, extra: str) -> str:
    """Return the message that `purpose` needs an extra, and the command that installs it.

    The command is that of a checkout: on the package index the name belongs to another project.
    """
    return (
        f"{purpose} needs the extra {extra}: pip install '.[{extra}]' in a checkout of kafka_async"
    )


def _shown(value: object) -> str:
    return f"{type(value).__name__}: {value!r:.60}"
