"""Returns records one by one to `async for`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.kernel.shared import copy_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from kafka_async.kernel.values import Record

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class NextRecord:
    """Returns the next record each time it is awaited.

    `records` are the fetched records and `at` is the index of the next one. While `time()` is below
    `until`, they are returned without a coroutine; afterwards, `more()` is awaited.
    """

    __slots__ = ("_more", "_time", "at", "records", "until")

    def __init__(
        self, time: Callable[[], float], more: Callable[[], Coroutine[Any, Any, Record[Any, Any]]]
    ) -> None:
        self._time = time
        self._more = more
        self.records: list[Record[Any, Any]] = []
        self.at = 0
        self.until = float("-inf")

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    def __await__(self) -> Generator[Any, Any, Record[Any, Any]]:
        at = self.at
        if at < len(self.records) and self._time() < self.until:
            self.at = at + 1
            return self.records[at]
        return (yield from self._more().__await__())


class RecordIterator(Generic[K, V]):
    """Iterates asynchronously over the records that a `NextRecord` returns."""

    __slots__ = ("__weakref__", "next_record")

    def __init__(self, next_record: NextRecord) -> None:
        self.next_record = next_record

    def __aiter__(self) -> RecordIterator[K, V]:
        """Return the iterator itself."""
        return self

    def __anext__(self) -> NextRecord:
        """Return the awaitable of the next record."""
        return self.next_record
