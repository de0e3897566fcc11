"""The hot path in plain Python: the specification of which `_ckernel.pyx` is the compiled twin.

Writing: `OpenBatch` appends records to the section of a batch that it owns, and gives a `Delivery`
for each. Reading: `parse_records` makes `Record` objects of a section, `parse_columns` the buffers
of Arrow arrays. Both read with `_scan`, which checks every length against the enclosing one before
it uses it, so hostile bytes end in CorruptRecordError and allocate nothing on their say-so.

A record on the wire (integers are zigzag varints):

    length  attributes  timestamp-delta  offset-delta  key  value  header-count  headers...

where key and value are a length (-1 is null) and bytes, a header a name (never null) and a value.
"""

from __future__ import annotations

import operator
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from kafka_async.errors import IllegalStateError
from kafka_async.kernel._pyvalues import Delivery, Record
from kafka_async.kernel._shared import (
    MAX_INT32,
    MAX_INT64,
    MAX_RECORD_OVERHEAD,
    MAX_TIMESTAMP,
    MIN_RECORD_SIZE,
    BinaryColumn,
    Columns,
    Fault,
    HeaderColumn,
    corrupt,
    uncopied,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from kafka_async.kernel._shared import Outcome, Section
    from kafka_async.types import Headers

IMPLEMENTATION: Final = "python"

_MASK32: Final = 0xFFFF_FFFF


class OpenBatch:
    """The records section of a batch that is being filled. Owned by one thread.

    `capacity` bounds the section in bytes (the batch header's 61 are not in it); a first record is
    taken whatever its size. The buffer grows with what is appended.
    """

    __slots__ = (
        "_base_timestamp",
        "_buffer",
        "_capacity",
        "_count",
        "_max_timestamp",
        "_outcome",
        "_sealed",
    )

    def __init__(self, outcome: Outcome | None, capacity: int) -> None:
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._outcome = outcome
        self._capacity = capacity
        self._buffer = bytearray()
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
        return len(self._buffer)

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
        if self._sealed:
            raise IllegalStateError("the batch is sealed")
        timestamp_ms = operator.index(timestamp_ms)  # a plain int, and no rounding
        if not -1 <= timestamp_ms <= MAX_TIMESTAMP:
            raise ValueError(f"a timestamp is -1 to {MAX_TIMESTAMP} ms, not {timestamp_ms}")
        base = self._base_timestamp if self._count else timestamp_ms
        body = bytearray(1)
        body += encode_varint(timestamp_ms - base)
        body += encode_varint(self._count)
        _put_field(body, key)
        _put_field(body, value)
        _put_headers(body, headers)
        length = encode_varint(len(body))
        size = len(self._buffer) + len(length) + len(body)
        if size > self._capacity and self._count:
            return None
        if size > MAX_INT32:
            raise ValueError("a record may not exceed 2 GiB")
        self._buffer += length
        self._buffer += body
        delivery = Delivery(self._outcome, self._count, timestamp_ms)
        self._base_timestamp = base
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._count += 1
        return delivery

    def append_many(
        self,
        timestamp_ms: int,
        values: Sequence[Buffer | None],
        keys: Sequence[Buffer | None] | None = None,
        start: int = 0,
    ) -> list[Delivery]:
        """Append values from `start` on, with the keys beside them, as many as fit.

        The handles of those that were appended; so the next call starts at `start` plus their
        number. A value that cannot be appended ends the call before it, and raises only if it
        is the first: what was appended is never lost to an exception.
        """
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        if start < 0:
            raise ValueError("start is negative")
        deliveries: list[Delivery] = []
        for index in range(start, len(values)):
            key = None if keys is None else keys[index]
            try:
                delivery = self.append(timestamp_ms, key, values[index])
            except (TypeError, ValueError):
                if deliveries:
                    break
                raise
            if delivery is None:
                break
            deliveries.append(delivery)
        return deliveries

    def extend(self, capacity: int) -> None:
        """Raise the bound to `capacity` bytes; a lower one than there is changes nothing."""
        if not 0 <= capacity <= MAX_INT32:
            raise ValueError(f"a batch's capacity is 0 to {MAX_INT32} bytes, not {capacity}")
        self._capacity = max(self._capacity, capacity)

    def seal(self) -> bytes:
        """The finished section, uncompressed. Ends the batch: appending or sealing again raises."""
        if self._sealed:
            raise IllegalStateError("the batch is sealed")
        section = bytes(self._buffer)
        self._buffer = bytearray()
        self._sealed = True
        return section

    def __repr__(self) -> str:
        state = "sealed" if self._sealed else f"{self.size} of {self._capacity} bytes"
        return f"<OpenBatch {self._count} records, {state}>"


def _as_bytes(value: Buffer) -> bytes:
    # Not bytes(value): that would make an int a run of zeros.
    return value if isinstance(value, bytes) else bytes(memoryview(value))


def _put_field(body: bytearray, value: Buffer | None) -> None:
    if value is None:
        body.append(1)  # -1 in zigzag
        return
    data = _as_bytes(value)
    body += encode_varint(len(data))
    body += data


def _put_headers(body: bytearray, headers: Headers) -> None:
    body += encode_varint(len(headers))
    for name, value in headers:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] callers err
            raise TypeError(f"a header's name is a str, not {type(name).__name__}")
        _put_field(body, name.encode())
        _put_field(body, value)


