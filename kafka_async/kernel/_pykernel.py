"""The hot path in plain Python: the specification of the compiled kernel in `_ckernel.pyx`.

Writing: `OpenBatch` appends records to the records section of a batch and returns a `Delivery` for
each; `TopicOpenBatches` finds the batch. Reading: `RecordReader` returns the `Record` objects of a
section some at a time, `parse_records` all at once, and `parse_columns` the buffers of Arrow
arrays. All of them read with `_pysection.py`.

A record on the wire (attributes is one byte, the other integers are zigzag varints):

    length  attributes  timestamp-delta  offset-delta  key  value  header-count  headers...

Key and value are a length (-1 is null) and bytes; a header is a name, never null, and a value.
"""

from __future__ import annotations

import operator
from array import array
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn

from typing_extensions import TypeVar

from kafka_async.errors import IllegalStateError
from kafka_async.kernel._pysection import (
    CorruptSection,
    RecordReader,
    iter_headers,
    read_all,
    read_varint,
    read_with_raw_headers,
    to_bytes,
)
from kafka_async.kernel._pystream import NextRecord as NextRecord
from kafka_async.kernel._pystream import RecordIterator as RecordIterator
from kafka_async.kernel._pyvalues import Delivery, DeliveryFields, Record
from kafka_async.kernel._shared import (
    MAX_INT32,
    MAX_INT64,
    MAX_RECORD_OVERHEAD,
    MAX_TIMESTAMP,
    BinaryColumn,
    Columns,
    Corruption,
    HeaderColumn,
    copy_error,
    corrupt_record_error,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence

    from typing_extensions import Buffer

    from kafka_async.kernel._pyvalues import DeliveryOutcome
    from kafka_async.kernel._shared import Section
    from kafka_async.types import Headers

IMPLEMENTATION: Final = "python"

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

_MIN_INT64: Final = -MAX_INT64 - 1
_MASK32: Final = 0xFFFF_FFFF


class OpenBatch:
    """Appends records to the records section of an open batch. Owned by one thread.

    `capacity` limits the section in bytes, without the 61 bytes of the batch header. The first
    record is accepted whatever its size. The buffer grows as records are appended.
    """

    __slots__ = (
        "_base_timestamp",
        "_capacity",
        "_closed",
        "_count",
        "_max_timestamp",
        "_outcome",
        "_parts",
        "_size",
    )

    def __init__(self, outcome: DeliveryOutcome | None, capacity: int) -> None:
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._outcome = outcome
        self._capacity = capacity
        self._parts: list[bytes] = []
        self._size = 0
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1
        self._closed = False

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    @property
    def outcome(self) -> DeliveryOutcome | None:
        """Outcome to which the deliveries of this batch refer."""
        return self._outcome

    @property
    def capacity(self) -> int:
        """Maximum size of the section in bytes."""
        return self._capacity

    @property
    def count(self) -> int:
        """Number of appended records."""
        return self._count

    @property
    def size(self) -> int:
        """Size of the section in bytes; 0 once the batch is closed."""
        return self._size

    @property
    def base_timestamp(self) -> int:
        """Timestamp of the first record, -1 while the batch is empty."""
        return self._base_timestamp

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of a record, -1 while the batch is empty."""
        return self._max_timestamp

    @property
    def closed(self) -> bool:
        """True once the batch was closed for appends."""
        return self._closed

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
    ) -> Delivery | None:
        """Append a record and return its handle; return None and change nothing if it does not fit.

        Raises:
            TypeError: The timestamp, the key, the value or a header has the wrong type.
            ValueError: The timestamp is not in -1 to 2**63 - 2, or the record exceeds 2 GiB.
            IllegalStateError: The batch is closed.
        """
        self._check_open()
        timestamp = operator.index(timestamp_ms)  # int() would round a float
        if not -1 <= timestamp <= MAX_TIMESTAMP:
            raise ValueError(f"a timestamp is -1 to {MAX_TIMESTAMP} ms, not {timestamp_ms}")
        fields = [b"\0", b"", b""]
        for field in (key, value):
            if field is None:
                fields.append(_NULL)
            else:
                data = field if type(field) is bytes else to_bytes(field)
                fields += (_VARINTS[len(data)], data)
        fields.append(_encode_headers(headers) if len(headers) else b"\0")
        # From here on no code of the caller runs, so nothing changes in between.
        self._check_open()
        count = self._count
        base = self._base_timestamp if count else timestamp
        fields[1], fields[2] = _VARINTS[timestamp - base], _VARINTS[count]
        body = b"".join(fields)
        length = _VARINTS[len(body)]
        size = self._size + len(length) + len(body)
        if size > self._capacity and count:
            return None
        if size > MAX_INT32:
            raise ValueError("a record may not exceed 2 GiB")
        self._parts += (length, body)
        self._size = size
        self._count = count + 1
        self._base_timestamp = base
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        delivery: Any = DeliveryFields()
        delivery.outcome = self._outcome
        delivery.index = count
        delivery.timestamp = timestamp
        delivery.__class__ = Delivery
        return delivery

    def extend(self, capacity: int) -> None:
        """Raise the capacity to `capacity` bytes; never lower it."""
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._capacity = max(self._capacity, capacity)

    def close(self) -> bytes:
        """Close the batch for appends and return its records section, uncompressed.

        Raises:
            IllegalStateError: The batch is closed already.
        """
        self._check_open()
        section = b"".join(self._parts)
        self._parts = []
        self._size = 0
        self._closed = True
        return section

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the batch is closed")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.size} of {self._capacity} bytes"
        return f"<OpenBatch {self._count} records, {state}>"


class TopicOpenBatches:
    """Appends records to the open batches of one topic, by partition. Owned by one thread.

    `partitions` is the topic's number of partitions, 0 while unknown. `sticky_partition` is the
    partition of records with neither key nor partition, -1 while none is chosen.
    """

    __slots__ = ("_batches", "partitions", "sticky_partition")

    def __init__(self) -> None:
        self.partitions = 0
        self.sticky_partition = -1
        self._batches: dict[int, OpenBatch] = {}

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    def __len__(self) -> int:
        return len(self._batches)

    def open(self, partition: int, batch: OpenBatch) -> None:
        """Append records of the partition to this batch from now on."""
        self._batches[partition] = batch

    def close(self, partition: int) -> None:
        """Remove the open batch of the partition."""
        self._batches.pop(partition, None)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Delivery | None:
        """Append a record to the open batch of `partition`, by default the key's partition.

        Return None and change nothing if the partition has no open batch or the record does not
        fit. Raises as `OpenBatch.append`.
        """
        batch = self._find_batch(key, partition)
        return None if batch is None else batch.append(timestamp_ms, key, value, headers)

    def append_many(
        self,
        timestamp_ms: int,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        partition: int | None = None,
    ) -> list[Delivery]:
        """Append values, each with its key if there are keys, until `append` returns None.

        Return the handles of the appended records. An exception ends the call; it is raised only if
        no record was appended before, so that no handle is lost.
        """
        total = len(values)
        if keys is not None and len(keys) != total:
            raise ValueError(f"{len(keys)} keys for {total} values")
        deliveries: list[Delivery] = []
        batch: OpenBatch | None = None
        hashed = keys is not None and partition is None
        key = None
        for index in range(total):
            try:
                if keys is not None:
                    key = keys[index]
                if hashed or batch is None:
                    batch = self._find_batch(key, partition)
                    if batch is None:
                        break
                delivery = batch.append(timestamp_ms, key, values[index])
            except Exception:
                if deliveries:
                    break
                raise
            if delivery is None:
                break
            deliveries.append(delivery)
        return deliveries

    def _find_batch(self, key: Buffer | None, partition: int | None) -> OpenBatch | None:
        if not self.partitions:
            return None
        if partition is None:
            partition = self.sticky_partition
            if key is not None:
                partition = (murmur2(key) & MAX_INT32) % self.partitions
        return self._batches.get(partition)


class RecordAppender(Generic[K, V]):
    """Appends records to the open batches of their topics: the fast path of a producer.

    `enqueue` takes the fast path while `_now()` is below `_fast_until`, and `enqueue_nowait` while
    it is below `_nowait_until`; a record without a timestamp gets `_default_timestamp`. The slow
    path is the subclass's `_enqueue` and `_enqueue_nowait`. The clock is read in each call; in the
    compiled kernel one reading of `time.monotonic` may serve 16 calls within one tick of the
    system's timer.
    """

    _now: Callable[[], float]
    _default_timestamp: int = 0
    _fast_until: float = -inf
    _nowait_until: float = -inf

    def _set_clock(self, now: Callable[[], float]) -> None:
        """Set the clock: a function that returns seconds."""
        self._now = now
        self._open: dict[str, TopicOpenBatches] = {}

    def _disable_fast_path(self) -> None:
        """Disable the fast path until `_fast_until` or `_nowait_until` is set again."""
        self._fast_until = self._nowait_until = -inf

    def _add_topic(self, topic: str, batches: TopicOpenBatches) -> None:
        """Append records of the topic to these open batches from now on."""
        self._open[topic] = batches

    def _batches(self, topic: str) -> TopicOpenBatches | None:
        """Return the open batches of a topic; None if it was not added."""
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
        loop about once per millisecond, so that batches are sent. Cancelling it while it waits or
        yields guarantees that nothing was appended.

        Args:
            topic: Topic name.
            value: Bytes, or the object that `value_serializer` takes. None is a tombstone.
            key: Bytes, or the object that `key_serializer` takes.
            partition: Partition number; by default the key's partition, or for records without a
                key one that changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: Pairs of a name and a value, which is bytes or None.

        Returns:
            A handle: await it for the `RecordMetadata`. It may be dropped: `flush()` raises the
            failures of records that were not awaited.

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

        It takes the arguments of `enqueue` and returns the same handle. It never yields to the
        event loop: no batch is sent until the caller awaits something.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError, ValueError, ClientClosedError, IllegalStateError: As for `enqueue`.
        """
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

    _append_or_wait.__qualname__ = "RecordAppender.enqueue"  # in the warning for a call not awaited

    def _append_now(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> Delivery | None:
        """Return the record's handle, None if the slow path must append it or raise its error."""
        raw_key: Any = key  # bytes: the fast path is disabled if there are serializers
        raw: Any = value
        stamp = self._default_timestamp if timestamp is None else timestamp
        try:
            batches = self._open.get(topic)
            if batches is not None:
                return batches.append(stamp, raw_key, raw, headers, partition)
        except Exception:  # noqa: BLE001  # the slow path raises a more precise error
            pass
        return None

    async def _enqueue(
        self,
        topic: str,
        value: V | None,
        key: K | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Delivery:
        """Append a record on the slow path; yield if it is time to; wait while memory is full."""
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


class _Varints(dict[int, bytes]):
    """Encodes varints and caches those of one or two bytes."""

    def __missing__(self, value: int) -> bytes:
        data = encode_varint(value)
        if len(data) <= 2:
            self[value] = data
        return data


_VARINTS: Final = _Varints()
_NULL: Final = b"\x01"  # the length -1


def _encode_headers(headers: Headers) -> bytes:
    fields: list[bytes] = []
    count = 0
    for name, value in headers:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] callers err
            raise TypeError(f"a header's name is a str, not {type(name).__name__}")
        encoded = name.encode()
        fields += (_VARINTS[len(encoded)], encoded)
        if value is None:
            fields.append(_NULL)
        else:
            data = value if type(value) is bytes else to_bytes(value)
            fields += (_VARINTS[len(data)], data)
        count += 1
    return _VARINTS[count] + b"".join(fields)


# -- reading --------------------------------------------------------------------------------------


def parse_records(
    section: Section, topic: str, partition: int, leader_epoch: int = -1, start: int = 0
) -> list[Record]:
    """Return all records of a section from offset `start` on; the whole section is validated.

    Raises CorruptRecordError with the offset of the first record that cannot be read.
    """
    return read_all(RecordReader(section, topic, partition, leader_epoch, start), section)


def parse_columns(
    sections: Sequence[Section],
    topic: str,
    partition: int,
    start: int = 0,
    end: int = MAX_INT64,
    headers: bool = False,
) -> Columns:
    """Return the records of several sections with `start` <= offset < `end`, as Arrow buffers.

    Raises as `parse_records`, and ValueError if a column would exceed 2 GiB.
    """
    rows: list[Any] = []  # records whose headers are not decoded
    for section in tuple(sections):  # a copy: the caller's sequence may change meanwhile
        rows += read_with_raw_headers(section, topic, partition, start, end)
    return Columns(
        len(rows),
        _binary_column([row.key for row in rows]),
        _binary_column([row.value for row in rows]),
        array("q", [row.offset for row in rows]).tobytes(),
        array("q", [row.timestamp for row in rows]).tobytes(),
        array("i", [row.timestamp_type for row in rows]).tobytes(),
        _header_column([row.headers for row in rows]) if headers else None,
    )


def _binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = _offsets(0 if value is None else len(value) for value in values)
    data = b"".join([value for value in values if value])
    return BinaryColumn(_validity([value is not None for value in values]), offsets, data)


class _BinaryColumnBuilder:
    """Builds a binary column without keeping an object per value."""

    def __init__(self) -> None:
        self._lengths = array("i")
        self._data = bytearray()
        self._valid = bytearray()

    def append(self, value: bytes | None) -> None:
        self._lengths.append(len(value or b""))
        self._data += value or b""
        self._valid.append(value is not None)

    def finish(self) -> BinaryColumn:
        return BinaryColumn(_validity(self._valid), _offsets(self._lengths), bytes(self._data))


def _header_column(rows: Sequence[bytes]) -> HeaderColumn:
    # Without an object per header: a header may take only two bytes of a section.
    names, values = _BinaryColumnBuilder(), _BinaryColumnBuilder()
    counts = array("i")
    for raw_headers in rows:
        count = 0
        for name, value in iter_headers(raw_headers):
            names.append(name)
            values.append(value)
            count += 1
        counts.append(count)
    return HeaderColumn(
        _validity([bool(raw_headers) for raw_headers in rows]),
        _offsets(counts),
        names.finish(),
        values.finish(),
    )


def _offsets(lengths: Iterable[int]) -> bytes:
    try:
        return array("i", accumulate(lengths, initial=0)).tobytes()
    except OverflowError:
        raise ValueError("a column may not exceed 2 GiB") from None


def _validity(valid: Sequence[int]) -> bytes | None:
    if all(valid):
        return None
    bitmap = bytearray((len(valid) + 7) // 8)
    for index, is_valid in enumerate(valid):
        if is_valid:
            bitmap[index >> 3] |= 1 << (index & 7)
    return bytes(bitmap)


# -- small functions ------------------------------------------------------------------------------


def encode_varint(value: int) -> bytes:
    """Encode a number as a zigzag varint of at most 64 bits; raise ValueError beyond int64."""
    if 0 <= value < 0x40:  # most numbers
        return _SMALL[value << 1]
    if not _MIN_INT64 <= value <= MAX_INT64:
        raise ValueError(f"{value} does not fit into 64 bits")
    raw = value << 1 if value >= 0 else (~value << 1) | 1
    if raw < 0x80:
        return _SMALL[raw]
    if raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_SMALL: Final = [bytes([raw]) for raw in range(0x80)]


def decode_varint(buffer: Buffer, position: int = 0, bits: int = 32) -> tuple[int, int]:
    """Return the zigzag varint of 32 or 64 bits at `position` and the position after it.

    Raises CorruptRecordError if it is truncated or does not fit.
    """
    data = to_bytes(buffer)
    if not 0 <= position <= len(data):
        raise corrupt_record_error(Corruption.TRUNCATED)
    try:
        return read_varint(data, position, len(data), bits)
    except CorruptSection as error:
        raise corrupt_record_error(error.corruption) from None


def record_size_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """Return an upper bound, in bytes, of a batch with only this record, header included."""
    size = 61 + MAX_RECORD_OVERHEAD
    for field in (key, value):
        size += 0 if field is None else len(to_bytes(field))
    for name, header in headers:
        size += 10 + len(name.encode()) + (0 if header is None else len(to_bytes(header)))
    return size


def murmur2(key: Buffer) -> int:
    """Return Java's 32-bit murmur2 hash of a key, signed; keyed partitioning uses it."""
    data = to_bytes(key)
    length = len(data)
    state = (0x9747B28C ^ length) & _MASK32
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & _MASK32
        word = (word ^ word >> 24) * 0x5BD1E995 & _MASK32
        state = (state * 0x5BD1E995 & _MASK32) ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & _MASK32
    state = (state ^ state >> 13) * 0x5BD1E995 & _MASK32
    state ^= state >> 15
    return state - (1 << 32) if state >> 31 else state
