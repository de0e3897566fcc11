"""The calls that take records: what a producer and a transaction have in common.

`enqueue` and `enqueue_nowait` are the hot path: the kernel's `RecordAppender` appends a record
whose partition has an open batch. Everything else goes the long way, through `_enqueue` and
`_enqueue_nowait`: opening and closing batches, waiting for memory, serializers, partitioners, and
yielding to the event loop, which happens before a record is appended, so that a caller who is
cancelled there knows that it was not.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Never, NoReturn

from typing_extensions import TypeVar

from kafka_async.arguments import instance_of, iterable, topic_partition
from kafka_async.clock import time_function
from kafka_async.config import seconds
from kafka_async.errors import (
    BufferFullError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    SerializationError,
)
from kafka_async.foreign_names import unknown_keyword
from kafka_async.kernel import RecordAppender
from kafka_async.producer.accumulator import Shortage
from kafka_async.producer.validation import (
    SECONDS,
    check_partition,
    check_record,
    check_timestamp,
    check_values,
    located,
)
from kafka_async.records.batch import RecordBatch
from kafka_async.serde.functions import serializer
from kafka_async.types import ProducerRecord, check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafka_async.clock import Clock
    from kafka_async.config import ProducerConfig
    from kafka_async.kernel import Delivery
    from kafka_async.producer.accumulator import Accumulator
    from kafka_async.producer.sender import Sender
    from kafka_async.serde.functions import Serialize
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import Headers, RecordMetadata, TopicPartition

__all__ = ["Engine", "RecordWriter", "Serializers"]

logger = logging.getLogger("kafka_async.producer")

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

TURN: Final = 0.001
"""Seconds after which a caller that enqueues in a loop gives up the event loop once."""
RUN: Final = 1_000
"""Most records that are appended without a look at the clock."""
SHUT: Final = float("-inf")


class Serializers(NamedTuple):
    """A producer's serializers, in the form of three arguments."""

    key: Serialize | None
    value: Serialize | None

    @classmethod
    def of(cls, config: ProducerConfig) -> Serializers:
        """Decide the form of each; raises InvalidConfigurationError for anything else."""
        return cls(
            serializer("key_serializer", config.key_serializer),
            serializer("value_serializer", config.value_serializer),
        )


class Engine:
    """The parts of a started producer, as those who append need them."""

    def __init__(
        self,
        config: ProducerConfig,
        serializers: Serializers,
        accumulator: Accumulator,
        sender: Sender,
        supervisor: Supervisor,
        clock: Clock,
    ) -> None:
        self.config = config
        self.serializers = serializers
        self.accumulator = accumulator
        self.sender = sender
        self.supervisor = supervisor
        self.clock = clock
        self.now = time_function(supervisor.loop)
        self.plain = (
            serializers.key is None and serializers.value is None and config.partitioner is None
        )
        self.max_block = seconds(config.max_block_ms)


