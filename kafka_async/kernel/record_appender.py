"""Appends records to the open batches of their topics: the fast path of a producer."""

from __future__ import annotations

from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.kernel.shared import copy_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    from kafka_async.kernel.open_batch import TopicOpenBatches
    from kafka_async.kernel.values import Delivery
    from kafka_async.types import Headers

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class RecordAppender(Generic[K, V]):
    """Appends records to the open batches of their topics: the fast path of a producer.

    `enqueue` takes the fast path while `_now()` is below `_fast_until`, and `enqueue_nowait` while
    it is below `_nowait_until`; a record without a timestamp gets `_default_timestamp`. The slow
    path is the subclass's `_enqueue` and `_enqueue_nowait`. In any thread but the one that called
    `_set_clock`, the subclass's `_check_thread` is called first. Each call reads the clock; in the
    compiled kernel, one reading of `time.monotonic` may serve 16 calls within one tick of the
    system's timer.
    """

    _now: Callable[[], float]
    _default_timestamp: int = 0
    _fast_until: float = -inf
    _nowait_until: float = -inf

    def _set_clock(self, now: Callable[[], float]) -> None:
        """Set the clock, a function that returns seconds, and the thread."""
        self._now = now
        self._thread = get_ident()
        self._open: dict[str, TopicOpenBatches] = {}

    def _disable_fast_path(self) -> None:
        """Disable the fast path until `_fast_until` or `_nowait_until` is set again."""
        self._fast_until = self._nowait_until = -inf

    def _add_topic(self, topic: str, batches: TopicOpenBatches) -> None:
        """Append records of the topic to these open batches from now on."""
        self._open[topic] = batches

    def _batches(self, topic: str) -> TopicOpenBatches | None:
        """Return the open batches of a topic, or None if the topic was not added."""
        return self._open.get(topic)

    def enqueue(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Awaitable[Delivery]:
        """Append a record to its batch; wait up to max_block_ms while buffer_memory is full.

        Await the call at once: it appends when it is awaited, and a call that is never awaited
        appends nothing and warns (RuntimeWarning). It is an awaitable, not a coroutine: for a task
        use `asyncio.ensure_future(producer.enqueue(...))`. Called in a loop, it yields to the event
        loop about once per millisecond, so that batches are sent. If it is cancelled while it waits
        or yields, nothing is appended.

        Args:
            topic: Topic name.
            value: Bytes, or the object that `value_serializer` takes. None is a tombstone.
            key: Bytes, or the object that `key_serializer` takes.
            partition: Partition number; by default the key's partition, or without a key, a
                partition that changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: (name, value) pairs; a value is bytes or None.

        Returns:
            A handle: await it for the `RecordMetadata`. It may be dropped: `flush()` raises the
            failures of records that nothing awaited.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError: An argument has the wrong type.
            ValueError: The partition or the timestamp is out of range, or the topic is empty.
            ClientClosedError: The producer was stopped.
            IllegalStateError: The producer was not started, or it is transactional and records go
                through a transaction.
        """
        if get_ident() != self._thread:
            self._check_thread("enqueue")
        return EnqueueCall(
            self._append_or_wait(topic, value, key, partition, timestamp, headers),
        )

    def enqueue_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Append a record to its batch without waiting.

        Takes the arguments of `enqueue` and returns the same handle. It never yields to the event
        loop: no batch is sent until the caller awaits something else.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError, ValueError, ClientClosedError, IllegalStateError: As for `enqueue`.
        """
        if get_ident() != self._thread:
            self._check_thread("enqueue_nowait")
        if self._now() < self._nowait_until:
            delivery = self._append_now(topic, value, key, partition, timestamp, headers)
            if delivery is not None:
                return delivery
        return self._enqueue_nowait(topic, value, key, headers, partition, timestamp)

    async def _append_or_wait(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> Delivery:
        now = self._now
        if now() < self._fast_until:
            delivery = self._append_now(topic, value, key, partition, timestamp, headers)
            if delivery is not None:
                return delivery
        return await self._enqueue(topic, value, key, headers, partition, timestamp)

    _append_or_wait.__qualname__ = "RecordAppender.enqueue"  # for the not-awaited warning

    def _append_now(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> Delivery | None:
        """Return the record's handle, or None if the slow path must append it or raise."""
        raw_key: Any = key  # bytes: with serializers, the fast path is disabled
        raw: Any = value
        stamp = self._default_timestamp if timestamp is None else timestamp
        try:
            batches = self._open.get(topic)
            if batches is not None:
                return batches.append(stamp, raw_key, raw, headers, partition)
        except Exception:  # noqa: BLE001  # the slow path raises a more precise error
            pass
        return None

    def _check_thread(self, call: str) -> None:
        """Raise if a call is not allowed in this thread."""
        raise NotImplementedError

    async def _enqueue(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Delivery:
        """Append a record on the slow path; yield if one is due, and wait while memory is full."""
        raise NotImplementedError

    def _enqueue_nowait(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Delivery:
        """Append a record on the slow path without waiting."""
        raise NotImplementedError


class EnqueueCall:
    """Appends a record when it is awaited, and returns its handle."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Delivery]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Delivery]:
        return self._coroutine.__await__()

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)
