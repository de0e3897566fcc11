"""Logging handlers that call blocking clients never wait for the event loop, nor it for them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_async import blocking
from kafka_async.errors import IllegalStateError

WARNING = "gets no records that the client's event loop logs"


async def call() -> int:
    return threading.get_ident()


class Handler(logging.Handler):
    """Calls a function with each record, and keeps the messages of those that were handled."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self.function = function
        self.handled: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.function()
        self.handled.append(record.getMessage())


@pytest.fixture(autouse=True, scope="module")
def _event_loop() -> None:
    """Start the background thread, which outlives each test."""
    blocking.run(call)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("application of a test")
    logger.propagate = False
    yield logger
    logger.handlers.clear()


async def log(logger: logging.Logger) -> None:
    logger.warning("of the event loop")


def test_records_of_the_event_loop_are_refused_with_one_warning(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = Handler(lambda: blocking.run(call))
    logger.addHandler(handler)
    logger.warning("first")
    for _ in range(2):
        blocking.run(log, logger)
    logger.warning("last")
    assert handler.handled == ["first", "last"]
    assert capsys.readouterr().err.count(WARNING) == 1


def test_records_of_the_call_of_a_handler_are_refused(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    def send() -> None:
        blocking.run(call)
        logger.warning("of the call")

    handler = Handler(send)
    logger.addHandler(handler)
    logger.warning("text")
    assert handler.handled == ["text"]
    assert capsys.readouterr().err.count(WARNING) == 1


def test_other_handlers_get_the_records_of_the_event_loop(logger: logging.Logger) -> None:
    other = Handler(lambda: None)
    logger.addHandler(Handler(lambda: blocking.run(call)))
    logger.addHandler(other)
    logger.warning("first")
    blocking.run(log, logger)
    assert other.handled == ["first", "of the event loop"]


def test_first_call_raises_if_the_event_loop_waits_for_the_handler(logger: logging.Logger) -> None:
    thread = blocking.run(call)
    loop = blocking.run(running_loop)

    def send() -> None:
        loop.call_soon_threadsafe(logger.warning, "of the event loop")
        while not waits_in_logging(thread):
            pass
        blocking.run(call)

    handler = Handler(send)
    logger.addHandler(handler)
    with pytest.raises(IllegalStateError, match="this record is not sent; the next ones are"):
        logger.warning("first")
    handler.function = lambda: blocking.run(call)
    logger.warning("second")
    assert handler.handled[-1] == "second"


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def waits_in_logging(thread: int) -> bool:
    module: Any = sys
    frame = module._current_frames()[thread]
    code = frame.f_code
    return code.co_filename == logging.__file__ and code.co_name in ("acquire", "handle")
