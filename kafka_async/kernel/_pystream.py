"""What an `async for` over records awaits, in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.kernel._shared import uncopied

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from kafka_async.kernel._pyvalues import Record

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class NextRecord:
    """Await it, again and again, for the next record.

    `records` are those at hand, `at` is the place among them of the one to give next. They are
    given at once while `time()` is below `until`; else what `more()` gives is awaited.
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
        raise uncopied(self)

    def __await__(self) -> Generator[Any, Any, Record[Any, Any]]:
        at = self.at
        if at < len(self.records) and self._time() < self.until:
            self.at = at + 1
            return self.records[at]
        return (yield from self._more().__await__())


class RecordIterator(Generic[K, V]):
    """An asynchronous iterator of the records that a `NextRecord` gives."""

    __slots__ = ("__weakref__", "next_record")

    def __init__(self, next_record: NextRecord) -> None:
        self.next_record = next_record

    def __aiter__(self) -> RecordIterator[K, V]:
        """Itself."""
        return self

    def __anext__(self) -> NextRecord:
        """What to await for the next record."""
        return self.next_record
