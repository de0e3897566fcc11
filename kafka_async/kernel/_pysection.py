"""Reading the records of a section in plain Python, and saying what is wrong with it.

`_row` is the specification: it checks every length against the enclosing one before it uses it, so
hostile bytes end in CorruptRecordError and allocate nothing on their say-so. `_usual_row` reads
what nearly all records look like, in less than half the time, and leaves the rest to `_row`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafka_async.kernel._pyvalues import Record, RecordFields
from kafka_async.kernel._shared import MAX_INT64, MIN_RECORD_SIZE, Fault, corrupt, uncopied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from typing_extensions import Buffer

    from kafka_async.errors import CorruptRecordError
    from kafka_async.kernel._shared import Section
    from kafka_async.types import Header

    # Made, or with `spelled` as they lie in the section: their number, names and values.
    _Headers: TypeAlias = tuple[Header, ...] | bytes
    # Timestamp, offset delta, key, value, headers, and where the next record begins.
    _Row: TypeAlias = tuple[int, int, bytes | None, bytes | None, _Headers, int]

_MIN_INT64: Final = -MAX_INT64 - 1
_REMEMBERED: Final = 256  # names of headers; what is misread as one is among them


def as_bytes(value: Buffer) -> bytes:
    """The bytes of any buffer, uncopied if they are bytes."""
    # Not bytes(value): that would make an int a run of zeros.
    return value if isinstance(value, bytes) else bytes(memoryview(value))


class Damage(Exception):
    """A fault in a section, before it is known where the section comes from."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def take_varint(data: bytes, at: int, end: int, bits: int = 32) -> tuple[int, int]:
    """The number at a position, and the position after it; Damage if it ends beyond `end`."""
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
            raise Damage(Fault.TRUNCATED)
        byte = data[at]
        at += 1
        if shift + 7 > bits and byte >> (bits - shift):
            raise Damage(Fault.VARINT)
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7


