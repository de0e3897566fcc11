"""Interceptors of a producer: they may change records, and receive the outcome of each (KIP-42)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kafka_async.foundation.arguments import check_interceptors
from kafka_async.producer.buffer.outcome import BatchOutcome
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from kafka_async.config import ProducerConfig
    from kafka_async.kernel import Delivery
    from kafka_async.types import RecordMetadata

__all__ = ["ProducerInterceptor", "ProducerInterceptors"]

logger = logging.getLogger("kafka_async.producer")


class ProducerInterceptor(Protocol):
    """Changes records before they are sent, and receives the outcome of each.

    A subclass implements one method or both, as plain methods. They are called in the producer's
    event loop and must not block. An exception that one raises is logged and has no other effect.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: the same, or a changed copy (`dataclasses.replace`).

        It is called before the serializers, with the arguments of the call that sends the record.

        Args:
            record: The record, as the interceptor before has returned it.
        """
        return record

    def on_acknowledgement(
        self,
        record: ProducerRecord,
        metadata: RecordMetadata | None,
        error: BaseException | None,
    ) -> None:
        """Handle the outcome of a record, which was acknowledged or has failed.

        Args:
            record: The record, as the last interceptor has returned it.
            metadata: Partition and offset of the record; None if it failed.
            error: The error with which it failed; None if it was acknowledged.
        """


class ProducerInterceptors:
    """Calls the interceptors of a producer, in order."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._on_send = [each.on_send for each in interceptors]
        self._on_acknowledgement = [each.on_acknowledgement for each in interceptors]

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Self | None:
        """Return the interceptors, or None; raise for an unsuitable one."""
        check_interceptors(
            config.interceptors, "ProducerInterceptor", ("on_send", "on_acknowledgement")
        )
        return cls(config.interceptors) if config.interceptors else None

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send; an interceptor that fails does not change it."""
        # As in Java, an interceptor that fails is skipped: it must not stop the application.
        for call in self._on_send:
            try:
                changed: Any = call(record)
            except Exception:
                logger.exception("an interceptor raised: the record to %s is kept", record.topic)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                kind: str = type(changed).__name__
                logger.error(
                    "an interceptor returned %s in place of a ProducerRecord: the record to %s is "
                    "kept",
                    kind,
                    record.topic,
                )
        return record

    def watch(self, record: ProducerRecord, delivery: Delivery) -> None:
        """Report the outcome of an appended record once it is known."""
        delivery.add_done_callback(lambda done: self._report(record, done))

    def _report(self, record: ProducerRecord, delivery: Delivery) -> None:
        outcome = delivery.outcome
        assert isinstance(outcome, BatchOutcome)
        # Not `delivery.exception()`, which marks the failure as reported to the application.
        error = outcome.find(delivery.index)[0].error
        if error is None:
            self._call(record, delivery.result(), None)
        else:
            self.on_failure(record, error)

    def on_failure(self, record: ProducerRecord, error: BaseException) -> None:
        """Report a record that has failed."""
        self._call(record, None, error)

    def _call(
        self, record: ProducerRecord, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        for call in self._on_acknowledgement:
            _call_safely(call, record, metadata, error)


def _call_safely(function: Callable[..., object], *arguments: object) -> None:
    try:
        function(*arguments)
    except Exception:
        logger.exception("an interceptor raised in on_acknowledgement")
