"""Interceptors of a consumer: they may change or drop records, and see commits (KIP-42)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kafka_async.foundation.arguments import check_interceptors
from kafka_async.kernel import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.types import OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerInterceptor", "ConsumerInterceptors"]

logger = logging.getLogger("kafka_async.consumer")


class ConsumerInterceptor(Protocol):
    """Changes or drops records before the application receives them, and receives commits.

    A subclass implements one method or both, as plain methods. They are called in the consumer's
    event loop and must not block. An exception that one raises is logged and has no other effect.
    """

    def on_records(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        """Return the records for the application: the same, changed ones, or fewer.

        Topic, partition and offset of a record must not change. Records that are left out count as
        processed. `async for` passes one record at a time; `poll_batches` passes none.

        Args:
            records: Records after deserialization, as the interceptor before has returned them.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle committed offsets, whether committed by a call or automatically.

        Args:
            offsets: The offsets of the next records to read.
        """


class ConsumerInterceptors:
    """Calls the interceptors of a consumer, in order."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._on_records = [each.on_records for each in interceptors]
        self._on_commit = [each.on_commit for each in interceptors]

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> Self | None:
        """Return the interceptors, or None; raise for an unsuitable one."""
        check_interceptors(config.interceptors, "ConsumerInterceptor", ("on_records", "on_commit"))
        return cls(config.interceptors) if config.interceptors else None

    def on_records(self, records: list[AnyRecord]) -> list[AnyRecord]:
        """Return the records for the application; an interceptor that fails changes none."""
        # As in Java, an interceptor that fails is skipped: it must not stop the application.
        for call in self._on_records:
            try:
                returned: list[Any] = list(call(records))
            except Exception:
                logger.exception("an interceptor raised: %d records are kept", len(records))
                continue
            # More records, or other objects, could not be committed.
            if len(returned) <= len(records) and all(isinstance(each, Record) for each in returned):
                records = returned
            else:
                logger.error(
                    "an interceptor returned other objects than records, or more than it got: "
                    "%d records are kept",
                    len(records),
                )
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report offsets that were committed."""
        for call in self._on_commit:
            try:
                call(offsets)
            except Exception:
                logger.exception("an interceptor raised in on_commit")
