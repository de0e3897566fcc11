"""The calls that append records, common to a producer and a transaction.

`enqueue` and `enqueue_nowait` are the hot path: the kernel's `RecordAppender` appends a record
whose partition has an open batch. All other cases take the slow path, `_enqueue` and
`_enqueue_nowait`: opening and closing batches, waiting for memory, serializers, partitioners, and
yielding to the event loop. Yielding happens before a record is appended, so a call that is
cancelled there has appended nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.arguments import instance_of, iterable, topic_partition
from kafka_async.errors import (
    BufferFullError,
    KafkaError,
    KafkaTimeoutError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.fairness import (
    MAX_RECORDS_PER_CLOCK_CHECK,
    MAX_ROWS_PER_CHECK,
    YIELD_INTERVAL,
)
from kafka_async.kernel import RecordAppender, RowFault, record_size_bound
from kafka_async.producer.buffer_pool import BufferShortage
from kafka_async.producer.validation import (
    PROBABLE_SECONDS,
    check_partition,
    check_record,
    check_timestamp,
    check_values,
    with_location,
)
from kafka_async.records.batch import RecordBatch
from kafka_async.records.from_arrow import from_arrow
from kafka_async.supervisor import current_loop, not_started_error
from kafka_async.types import ProducerRecord, check_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafka_async.kernel import Delivery
    from kafka_async.producer.interceptors import ProducerInterceptors
    from kafka_async.producer.runtime import ProducerRuntime
    from kafka_async.records.from_arrow import TopicRows
    from kafka_async.types import ArrowData, Headers, RecordMetadata, TopicPartition

__all__ = ["RecordWriter"]

logger = logging.getLogger("kafka_async.producer")

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

# Makes a comparison with the clock true: the next call takes the slow path.
IN_THE_PAST: Final = float("-inf")


class RecordWriter(RecordAppender[K, V], Generic[K, V]):
    """Appends records.

    Subclasses define when that is allowed (`_check_writable`), translate errors
    (`_translate_error`) and may count the calls that raise (`_note_failure`).
    """

    def __init__(self) -> None:
        # Without a runtime the clock is infinitely late: every call takes the slow path, which
        # raises.
        self._set_clock(_never)
        self._disable_fast_path()
        self._yield_at = IN_THE_PAST
        # The sender's run count at the last yield: if it has changed, the sender has run since.
        self._sender_run = 0
        self._runtime: ProducerRuntime | None = None
        # Once per producer, since a wrong timestamp usually comes with every record.
        self._warned_of_seconds = False
        # The error that `_note_failure` has seen already, so that a call on many records does not
        # count it twice.
        self._noted: Exception | None = None

    # -- one record -------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Append a record and wait until it is acknowledged.

        Cancelling this call after the record was appended does not withdraw it.

        Args:
            topic: Name of the topic.
            value: The value; bytes, or what `value_serializer` accepts. None is a tombstone.
            key: The key; bytes, or what `key_serializer` accepts.
            partition: The partition; by default the key's, or for records without a key one that
                changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: Pairs of a name and a value, which is bytes or None.

        Raises:
            KafkaError: What `enqueue` raises, or the error with which the record failed.
        """
        return await (await self.enqueue(topic, value, key, partition, timestamp, headers))

    # -- many records -----------------------------------------------------------------------------

    async def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None = None,
        *,
        partition: int | None = None,
    ) -> list[Delivery]:
        """Append many records without waiting for acknowledgements, and return their handles.

        If it raises, the records before the bad one are appended.

        Args:
            topic: Name of the topic.
            values: The values; see `send`.
            keys: One key per value, or None.
            partition: The partition of all records; by default chosen as by `send`.

        Raises:
            ValueError: There are not as many keys as values.
            KafkaError: What `enqueue` raises, with the index of the record in its message.
        """
        deliveries: list[Delivery] = []
        try:
            check_values(values, "values")
            if keys is not None:
                check_values(keys, "keys")
                if len(keys) != len(values):
                    raise ValueError(
                        f"{len(keys)} keys for {len(values)} values: pass one key per value"
                    )
            # Open batches take a part of the values at once. The first value that does not fit goes
            # through `enqueue`, which waits for memory or yields, and then the fast part continues.
            while (at := len(deliveries)) < len(values):
                some = slice(at, at + MAX_RECORDS_PER_CLOCK_CHECK)
                deliveries += self._append_values(
                    topic, values[some], None if keys is None else keys[some], partition
                )
                if len(deliveries) == at:
                    key = None if keys is None else keys[at]
                    try:
                        deliveries.append(await self.enqueue(topic, values[at], key, partition))
                    except (TypeError, ValueError, KafkaError) as error:
                        # Keeps the cause of the original error, such as the exception of a
                        # serializer.
                        raise self._located(error, f"values[{at}]") from error.__cause__
        except Exception as error:  # noqa: BLE001  # raised again
            self._raise(error)
        return deliveries

    async def send_records(self, records: Iterable[ProducerRecord]) -> list[Delivery]:
        """Append records of any topics without waiting for acknowledgements; return their handles.

        If it raises, the records before the bad one are appended.

        Args:
            records: The records.

        Raises:
            KafkaError: What `enqueue` raises, with the index of the record in its message.
        """
        deliveries: list[Delivery] = []
        try:
            for item in iterable(records, "records"):
                deliveries.append(await self._enqueue_record(item, len(deliveries)))
        except Exception as error:  # noqa: BLE001  # raised again
            self._raise(error)
        return deliveries

    async def _enqueue_record(self, item: object, index: int) -> Delivery:
        enqueue: Any = self.enqueue  # keys and values are of the types that the serializers accept
        try:
            record = instance_of(item, ProducerRecord, "it")
        except TypeError as error:
            raise with_location(error, f"records[{index}]") from None
        try:
            delivery: Delivery = await enqueue(
                record.topic,
                record.value,
                record.key,
                record.partition,
                record.timestamp,
                record.headers,
            )
        except (TypeError, ValueError, KafkaError) as error:
            raise self._located(error, f"records[{index}]") from error.__cause__
        return delivery

    async def send_arrow(self, rows: ArrowData, topic: str | None = None) -> int:
        """Append the rows of Arrow data as records without waiting for acknowledgements.

        Faster than `send_many`: no Python object is made per row. There are no handles: `flush()`
        raises the failures. All rows are checked before the first one is appended. Rows of the same
        partition keep their order. It waits for the topic's metadata, and up to max_block_ms while
        buffer_memory is full. Cancelling it may leave some rows appended.

        | Column | Type |
        |---|---|
        | `value` | binary or string, null for a tombstone; required |
        | `key` | binary or string |
        | `topic` | string; the argument `topic` overrides it |
        | `partition` | int32; null: chosen as by `send` |
        | `timestamp` | a timestamp, or int64 in milliseconds; null: the client's clock |
        | `headers` | list of structs of `key` (string) and `value` (binary) |

        Strings become UTF-8. Serializers are not applied; with the option `partitioner`, rows
        become objects as by `send`.

        Args:
            rows: A record batch or table of pyarrow, or of a library with the same interface.
            topic: Topic of all rows; by default that of the column `topic`.

        Returns:
            The number of rows.

        Raises:
            TypeError: `rows` is not Arrow data, or a column has the wrong type.
            ValueError: A column is missing or unknown, or a topic, timestamp or header is not
                valid; the message names the row.
            RecordTooLargeError: A row is larger than max_request_size or buffer_memory; the message
                names it.
            UnknownTopicOrPartitionError: A topic does not exist, or it lacks the partition of a
                row; the message names it.
            InvalidConfigurationError: pyarrow is not installed.
            KafkaError: What `enqueue` raises.
        """
        try:
            if topic is not None:
                check_topic(topic)
            runtime = self._check_ready()
            parts = list(from_arrow(rows, topic))
            for part in parts:
                await self._check_rows(runtime, part)
            for part in parts:
                await self._append_all_rows(part)
        except Exception as error:  # noqa: BLE001  # raised again
            self._raise(error)
        return sum(part.count for part in parts)

    async def _check_rows(self, runtime: ProducerRuntime, part: TopicRows) -> None:
        """Raise the error of the first row that cannot become a record."""
        columns, accumulator = part.columns, runtime.accumulator
        partitions = await runtime.sender.wait_for_partitions(part.topic)
        # Metadata may be older than partitions that were added since; one refresh decides.
        refreshed = False
        start = 0
        while start < part.count:
            end = min(start + MAX_ROWS_PER_CHECK, part.count)
            fault = columns.find_fault(
                accumulator.max_record_size, partitions, start, end, part.selection
            )
            if fault is None:
                start = end
                # Checking holds the event loop for a part of the rows at a time.
                await asyncio.sleep(0)
                continue
            row, reason = fault
            partition = columns.record(row)[3] if reason is RowFault.PARTITION else None
            if partition is not None and partition >= 0 and not refreshed:
                refreshed = True
                partitions = await runtime.sender.wait_for_partitions(part.topic, partition + 1)
            else:
                raise self._row_error(runtime, part, row, reason, partitions)
        # The producer may have been stopped while this waited.
        self._check_ready()

    def _row_error(
        self, runtime: ProducerRuntime, part: TopicRows, row: int, reason: RowFault, partitions: int
    ) -> Exception:
        label = part.label(row)
        # Such a row cannot be converted to a record below.
        if reason is RowFault.HEADER_NAME:
            return ValueError(f"{label}: the name of a header is null or not UTF-8")
        key, value, headers, partition, timestamp = part.columns.record(row)
        try:
            if reason is RowFault.SIZE:
                runtime.accumulator.check_size(record_size_bound(key, value, headers), part.topic)
            check_partition(partition)
            if timestamp is not None:
                check_timestamp(timestamp)
        except (ValueError, KafkaError) as error:
            return with_location(error, label)
        return UnknownTopicOrPartitionError(
            f"{label}: the topic has the partitions 0 to {partitions - 1}: name one of those, or "
            "add partitions",
            topic=part.topic,
            partition=partition,
        )

    async def _append_all_rows(self, part: TopicRows) -> None:
        at = 0
        # As in `send_many`: columns as far as open batches have room, then one row that opens the
        # next.
        while at < part.count:
            done = self._append_rows(part, at, min(at + MAX_RECORDS_PER_CLOCK_CHECK, part.count))
            if done == at:
                await self._append_row(part, at)
                done += 1
            at = done

    def _append_rows(self, part: TopicRows, start: int, end: int) -> int:
        """Append rows that open batches accept at once; return the position of the first other."""
        batches = self._batches(part.topic)
        if self._now() >= self._fast_until or batches is None:
            return start
        stamp = self._default_timestamp
        return batches.append_rows(stamp, part.columns, start, end, part.selection)

    async def _append_row(self, part: TopicRows, at: int) -> None:
        """Append one row as an object; this opens or closes its batch and waits for memory."""
        runtime = self._check_ready()
        key, value, headers, partition, timestamp = part.columns.record(part.row(at))
        arguments = (part.topic, partition, key, value, headers, self._timestamp(timestamp))
        await self._append(runtime, runtime.accumulator.append, arguments)
        # A new topic, or the first batch after its metadata arrived: the fast path can find it from
        # now on.
        if self._batches(part.topic) is None:
            self._add_topic(part.topic, runtime.accumulator.open_batches(part.topic))

    async def send_batch(self, partition: TopicPartition, batch: RecordBatch) -> Delivery:
        """Append a ready-made batch to its partition, without waiting for acknowledgements.

        It comes after the other batches of the partition. Called in a loop, this yields to the
        event loop about once per millisecond. It waits up to max_block_ms while buffer_memory is
        full.

        Args:
            partition: Topic and partition.
            batch: The batch.

        Returns:
            The handle of its first record.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The batch is larger than max_request_size or buffer_memory.
            TypeError: An argument has the wrong type.
            ValueError: The partition is out of range, or the topic is empty.
            ClientClosedError: The producer was not started, or is stopped.
            IllegalStateError: The producer is transactional and records go through a transaction.
        """
        try:
            runtime = self._check_ready()
            partition = topic_partition(partition)
            arguments = (partition, instance_of(batch, RecordBatch, "batch"))
            return await self._append(runtime, runtime.accumulator.append_batch, arguments)
        except Exception as error:  # noqa: BLE001  # raised again
            self._raise(error)

    # -- slow path --------------------------------------------------------------------------------

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
            runtime = self._check_ready()
            if runtime.interceptors is not None:
                record = ProducerRecord(topic, value, key, headers, partition, timestamp)  # pyright: ignore[reportArgumentType]  # of any type that the serializers accept
                return await self._enqueue_intercepted(runtime, runtime.interceptors, record)
            arguments = self._check_arguments(topic, value, key, headers, partition, timestamp)
            delivery = await self._append(runtime, runtime.accumulator.append, arguments)
        except Exception as error:  # noqa: BLE001  # raised again
            self._raise(error)
        # From now on the fast path finds the topic's open batches.
        if self._batches(topic) is None:
            self._add_topic(topic, runtime.accumulator.open_batches(topic))
        return delivery

    async def _enqueue_intercepted(
        self, runtime: ProducerRuntime, interceptors: ProducerInterceptors, record: ProducerRecord
    ) -> Delivery:
        # Interceptors get the record before it is serialized (KIP-42) and may replace it.
        record = interceptors.on_send(record)
        try:
            arguments = self._check_record(record)
            delivery = await self._append(runtime, runtime.accumulator.append, arguments)
        except BaseException as error:  # also a cancelled wait for memory, which appends nothing
            interceptors.on_failure(record, error)
            raise
        interceptors.watch(record, delivery)
        return delivery

    def _check_record(
        self, record: ProducerRecord
    ) -> tuple[str, int | None, bytes | None, bytes | None, Headers, int]:
        value: Any = record.value
        key: Any = record.key
        return self._check_arguments(
            record.topic, value, key, record.headers, record.partition, record.timestamp
        )

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
            runtime = self._check_ready()
            if runtime.interceptors is not None:
                record = ProducerRecord(topic, value, key, headers, partition, timestamp)  # pyright: ignore[reportArgumentType]  # of any type that the serializers accept
                return self._enqueue_intercepted_nowait(runtime, runtime.interceptors, record)
            arguments = self._check_arguments(topic, value, key, headers, partition, timestamp)
            now = self._now()
            result = self._append_nowait(runtime, arguments, now)
        except Exception as error:  # noqa: BLE001  # raised again
            self._raise(error)
        if self._batches(topic) is None:
            self._add_topic(topic, runtime.accumulator.open_batches(topic))
        # Opens the fast path, with this timestamp, for the next millisecond.
        if runtime.supports_fast_path:
            self._default_timestamp = int(runtime.wall() * 1000)
            self._nowait_until = now + YIELD_INTERVAL
        return result

    def _enqueue_intercepted_nowait(
        self, runtime: ProducerRuntime, interceptors: ProducerInterceptors, record: ProducerRecord
    ) -> Delivery:
        record = interceptors.on_send(record)
        try:
            delivery = self._append_nowait(runtime, self._check_record(record), self._now())
        except Exception as error:
            interceptors.on_failure(record, error)
            raise
        interceptors.watch(record, delivery)
        return delivery

    def _append_nowait(
        self,
        runtime: ProducerRuntime,
        arguments: tuple[str, int | None, bytes | None, bytes | None, Headers, int],
        now: float,
    ) -> Delivery:
        """Return the result of `Accumulator.append`; raise BufferFullError without memory."""
        result = runtime.accumulator.append(*arguments, now)
        runtime.sender.wakeup()
        if isinstance(result, BufferShortage):
            raise BufferFullError(
                f"buffer_memory={runtime.config.buffer_memory} bytes are used up: await "
                "enqueue(), or increase buffer_memory",
                topic=arguments[0],
            )
        return result

    def _check_arguments(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> tuple[str, int | None, bytes | None, bytes | None, Headers, int]:
        """Check and serialize a record; return the arguments of `Accumulator.append`."""
        check_topic(topic)
        check_partition(partition)
        data_key, data = self._serialize(topic, key, value, headers)
        return topic, partition, data_key, data, headers, self._timestamp(timestamp)

    async def _append(
        self,
        runtime: ProducerRuntime,
        append: Callable[..., Delivery | BufferShortage],
        arguments: tuple[Any, ...],
    ) -> Delivery:
        """Return the result of `append`, which also gets the time, once there is memory."""
        # The time for appending without a yield is over, or a batch was closed.
        if self._now() >= self._yield_at:
            if runtime.sender.run_count == self._sender_run:
                # When many tasks append, one of them yields for all.
                self._start_fast_window(runtime)
                await asyncio.sleep(0)
                runtime = self._check_ready()
                # Appending 16 MiB takes 4 ms: wait for an iteration in which the sender does less.
                while runtime.sender.saturated:
                    await asyncio.sleep(0)
                    runtime = self._check_ready()
            self._start_fast_window(runtime)
        closed = runtime.accumulator.closed_count
        result = append(*arguments, self._now())
        if isinstance(result, BufferShortage):
            result = await self._wait_for_buffer(runtime, result, append, arguments)
        if runtime.accumulator.closed_count != closed:
            # A batch was closed: the next call yields, so that the sender runs.
            self._yield_at = IN_THE_PAST
            self._fast_until = IN_THE_PAST
            self._sender_run = runtime.sender.run_count
        runtime.sender.wakeup()
        return result

    async def _wait_for_buffer(
        self,
        runtime: ProducerRuntime,
        shortage: BufferShortage,
        append: Callable[..., Delivery | BufferShortage],
        arguments: tuple[Any, ...],
    ) -> Delivery:
        buffer_pool = runtime.buffer_pool
        loop = runtime.supervisor.loop
        # One deadline for all passes: another caller may take the memory in between.
        deadline = loop.time() + runtime.max_block
        while True:
            # A grant covers the shortage that was found before; if the append needs more, for
            # example since its partition has changed, the caller waits again.
            waiter = buffer_pool.add_waiter(*shortage)
            # The sender ends linger times while callers wait, see `Accumulator.tick`.
            runtime.sender.wakeup()
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter.future
                # Stopping the producer wakes the waiters too.
                self._check_ready()
                # `append` takes over the grant before any other task runs.
                result = append(*arguments, self._now(), waiter)
            except TimeoutError as error:
                self._check_ready()  # another error may be the reason that no memory was released
                raise self._buffer_timeout_error(runtime) from error
            finally:
                # Also releases a grant that a cancelled caller has not used.
                buffer_pool.remove_waiter(waiter)
            if not isinstance(result, BufferShortage):
                return result
            shortage = result

    def _append_values(
        self,
        topic: str,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None,
        partition: int | None,
    ) -> list[Delivery]:
        """Append as many values as open batches accept at once, none if the first must wait."""
        batches = self._batches(topic)
        if self._now() >= self._fast_until or batches is None:
            return []
        # The kernel accepts bytes only and raises TypeError for other values, which need a
        # serializer.
        raw_keys: Any = keys
        raw: Any = values
        try:
            return batches.append_many(self._default_timestamp, raw, raw_keys, partition)
        except (TypeError, ValueError):
            return []  # `enqueue` raises the error, with its cause

    def _buffer_timeout_error(self, runtime: ProducerRuntime) -> KafkaError:
        buffer_pool = runtime.buffer_pool
        return KafkaTimeoutError(
            f"no room in buffer_memory within max_block_ms ({runtime.max_block:g} s): "
            f"{buffer_pool.reserved_bytes} of {buffer_pool.total_bytes} bytes are not acknowledged "
            "yet"
        )

    # -- state ------------------------------------------------------------------------------------

    def _open_writer(self, runtime: ProducerRuntime) -> None:
        # Only after `start()`: until then `_check_ready` raises.
        self._runtime = runtime
        self._set_clock(runtime.now)
        self._sender_run = runtime.sender.run_count

    def _force_slow_path(self) -> None:
        """Send every call to the slow path, where it is checked."""
        self._disable_fast_path()
        self._yield_at = IN_THE_PAST

    def _start_fast_window(self, runtime: ProducerRuntime) -> None:
        now = self._now()
        self._default_timestamp = int(runtime.wall() * 1000)
        self._yield_at = now + YIELD_INTERVAL
        self._fast_until = self._yield_at if runtime.supports_fast_path else IN_THE_PAST
        # Each append wakes the sender for the next event loop iteration. If the sender has run
        # since then, the caller has waited for something and need not yield.
        self._sender_run = runtime.sender.run_count

    def _check_ready(self) -> ProducerRuntime:
        self._check_writable()
        runtime = self._runtime
        if runtime is None:
            raise not_started_error(type(self).__name__)
        runtime.supervisor.check()
        return runtime

    def _check_thread(self, call: str) -> None:
        self._check_writable()  # as in calls that check it first
        if self._runtime is not None:
            self._runtime.supervisor.check_loop_of_call(call)
        elif current_loop() is None:
            raise not_started_error(type(self).__name__)

    def _check_writable(self) -> None:
        """Raise if no records can be appended now."""
        raise NotImplementedError

    def _translate_error(self, error: KafkaError) -> KafkaError:
        """Return the error to raise in place of `error`."""
        return error

    def _note_failure(self, error: Exception) -> None:
        """Note that a call raises an error, once per record or ready-made batch."""

    def _located(self, error: TypeError | ValueError | KafkaError, place: str) -> Exception:
        """Return an error that `enqueue` has raised and noted, with the place of the record."""
        self._noted = with_location(error, place)
        return self._noted

    def _raise(self, error: Exception) -> NoReturn:
        # Only errors of Kafka have a category in a transaction (KIP-1050); a TypeError stays one.
        translated = self._translate_error(error) if isinstance(error, KafkaError) else error
        # Noted by a call that this one is made of; reset, so that the same error counts again
        # later.
        noted, self._noted = self._noted, None
        if error is not noted:
            self._note_failure(translated)
        # Raised without itself as its cause.
        if translated is error:
            raise error
        raise translated from error

    def _timestamp(self, timestamp: int | None) -> int:
        if timestamp is not None:
            checked = check_timestamp(timestamp)
            if checked in PROBABLE_SECONDS:
                self._warn_of_seconds(checked)
            return checked
        assert self._runtime is not None
        return int(self._runtime.wall() * 1000)

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
        assert self._runtime is not None
        serializers = self._runtime.serializers
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
        # Checked afterwards: only bytes can be appended, whatever a serializer returns.
        check_record(topic, data[0], data[1], headers)
        return data[0], data[1]


def _never() -> float:
    return float("inf")