# -- reading --------------------------------------------------------------------------------------


class _Damage(Exception):
    """A fault in a section, before it is known where the section comes from."""

    def __init__(self, fault: Fault, offset: int | None = None) -> None:
        super().__init__(fault)
        self.fault = fault
        self.offset = offset


class _Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def _varint(data: bytes, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    if end - at >= 2:  # by far the most are one byte or two
        raw = data[at]
        if raw < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        if data[at + 1] < 0x80:
            raw = raw & 0x7F | data[at + 1] << 7
            return (raw >> 1) ^ -(raw & 1), at + 2
    raw = shift = 0
    while True:
        if at >= end:
            raise _Damage(Fault.TRUNCATED)
        byte = data[at]
        at += 1
        if shift + 7 > bits and byte >> (bits - shift):
            raise _Damage(Fault.VARINT)
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def _field(data: bytes, at: int, end: int, fault: Fault) -> tuple[bytes | None, int]:
    length, at = _varint(data, at, end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise _Damage(fault)
    return data[at : at + length], at + length


def _headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[bytes, bytes | None], ...], int]:
    count, at = _varint(data, at, end)
    if not count:
        return (), at
    if not 0 <= count * 2 <= end - at:  # a header is at least two lengths
        raise _Damage(Fault.HEADER_COUNT)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        name, at = _field(data, at, end, Fault.HEADER)
        if name is None:
            raise _Damage(Fault.HEADER)
        value, at = _field(data, at, end, Fault.HEADER)
        headers.append((name, value))
    return tuple(headers), at


def _row(data: bytes, at: int, section: Section, previous_delta: int) -> tuple[_Row, int]:
    length, at = _varint(data, at, len(data))
    if not 0 <= length <= len(data) - at:
        raise _Damage(Fault.LENGTH)
    end = at + length
    if not length:
        raise _Damage(Fault.TRUNCATED)
    timestamp_delta, at = _varint(data, at + 1, end, 64)  # after the attributes: none are defined
    delta, at = _varint(data, at, end)
    if not previous_delta < delta <= section.last_offset_delta:
        raise _Damage(Fault.OFFSET_DELTA)
    timestamp = section.max_timestamp
    if section.timestamp_type == 0:
        timestamp = section.base_timestamp + timestamp_delta
        if not -MAX_INT64 - 1 <= timestamp <= MAX_INT64:
            raise _Damage(Fault.TIMESTAMP)
    key, at = _field(data, at, end, Fault.FIELD)
    value, at = _field(data, at, end, Fault.FIELD)
    headers, at = _headers(data, at, end)
    if at != end:
        raise _Damage(Fault.RECORD_LEFTOVER)
    return _Row(section.base_offset + delta, timestamp, key, value, headers), end


