"""Frameworks recognise what is awaited, or are refused: they run other callables in threads."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Iterator

import pytest

from kafka_async.kernel.record_appender import RecordAppender

PACKAGES = ("kafka_async", "kafka_async.app", "kafka_async.admin", "kafka_async.testing")
REFUSED_IN_THREADS = {"Producer.enqueue", "Transaction.enqueue"}
"""Methods that return an awaitable and are no coroutine functions, because a coroutine costs more
than appending a record; `tests/producer/test_enqueue.py` calls them in threads."""
CALLED_BY_CONSUMERS = {
    "RebalanceListener.on_assigned",
    "RebalanceListener.on_lost",
    "RebalanceListener.on_revoked",
}
"""Methods that applications override, as plain functions or `async def`."""


def public_methods() -> Iterator[tuple[str, Callable[..., object]]]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            kind = getattr(module, name)
            if inspect.isclass(kind) and not issubclass(kind, asyncio.AbstractEventLoop):
                for method in filter(lambda text: not text.startswith("_"), dir(kind)):
                    found = inspect.getattr_static(kind, method)
                    if callable(found) and not isinstance(found, type):
                        yield f"{name}.{method}", found
            elif inspect.isfunction(kind):
                yield name, kind


METHODS = dict(public_methods())


def returns_awaitable(method: Callable[..., object]) -> bool:
    """Return True if a method that is no coroutine function is annotated to return an awaitable."""
    if getattr(method, "__name__", "") == "enqueue":
        method = RecordAppender.enqueue  # the compiled one has no annotations
    annotation = str(getattr(method, "__annotations__", {}).get("return", ""))
    return annotation.startswith(("Awaitable", "Coroutine", "asyncio.Future", "Future"))


def test_every_public_method_that_is_awaited_is_recognised_or_refused_in_threads() -> None:
    recognised = {name for name, method in METHODS.items() if inspect.iscoroutinefunction(method)}
    assert {"Producer.send", "Consumer.poll", "Admin.create_topics"} <= recognised
    awaited = {name for name, method in METHODS.items() if returns_awaitable(method)}
    assert awaited - recognised == REFUSED_IN_THREADS | CALLED_BY_CONSUMERS


@pytest.mark.parametrize("name", ["Producer.send", "Consumer.commit", "Transaction.send"])
def test_partial_of_an_awaited_method_is_recognised(name: str) -> None:
    assert inspect.iscoroutinefunction(functools.partial(METHODS[name], None))


def test_annotation_of_an_awaitable_is_found() -> None:
    def planted() -> Awaitable[None]:
        raise NotImplementedError

    assert returns_awaitable(planted)
    assert typing.get_type_hints(planted)["return"] == Awaitable[None]