def take_field(
    data: bytes, at: int, end: int, fault: Fault = Fault.HEADER
) -> tuple[bytes | None, int]:
    """The bytes or null at a position, and the position after it; Damage if beyond `end`."""
    length, at = take_varint(data, at, end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise Damage(fault)
    return data[at : at + length], at + length


def _header_count(data: bytes, at: int, end: int) -> tuple[int, int]:
    count, at = take_varint(data, at, end)
    if not 0 <= count * 2 <= end - at:  # a header is at least two lengths
        raise Damage(Fault.HEADER_COUNT)
    return count, at


def _header(data: bytes, at: int, end: int) -> tuple[bytes, bytes | None, int]:
    name, at = take_field(data, at, end)
    if name is None:
        raise Damage(Fault.HEADER)
    value, at = take_field(data, at, end)
    return name, value, at


def _spelled_headers(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The headers that `_headers` would make, as they are spelled; empty if there are none."""
    first = at
    count, at = _header_count(data, at, end)
    for _ in range(count):
        _, _, at = _header(data, at, end)
    return data[first:at] if count else b"", at


def read_headers(spelled: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Names, as valid UTF-8, and values of headers that were read as they are spelled."""
    if not spelled:
        return
    end = len(spelled)
    count, at = take_varint(spelled, 0, end)
    for _ in range(count):
        name, value, at = _header(spelled, at, end)
        yield name if name.isascii() else name.decode(errors="replace").encode(), value


def _headers(
    data: bytes, at: int, end: int, names: dict[bytes, str]
) -> tuple[tuple[Header, ...], int]:
    count, at = _header_count(data, at, end)
    headers: list[Header] = []
    for _ in range(count):
        name, value, at = _header(data, at, end)
        header = (_header_name(name, names), value)
        # What is spelled alike is one object, as far as that is easy to see: a header may be two
        # bytes in the data, and is 56 as a tuple.
        headers.append(headers[-1] if headers and headers[-1] == header else header)
    return tuple(headers), at


def _header_name(spelled: bytes, names: dict[bytes, str]) -> str:
    # One byte that is no UTF-8 becomes a string of 76. There are few such short ones; shared, a
    # batch of nothing else stays within what an input may cost in memory.
    name = names.get(spelled)
    if name is None:
        name = spelled.decode(errors="replace")
        if len(spelled) <= 2 and not spelled.isascii():
            name = names[spelled] = names.setdefault(name.encode(), name)
    return name


def _row(
    data: bytes, at: int, section: Section, previous_delta: int, names: dict[bytes, str] | None
) -> _Row:
    length, at = take_varint(data, at, len(data))
    if not 0 <= length <= len(data) - at:
        raise Damage(Fault.LENGTH)
    end = at + length
    if not length:
        raise Damage(Fault.TRUNCATED)
    at += 1  # the attributes, of which none are defined
    timestamp_delta, at = take_varint(data, at, end, 64)
    delta, at = take_varint(data, at, end)
    if not previous_delta < delta <= section.last_offset_delta:
        raise Damage(Fault.OFFSET_DELTA)
    timestamp = section.max_timestamp
    if section.timestamp_type == 0:
        timestamp = section.base_timestamp + timestamp_delta
        if not _MIN_INT64 <= timestamp <= MAX_INT64:
            raise Damage(Fault.TIMESTAMP)
    key, at = take_field(data, at, end, Fault.FIELD)
    value, at = take_field(data, at, end, Fault.FIELD)
    if names is None:
        headers, at = _spelled_headers(data, at, end)
    else:
        headers, at = _headers(data, at, end, names)
    if at != end:
        raise Damage(Fault.RECORD_LEFTOVER)
    return timestamp, delta, key, value, headers, end


class _UnusualError(IndexError):
    """A record that `_usual_row` does not read; reading beyond the data is another such."""


def _usual_row(data: bytes, at: int, names: dict[bytes, str] | None) -> _Row:
    """What `_row` gives, with the timestamp's delta, of a record without long or wrong fields.

    Lengths are taken as they come and looked at once, at the end: positions only grow, so a row
    that ends where its record does was read from nowhere else; and varints of one or two bytes are
    even and at most 16383 unless they are negative or longer than that.
    """
    size = data[at]
    at += 1
    if size > 127:
        size += (data[at] << 7) - 128
        at += 1
    end = at + (size >> 1)
    time = data[at + 1]
    at += 2
    if time > 127:
        time += (data[at] << 7) - 128
        at += 1
    if time > 16383:
        time, at = take_varint(data, at - 2, end, 64)
    else:
        time = (time >> 1) ^ -(time & 1)
    delta = data[at]
    at += 1
    if delta > 127:
        delta += (data[at] << 7) - 128
        at += 1
    if delta > 16383:
        delta, at = take_varint(data, at - 2, end)
    else:
        delta = (delta >> 1) ^ -(delta & 1)
    key = value = None
    key_size = data[at]
    at += 1
    if key_size == 1:
        key_size = 0
    else:
        if key_size > 127:
            key_size += (data[at] << 7) - 128
            at += 1
        stop = at + (key_size >> 1)
        key = data[at:stop]
        at = stop
    value_size = data[at]
    at += 1
    if value_size == 1:
        value_size = 0
    else:
        if value_size > 127:
            value_size += (data[at] << 7) - 128
            at += 1
        stop = at + (value_size >> 1)
        value = data[at:stop]
        at = stop
    headers, at = _usual_headers(data, at, names) if data[at] else ((), at + 1)
    sizes = size | key_size | value_size
    if at != end or end > len(data) or sizes & 1 or sizes > 16383:
        raise _UnusualError
    return time, delta, key, value, headers, at


def _usual_headers(data: bytes, at: int, names: dict[bytes, str] | None) -> tuple[_Headers, int]:
    """What `_headers` gives, as `_usual_row`; `names` has those that were met before."""
    if names is None:
        return _usual_spelled_headers(data, at)
    count = sizes = data[at]
    at += 1
    headers: list[Header] = []
    for _ in range(count >> 1):
        size = data[at]
        sizes |= size
        at += 1
        stop = at + (size >> 1)
        spelled = data[at:stop]
        name = names.get(spelled)
        if name is None:
            name = _header_name(spelled, names)
            if len(names) < _REMEMBERED:
                names[spelled] = name
        size = data[stop]
        at = stop + 1
        value = None
        if size != 1:
            sizes |= size
            stop = at + (size >> 1)
            value = data[at:stop]
            at = stop
        headers.append((name, value))
    if sizes & 0x81:
        raise _UnusualError
    return tuple(headers), at


def _usual_spelled_headers(data: bytes, at: int) -> tuple[bytes, int]:
    """What `_spelled_headers` gives, as `_usual_row`."""
    first = at
    count = sizes = data[at]
    at += 1
    for _ in range(count >> 1):
        size = data[at]
        sizes |= size
        at += 1 + (size >> 1)
        size = data[at]
        at += 1
        if size != 1:
            sizes |= size
            at += size >> 1
    if sizes & 0x81:
        raise _UnusualError
    return data[first:at], at


def _check(section: Section, size: int) -> None:
    base = section.base_offset
    if base < 0 or not 0 <= section.last_offset_delta < MAX_INT64 - base:
        raise Damage(Fault.OFFSETS)
    if not 0 <= section.records_count * MIN_RECORD_SIZE <= size:
        raise Damage(Fault.COUNT)


class RecordReader:
    """Reads the records of a section whose offset is `start` or higher, some at a time.

    Bytes in a header's name that are not UTF-8 become U+FFFD, as for Java's consumers: one foreign
    header must not block a partition. Owned by one thread; refers to the section's bytes. Raises
    CorruptRecordError if the section cannot be what it claims.
    """

    __slots__ = (
        "_at",
        "_data",
        "_end",
        "_epoch",
        "_left",
        "_names",
        "_partition",
        "_previous",
        "_section",
        "_start",
        "_topic",
    )

    def __init__(
        self,
        section: Section,
        topic: str,
        partition: int,
        leader_epoch: int = -1,
        start: int = 0,
    ) -> None:
        self._section = section
        self._data = as_bytes(section.data)
        self._topic, self._partition = topic, partition
        self._epoch = None if leader_epoch < 0 else leader_epoch
        self._start, self._end = start, MAX_INT64
        self._names: dict[bytes, str] | None = {}
        self._at, self._previous, self._left = 0, -1, section.records_count
        try:
            _check(section, len(self._data))
        except Damage as damage:
            raise self._corrupt(damage) from None

    def __reduce__(self) -> NoReturn:
        raise uncopied(self)

    @property
    def done(self) -> bool:
        """Whether the section was read to its end, and nothing was wrong with it."""
        return not self._left and self._at == len(self._data)

    def read(self, count: int, size: int = MAX_INT64) -> list[Record]:
        """The next `count` records, those included that lie before `start` and are left out.

        They are fewer at the section's end, or once `size` bytes of it were read. Raises
        CorruptRecordError, each time, where the next record cannot be read; it carries that
        record's offset, and everything before has been given.
        """
        records: list[Record] = []
        try:
            self._read(count, size, records)
        except Damage as damage:
            if not records:
                raise self._corrupt(damage) from None
        return records

    def _corrupt(self, damage: Damage) -> CorruptRecordError:
        offset = self._section.base_offset + self._previous + 1
        return corrupt(damage.fault, self._topic, self._partition, offset)

    def _read(self, count: int, size: int, records: list[Record]) -> None:
        section, data, names = self._section, self._data, self._names
        topic, partition, epoch = self._topic, self._partition, self._epoch
        base, last, kind = section.base_offset, section.last_offset_delta, section.timestamp_type
        first_time = section.base_timestamp
        start, end = self._start, self._end
        left, at, previous = self._left, self._at, self._previous
        stop = at + size
        try:
            for _ in range(min(count, left)):
                if at >= stop:
                    return
                try:
                    time, delta, key, value, headers, next_at = _usual_row(data, at, names)
                    time = section.max_timestamp if kind else first_time + time
                    if not previous < delta <= last or not _MIN_INT64 <= time <= MAX_INT64:
                        raise _UnusualError
                except (IndexError, Damage):
                    row = _row(data, at, section, previous, names)
                    time, delta, key, value, headers, next_at = row
                at = next_at
                previous = delta
                left -= 1
                if not start <= base + delta < end:
                    continue
                record: Any = RecordFields()
                record.topic = topic
                record.partition = partition
                record.offset = base + delta
                record.timestamp = time
                record.timestamp_type = kind
                record.key = key
                record.value = value
                record.headers = headers
                record.leader_epoch = epoch
                record.__class__ = Record
                records.append(record)
        finally:
            self._at, self._previous, self._left = at, previous, left
        if not left and at != len(data):
            raise Damage(Fault.SECTION_LEFTOVER)


class _SpelledReader(RecordReader):
    """Leaves the headers as they are spelled, for `read_headers`."""

    __slots__ = ()

    def __init__(self, section: Section, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(section, topic, partition, start=start)
        self._end, self._names = end, None


def read_spelled(
    section: Section, topic: str, partition: int, start: int, end: int
) -> list[Record]:
    """All records with `start` <= offset < `end`, the headers of each as bytes.

    For columns, which are made without an object for each header; nobody else may see such records.
    """
    return read_all(_SpelledReader(section, topic, partition, start, end), section)


def read_all(reader: RecordReader, section: Section) -> list[Record]:
    """All records of a section, or the error of the first that cannot be read."""
    records = reader.read(section.records_count)
    if not reader.done:
        reader.read(1)  # raises
    return records
