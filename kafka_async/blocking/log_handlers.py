"""Prevents deadlocks of logging handlers that call blocking clients.

A handler runs under its lock. If it waits for the background event loop, and the event loop logs a
record, each waits for the other. So a handler that has called a blocking client gets no records of
the event loop, and no records that such a call logs.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

from kafka_async.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


class _OtherThreads(logging.Filter):
    """Refuses records that would make a handler wait for itself; warns once.

    A handler calls its filters before it waits for its lock.
    """

    def __init__(self, handler: logging.Handler, event_loop_thread: Callable[[], int]) -> None:
        super().__init__()
        self._handler = handler
        self._event_loop_thread = event_loop_thread
        self._warned = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for records of the event loop and of the handler's own calls."""
        own = threading.get_ident() == self._event_loop_thread() or _is_held(self._handler)
        if own and not self._warned:
            self._warned = True
            if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]  # pythonw
                sys.stderr.write(
                    f"The logging handler {self._handler!r} calls a blocking client of "
                    "kafka_async, so it gets no records that the client's event loop logs, such "
                    f"as this one of {record.name}: {record.getMessage()}. Attach the handler to "
                    "the loggers of the application, and another one to the root logger.\n"
                )
        return not own


def refuse_records_of_event_loop(event_loop_thread: Callable[[], int]) -> None:
    """Refuse records of the event loop in the handlers that have called the caller.

    Args:
        event_loop_thread: Returns the id of the event loop's thread.

    Raises:
        IllegalStateError: The event loop already waits for the caller's handler, which can happen
            only at a handler's first call.
    """
    for handler in _handlers_of_caller():
        if any(isinstance(each, _OtherThreads) for each in handler.filters):
            continue
        handler.addFilter(_OtherThreads(handler, event_loop_thread))
        thread = event_loop_thread()
        if thread != threading.get_ident() and _runs_in(handler, thread):
            raise IllegalStateError(
                "a logging handler calls a blocking client while the client's event loop waits for "
                "the handler: this record is not sent; the next ones are"
            )


def _handlers_of_caller() -> Iterator[logging.Handler]:
    # A private name; the alternative, a walk through the stack at each call, is slow.
    module: Any = logging
    references: list[Callable[[], logging.Handler | None]] = module._handlerList  # noqa: SLF001
    for reference in tuple(references):
        handler = reference()
        if handler is not None and _is_held(handler):
            yield handler


def _is_held(handler: Any) -> bool:
    """Return True if the current thread holds the lock of a handler."""
    is_owned: Callable[[], bool] | None = getattr(handler.lock, "_is_owned", None)
    return is_owned is not None and is_owned()


def _runs_in(handler: logging.Handler, thread: int) -> bool:
    """Return True if a thread has called a handler."""
    module: Any = sys
    frame: FrameType | None = module._current_frames().get(thread)  # noqa: SLF001
    while frame is not None:
        code = frame.f_code
        if code.co_filename == logging.__file__ and frame.f_locals.get("self") is handler:
            return True
        frame = frame.f_back
    return False