def _scan(section: Section) -> Iterator[_Row]:
    data = _as_bytes(section.data)
    base = section.base_offset
    if base < 0 or not 0 <= section.last_offset_delta < MAX_INT64 - base:
        raise _Damage(Fault.OFFSETS, base)
    if not 0 <= section.records_count * MIN_RECORD_SIZE <= len(data):
        raise _Damage(Fault.COUNT, base)
    at = 0
    delta = -1
    for _ in range(section.records_count):
        try:
            row, at = _row(data, at, section, delta)
        except _Damage as damage:
            damage.offset = base + delta + 1
            raise
        delta = row.offset - base
        yield row
    if at != len(data):
        raise _Damage(Fault.SECTION_LEFTOVER, base + delta + 1)


def parse_records(
    section: Section, topic: str, partition: int, leader_epoch: int = -1, start: int = 0
) -> list[Record]:
    """The records of a section whose offset is `start` or higher; all of it is validated.

    Bytes in a header's name that are not UTF-8 become U+FFFD, as for Java's consumers: one foreign
    header must not block a partition. Raises CorruptRecordError with the first unreadable offset.
    """
    epoch = None if leader_epoch < 0 else leader_epoch
    try:
        return [
            Record(
                topic,
                partition,
                row.offset,
                row.timestamp,
                section.timestamp_type,
                row.key,
                row.value,
                tuple([(name.decode(errors="replace"), value) for name, value in row.headers]),
                epoch,
            )
            for row in _scan(section)
            if row.offset >= start
        ]
    except _Damage as damage:
        raise corrupt(damage.fault, topic, partition, damage.offset) from None


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
    rows: list[_Row] = []
    types = array("i")
    try:
        for section in sections:
            chosen = [row for row in _scan(section) if start <= row.offset < end]
            types.extend([section.timestamp_type] * len(chosen))
            rows += chosen
    except _Damage as damage:
        raise corrupt(damage.fault, topic, partition, damage.offset) from None
    return Columns(
        len(rows),
        _binary_column([row.key for row in rows]),
        _binary_column([row.value for row in rows]),
        array("q", [row.offset for row in rows]).tobytes(),
        array("q", [row.timestamp for row in rows]).tobytes(),
        types.tobytes(),
        _header_column([row.headers for row in rows]) if headers else None,
    )


def _binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    offsets = _offsets([0 if value is None else len(value) for value in values])
    data = b"".join([value for value in values if value])
    return BinaryColumn(_validity([value is not None for value in values]), offsets, data)


def _header_column(rows: Sequence[tuple[tuple[bytes, bytes | None], ...]]) -> HeaderColumn:
    flat = [header for headers in rows for header in headers]
    return HeaderColumn(
        _validity([bool(headers) for headers in rows]),
        _offsets([len(headers) for headers in rows]),
        _binary_column([name.decode(errors="replace").encode() for name, _ in flat]),
        _binary_column([value for _, value in flat]),
    )


def _offsets(lengths: Iterable[int]) -> bytes:
    total = 0
    offsets = [0]
    for length in lengths:
        total += length
        offsets.append(total)
    if total > MAX_INT32:
        raise ValueError("a column may not exceed 2 GiB")
    return array("i", offsets).tobytes()


def _validity(valid: Sequence[bool]) -> bytes | None:
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
    if not -MAX_INT64 - 1 <= value <= MAX_INT64:
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
    data = _as_bytes(buffer)
    if not 0 <= position <= len(data):
        raise corrupt(Fault.TRUNCATED)
    try:
        return _varint(data, position, len(data), bits)
    except _Damage as damage:
        raise corrupt(damage.fault) from None


def record_size_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """An upper bound, in bytes, of what a record takes in a batch of its own, header included."""
    size = 61 + MAX_RECORD_OVERHEAD
    for field in (key, value):
        size += 0 if field is None else len(_as_bytes(field))
    for name, header in headers:
        size += 10 + len(name.encode()) + (0 if header is None else len(_as_bytes(header)))
    return size


def murmur2(key: Buffer) -> int:
    """Java's 32-bit murmur2 of a key, as a signed integer: what keyed partitioning hashes with."""
    data = _as_bytes(key)
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
