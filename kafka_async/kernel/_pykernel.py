"""The hot path in plain Python: the specification of which `_ckernel.pyx` is the compiled twin.

Writing: `OpenBatch` appends records to the section of a batch that it owns, and gives a `Delivery`
for each; `TopicOpenBatches` finds the batch. Reading: a `RecordReader` makes `Record` objects of a
section, some at a time, `parse_records` all at once, `parse_columns` the buffers of Arrow arrays.
All read with `_pysection.py`.

A record on the wire (integers are zigzag varints):

    length  attributes  timestamp-delta  offset-delta  key  value  header-count  headers...

where key and value are a length (-1 is null) and bytes, a header a name (never null) and a value.
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
    Damage,
    RecordReader,
    as_bytes,
    read_all,
    read_headers,
    read_spelled,
    take_varint,
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
    Fault,
    HeaderColumn,
    corrupt,
    uncopied,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence

    from typing_extensions import Buffer

    from kafka_async.kernel._shared import Outcome, Section
    from kafka_async.types import Headers

IMPLEMENTATION: Final = "python"

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)

_MIN_INT64: Final = -MAX_INT64 - 1
_MASK32: Final = 0xFFFF_FFFF


class OpenBatch:
    """The records section of a batch that is being filled. Owned by one thread.

    `capacity` bounds the section in bytes (the batch header's 61 are not in it); a first record is
    taken whatever its size. The buffer grows with what is appended.
    """

    __slots__ = (
        "_base_timestamp",
        "_capacity",
        "_count",
        "_max_timestamp",
        "_outcome",
        "_parts",
        "_sealed",
        "_size",
    )

    def __init__(self, outcome: Outcome | None, capacity: int) -> None:
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._outcome = outcome
        self._capacity = capacity
        self._parts: list[bytes] = []
        self._size = 0
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1
        self._sealed = False

    def __reduce__(self) -> NoReturn:
        raise uncopied(self)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome that this batch's handles refer to."""
        return self._outcome

    @property
    def capacity(self) -> int:
        """The section's bound in bytes."""
        return self._capacity

    @property
    def count(self) -> int:
        """How many records were appended."""
        return self._count

    @property
    def size(self) -> int:
        """The section's size in bytes; 0 once it is sealed."""
        return self._size

    @property
    def base_timestamp(self) -> int:
        """The first record's timestamp, -1 while there is none."""
        return self._base_timestamp

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp of a record, -1 while there is none."""
        return self._max_timestamp

    @property
    def sealed(self) -> bool:
        """Whether `seal` was called."""
        return self._sealed

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
    ) -> Delivery | None:
        """Append a record; its handle, or None, and no change, if it does not fit.

        Raises TypeError for a key, value or header of the wrong type, ValueError for a timestamp
        below -1 or beyond int64 and for a record beyond 2 GiB, IllegalStateError once sealed.
        """
        self._check_open()
        timestamp = operator.index(timestamp_ms)  # a plain int, and no rounding
        if not -1 <= timestamp <= MAX_TIMESTAMP:
            raise ValueError(f"a timestamp is -1 to {MAX_TIMESTAMP} ms, not {timestamp_ms}")
        fields = [b"\0", b"", b""]
        for field in (key, value):
            if field is None:
                fields.append(_NULL)
            else:
                data = field if type(field) is bytes else as_bytes(field)
                fields += (_VARINTS[len(data)], data)
        fields.append(_encode_headers(headers) if len(headers) else b"\0")
        # No code of the caller's runs from here on.
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
        """Raise the bound to `capacity` bytes; a lower one than there is changes nothing."""
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._capacity = max(self._capacity, capacity)

    def seal(self) -> bytes:
        """The finished section, uncompressed. Ends the batch: appending or sealing again raises."""
        self._check_open()
        section = b"".join(self._parts)
        self._parts = []
        self._size = 0
        self._sealed = True
        return section

    def _check_open(self) -> None:
        if self._sealed:
            raise IllegalStateError("the batch is sealed")

    def __repr__(self) -> str:
        state = "sealed" if self._sealed else f"{self.size} of {self._capacity} bytes"
        return f"<OpenBatch {self._count} records, {state}>"


class TopicOpenBatches:
    """The open batches of one topic, by partition: appends a record where it belongs.

    Owned by one thread. `partitions` is how many the topic has, 0 while nobody knows; `sticky` is
    the partition of records that have no key and name none, -1 if there is none for now.
    """

    __slots__ = ("_batches", "partitions", "sticky")

    def __init__(self) -> None:
        self.partitions = 0
        self.sticky = -1
        self._batches: dict[int, OpenBatch] = {}

    def __reduce__(self) -> NoReturn:
        raise uncopied(self)

    def __len__(self) -> int:
        return len(self._batches)

    def open(self, partition: int, batch: OpenBatch) -> None:
        """Records of the partition go into this batch from now on."""
        self._batches[partition] = batch

    def close(self, partition: int) -> None:
        """The partition has no open batch any more."""
        self._batches.pop(partition, None)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> Delivery | None:
        """Append a record to the open batch of its partition: the one named, or the key's.

        None, and no change, if that has none, or the record does not fit in. Raises as
        `OpenBatch.append`.
        """
        batch = self._batch(key, partition)
        return None if batch is None else batch.append(timestamp_ms, key, value, headers)

    def append_many(
        self,
        timestamp_ms: int,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        partition: int | None = None,
    ) -> list[Delivery]:
        """Append values, with the keys beside them, until `append` would not take one.

        The handles of those that were appended: none is lost to an exception. What cannot be
        appended ends the call before it, and raises only if it is the first.
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
                    batch = self._batch(key, partition)
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

    def _batch(self, key: Buffer | None, partition: int | None) -> OpenBatch | None:
        if not self.partitions:
            return None
        if partition is None:
            partition = self.sticky
            if key is not None:
                partition = (murmur2(key) & MAX_INT32) % self.partitions
        return self._batches.get(partition)


class RecordAppender(Generic[K, V]):
    """Appends records to the open batches of their topics, as long as a subclass allows it.

    `enqueue` appends while `_now()` is below `_fast_until`, `enqueue_nowait` below `_nowait_until`;
    a record without a timestamp gets `_stamp`. All else is left to the subclass's `_enqueue` and
    `_enqueue_nowait`. If the clock is `time.monotonic`, one reading may serve for 16 calls within
    one tick of the system's timer.
    """

    _now: Callable[[], float]
    _stamp: int = 0
    _fast_until: float = -inf
    _nowait_until: float = -inf

    def _set_clock(self, now: Callable[[], float]) -> None:
        """Take the time, in seconds, from this function."""
        self._now = now
        self._open: dict[str, TopicOpenBatches] = {}

    def _disable_fast_path(self) -> None:
        """Append nothing here until `_fast_until` or `_nowait_until` is set again."""
        self._fast_until = self._nowait_until = -inf

    def _add_topic(self, topic: str, batches: TopicOpenBatches) -> None:
        """Append records of a topic to its open batches from now on."""
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
        """Append a record to its batch; wait only while the buffer is full, up to max_block_ms.

        Await the call at once: it appends when it is awaited, and a call that is never awaited
        appends nothing and warns (RuntimeWarning). It is an awaitable, not a coroutine: for a task
        use `asyncio.ensure_future(producer.enqueue(...))`. Cancelling it while it waits guarantees
        that nothing was appended.

        Args:
            topic: The topic.
            value: The value; bytes, or what `value_serializer` takes. None is a tombstone.
            key: The key; bytes, or what `key_serializer` takes.
            partition: The partition; by default the key's, or one that changes with each batch.
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: Pairs of a name and a value, which is bytes or None.

        Returns:
            A handle: await it for the `RecordMetadata`. Forgetting it is safe: `flush()` raises
            what failed.

        Raises:
            KafkaTimeoutError: No room in buffer_memory within max_block_ms.
            RecordTooLargeError: The record is larger than max_request_size.
            SerializationError: A serializer failed; its cause says how.
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
        """Append a record to its batch; never wait.

        It takes the arguments of `enqueue` and returns the same handle. It never yields to the
        event loop: nothing is sent while a loop calls it and awaits nothing.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size.
            SerializationError: A serializer failed; its cause says how.
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
        """Return the record's handle, or None if it has to go the long way, be it for its error."""
        raw_key: Any = key  # bytes: with a serializer this is not called
        raw: Any = value
        stamp = self._stamp if timestamp is None else timestamp
        try:
            batches = self._open.get(topic)
            if batches is not None:
                return batches.append(stamp, raw_key, raw, headers, partition)
        except Exception:  # noqa: BLE001  # the long way raises an error that says more
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
        """Append a record however long it takes, or raise what is wrong with it."""
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
        """Append a record now, or raise why that is not possible."""
        raise NotImplementedError


class EnqueueCall:
    """An awaitable that appends a record when it is awaited, and returns its handle."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Delivery]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Delivery]:
        return self._coroutine.__await__()

    def __reduce__(self) -> NoReturn:
        raise uncopied(self)


class _Varints(dict[int, bytes]):
    """Varints by their number; those of one or two bytes are made once."""

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
        spelled = name.encode()
        fields += (_VARINTS[len(spelled)], spelled)
        if value is None:
            fields.append(_NULL)
        else:
            data = value if type(value) is bytes else as_bytes(value)
            fields += (_VARINTS[len(data)], data)
        count += 1
    return _VARINTS[count] + b"".join(fields)


# -- reading --------------------------------------------------------------------------------------


def parse_records(
    section: Section, topic: str, partition: int, leader_epoch: int = -1, start: int = 0
) -> list[Record]:
    """All records that a `RecordReader` gives, or none: all of the section is validated.

    Raises CorruptRecordError with the first unreadable offset.
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
    """The records of several sections with `start` <= offset < `end`, as the buffers of columns.

    Raises as `parse_records`, and ValueError if one column would exceed 2 GiB: give it less then.
    """
    rows: list[Any] = []  # records, their headers as they are spelled
    for section in tuple(sections):  # as it is now: theirs may change while it is walked
        rows += read_spelled(section, topic, partition, start, end)
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


class _Growing:
    """A binary column of values that are not held: a header may be two bytes in a section."""

    def __init__(self) -> None:
        self._lengths = array("i")
        self._data = bytearray()
        self._valid = bytearray()

    def add(self, value: bytes | None) -> None:
        self._lengths.append(len(value or b""))
        self._data += value or b""
        self._valid.append(value is not None)

    def finish(self) -> BinaryColumn:
        return BinaryColumn(_validity(self._valid), _offsets(self._lengths), bytes(self._data))


def _header_column(rows: Sequence[bytes]) -> HeaderColumn:
    names, values = _Growing(), _Growing()
    counts = array("i")
    for spelled in rows:
        count = 0
        for name, value in read_headers(spelled):
            names.add(name)
            values.add(value)
            count += 1
        counts.append(count)
    return HeaderColumn(
        _validity([bool(spelled) for spelled in rows]),
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
    """A zigzag varint of at most 64 bits. Raises ValueError beyond int64."""
    if 0 <= value < 0x40:  # by far the most
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
    """The zigzag varint of 32 or 64 bits at `position`, and the position after it.

    Raises CorruptRecordError if it is cut off or does not fit.
    """
    data = as_bytes(buffer)
    if not 0 <= position <= len(data):
        raise corrupt(Fault.TRUNCATED)
    try:
        return take_varint(data, position, len(data), bits)
    except Damage as damage:
        raise corrupt(damage.fault) from None


def record_size_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """An upper bound, in bytes, of what a record takes in a batch of its own, header included."""
    size = 61 + MAX_RECORD_OVERHEAD
    for field in (key, value):
        size += 0 if field is None else len(as_bytes(field))
    for name, header in headers:
        size += 10 + len(name.encode()) + (0 if header is None else len(as_bytes(header)))
    return size


def murmur2(key: Buffer) -> int:
    """Java's 32-bit murmur2 of a key, as a signed integer: what keyed partitioning hashes with."""
    data = as_bytes(key)
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