class RecordWriter(RecordAppender[K, V], Generic[K, V]):
    """Takes records. Subclasses say when (`_check_writable`) and what their errors leave as."""

    def __init__(self) -> None:
        self._set_clock(_never)
        self._disable_fast_path()
        self._pause_at = SHUT
        self._turn = 0
        self._engine: Engine | None = None
        self._warned_of_seconds = False

    # -- one record -------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        **unknown: Never,
    ) -> RecordMetadata:
        """Append a record and wait until it is acknowledged.

        Cancelling this call after the record was appended does not withdraw it. Raises what
        `enqueue` raises, and the broker's error if the record could not be delivered.
        """
        if unknown:
            raise unknown_keyword(self.send, unknown)
        return await (await self.enqueue(topic, value, key, partition, timestamp, headers))

    # -- many records -----------------------------------------------------------------------------

    async def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None = None,
        *,
        partition: int | None = None,
        **unknown: Never,
    ) -> list[Delivery]:
        """Append many records; a handle for each. If it raises, those before are appended."""
        if unknown:
            raise unknown_keyword(self.send_many, unknown)
        check_values(values, "values")
        if keys is not None:
            check_values(keys, "keys")
            if len(keys) != len(values):
                raise ValueError(f"{len(keys)} keys for {len(values)} values: give one key a value")
        deliveries: list[Delivery] = []
        while (at := len(deliveries)) < len(values):
            some = slice(at, at + RUN)
            deliveries += self._append_run(
                topic, values[some], None if keys is None else keys[some], partition
            )
            if len(deliveries) == at:
                key = None if keys is None else keys[at]
                try:
                    deliveries.append(await self.enqueue(topic, values[at], key, partition))
                except (TypeError, ValueError, KafkaError) as error:
                    raise located(error, f"values[{at}]") from error.__cause__
        return deliveries

    async def send_records(
        self, records: Iterable[ProducerRecord], **unknown: Never
    ) -> list[Delivery]:
        """Append records of any topics; a handle for each. Those before an error are appended."""
        if unknown:
            raise unknown_keyword(self.send_records, unknown)
        enqueue: Any = self.enqueue  # keys and values are what the serializers take
        deliveries: list[Delivery] = []
        for at, item in enumerate(iterable(records, "records")):
            try:
                record = instance_of(item, ProducerRecord, "it")
                delivery = await enqueue(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    record.timestamp,
                    record.headers,
                )
            except (TypeError, ValueError, KafkaError) as error:
                raise located(error, f"records[{at}]") from error.__cause__
            deliveries.append(delivery)
        return deliveries

    async def send_batch(
        self, partition: TopicPartition, batch: RecordBatch, **unknown: Never
    ) -> Delivery:
        """Append a ready-made batch, behind what its partition has; the handle of its first record.

        Waits only while the buffer is full. Raises what `enqueue` raises.
        """
        if unknown:
            raise unknown_keyword(self.send_batch, unknown)
        try:
            engine = self._check()
            partition = topic_partition(partition)
            arguments = (partition, instance_of(batch, RecordBatch, "batch"))
            return await self._append(engine, engine.accumulator.append_batch, arguments)
        except KafkaError as error:
            self._raise(error)

    # -- the long way -----------------------------------------------------------------------------

    async def _enqueue(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Delivery:
        try:
            engine = self._check()
            arguments = self._checked(topic, value, key, headers, partition, timestamp)
            delivery = await self._append(engine, engine.accumulator.append, arguments)
        except KafkaError as error:
            self._raise(error)
        self._add_topic(topic, engine.accumulator.topics[topic].open)
        return delivery

    def _enqueue_nowait(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Delivery:
        try:
            engine = self._check()
            arguments = self._checked(topic, value, key, headers, partition, timestamp)
            now = self._now()
            got = engine.accumulator.append(*arguments, now)
            engine.sender.wake()
            if isinstance(got, Shortage):
                raise BufferFullError(
                    f"buffer_memory={engine.config.buffer_memory} bytes are used up: wait with "
                    "enqueue, or raise it",
                    topic=topic,
                )
        except KafkaError as error:
            self._raise(error)
        self._add_topic(topic, engine.accumulator.topics[topic].open)
        if engine.plain:
            self._stamp = int(engine.clock.wall() * 1000)
            self._nowait_until = now + TURN
        return got

    def _checked(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> tuple[str, int | None, bytes | None, bytes | None, Headers, int]:
        """Return the arguments of `Accumulator.append`, serialized and checked."""
        check_topic(topic)
        check_partition(partition)
        data_key, data = self._serialize(topic, key, value, headers)
        return topic, partition, data_key, data, headers, self._timestamp(timestamp)

    async def _append(
        self,
        engine: Engine,
        append: Callable[..., Delivery | Shortage],
        arguments: tuple[Any, ...],
    ) -> Delivery:
        """What `append` gives once there is room; it takes the time and a place in line besides."""
        if self._now() >= self._pause_at:
            if engine.sender.turns == self._turn:
                # One of many tasks gives up the loop for all; those behind it go on.
                self._start_turn(engine)
                await asyncio.sleep(0)
                engine = self._check()
                # To append 16 MiB takes 4 ms: not in a turn that has as much to do already.
                while engine.sender.laden:
                    await asyncio.sleep(0)
                    engine = self._check()
            self._start_turn(engine)
        closed = engine.accumulator.closed
        got = append(*arguments, self._now())
        if isinstance(got, Shortage):
            got = await self._wait_for_room(engine, got, append, arguments)
        if engine.accumulator.closed != closed:
            # A batch was closed: the next call gives up the loop, so that it is sent.
            self._pause_at = SHUT
            self._fast_until = SHUT
            self._turn = engine.sender.turns
        engine.sender.wake()
        return got

    async def _wait_for_room(
        self,
        engine: Engine,
        shortage: Shortage,
        append: Callable[..., Delivery | Shortage],
        arguments: tuple[Any, ...],
    ) -> Delivery:
        memory = engine.accumulator.memory
        loop = engine.supervisor.loop
        deadline = loop.time() + engine.max_block
        while True:
            place = memory.queue(*shortage)
            engine.sender.wake()
            try:
                async with asyncio.timeout_at(deadline):
                    await place.promise
                self._check()
                got = append(*arguments, self._now(), place)
            except TimeoutError as error:
                raise self._no_room(engine) from error
            finally:
                memory.leave(place)
            if not isinstance(got, Shortage):
                return got
            shortage = got

    def _append_run(
        self,
        topic: str,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None,
        partition: int | None,
    ) -> list[Delivery]:
        """As many of the values as open batches take at once; none if the first has to wait."""
        batches = self._batches(topic)
        if self._now() >= self._fast_until or batches is None:
            return []
        raw_keys: Any = keys
        raw: Any = values
        try:
            return batches.append_many(self._stamp, raw, raw_keys, partition)
        except (TypeError, ValueError):
            return []  # the first cannot be appended; enqueue says why

    def _no_room(self, engine: Engine) -> KafkaError:
        memory = engine.accumulator.memory
        return KafkaTimeoutError(
            f"no room in buffer_memory within max_block_ms ({engine.max_block:g} s): "
            f"{memory.used} of {memory.total} bytes wait for their acknowledgement"
        )

    # -- the state of the writer ------------------------------------------------------------------

    def _open_writer(self, engine: Engine) -> None:
        self._engine = engine
        self._set_clock(engine.now)
        self._turn = engine.sender.turns

    def _shut_writer(self) -> None:
        """Send every call the long way, where it is checked."""
        self._disable_fast_path()
        self._pause_at = SHUT

    def _start_turn(self, engine: Engine) -> None:
        now = self._now()
        self._stamp = int(engine.clock.wall() * 1000)
        self._pause_at = now + TURN
        self._fast_until = self._pause_at if engine.plain else SHUT
        # Every append has the sender look round in the loop's next turn: who finds that it has,
        # has waited for something meanwhile and need not give up the loop.
        self._turn = engine.sender.turns

    def _check(self) -> Engine:
        self._check_writable()
        engine = self._engine
        if engine is None:
            raise IllegalStateError("not started: use `async with`, or await start() first")
        engine.supervisor.check()
        return engine

    def _check_writable(self) -> None:
        """Raise if records cannot be taken now."""
        raise NotImplementedError

    def _leaving(self, error: KafkaError) -> KafkaError:
        """Return the error to raise in place of `error`."""
        return error

    def _raise(self, error: KafkaError) -> NoReturn:
        leaves = self._leaving(error)
        if leaves is error:
            raise error
        raise leaves from error

    def _timestamp(self, timestamp: int | None) -> int:
        if timestamp is not None:
            checked = check_timestamp(timestamp)
            if checked in SECONDS:
                self._warn_of_seconds(checked)
            return checked
        assert self._engine is not None
        return int(self._engine.clock.wall() * 1000)

    def _warn_of_seconds(self, timestamp: int) -> None:
        if not self._warned_of_seconds:
            self._warned_of_seconds = True
            logger.warning(
                "timestamp=%d is in early 1970, and retention by time deletes such records soon: a "
                "timestamp is in milliseconds, as int(time.time() * 1000)",
                timestamp,
            )

    def _serialize(
        self, topic: str, key: K | None, value: V | None, headers: Headers
    ) -> tuple[bytes | None, bytes | None]:
        assert self._engine is not None
        serializers = self._engine.serializers
        data: list[Any] = [key, value]
        for at, (name, function) in enumerate(zip(serializers._fields, serializers, strict=True)):
            if function is None:
                continue
            try:
                data[at] = function(topic, headers, data[at])
            except Exception as error:
                raise SerializationError(
                    f"the {name}'s serializer failed: {error!r}", topic=topic
                ) from error
        check_record(topic, data[0], data[1], headers)
        return data[0], data[1]


def _never() -> float:
    return float("inf")
