"""Records that cannot be deserialized, for `Consumer.process` and `partition_streams`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from kafka_async.errors import RecordDeserializationError
from kafka_async.foundation.arguments import awaitable_result

if TYPE_CHECKING:
    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord

OnUndecodable: TypeAlias = (
    Literal["raise", "skip"] | Callable[[RecordDeserializationError], Awaitable[object]]
)
logger = logging.getLogger("kafka_async.consumer")


class UndecodableRecords:
    """Applies the argument `on_undecodable`.

    Args:
        on_undecodable: "raise", "skip", or the application's function.
        pass_record: Moves the position past a record whose error a poll has just raised.
        on_passed: Called when a record is skipped or passed to the function.
    """

    def __init__(
        self,
        on_undecodable: OnUndecodable,
        pass_record: Callable[[AnyRecord], None],
        on_passed: Callable[[], None],
    ) -> None:
        self._on_undecodable = on_undecodable
        self._pass_record = pass_record
        self._on_passed = on_passed

    def skip(self, error: RecordDeserializationError) -> bool:
        """Skip the record of an error, with a warning; return False if it is not to be skipped."""
        if self._on_undecodable != "skip":
            return False
        self._pass(error)
        self._on_passed()
        place = error.topic, error.partition, error.offset
        logger.warning("%s-%s at offset %s is skipped: %r", *place, error.__cause__)
        return True

    def take(self, error: RecordDeserializationError) -> AnyRecord | None:
        """Take the raw record of an error for the application's function, or return None."""
        if not callable(self._on_undecodable):
            return None
        return self._pass(error)

    def _pass(self, error: RecordDeserializationError) -> AnyRecord:
        record = cast("AnyRecord", error.record)
        self._pass_record(record)
        return record

    async def handle(self, error: RecordDeserializationError) -> None:
        """Call the application's function."""
        assert callable(self._on_undecodable)
        self._on_passed()
        result = self._on_undecodable(error)
        await awaitable_result(result, self._on_undecodable, "on_undecodable")
