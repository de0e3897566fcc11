"""Reads the records of a batch.

`_read_record` is the specification: it checks every length against the enclosing one before using
it, so that hostile bytes raise CorruptRecordError and allocate nothing. `_read_common_record` reads
nearly all records in less than half the time, and leaves the rest to `_read_record`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from kafka_async.kernel.shared import (
    MAX_INT64,
    MIN_INT64,
    MIN_RECORD_SIZE,
    Corruption,
    copy_error,
    corrupt_record_error,
    to_bytes,
)
from kafka_async.kernel.values import Record, RecordFields
from kafka_async.kernel.varints import CorruptSection, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from kafka_async.errors import CorruptRecordError
    from kafka_async.kernel.shared import Section
    from kafka_async.types import Header

    # Headers decoded, or raw: the section's bytes of their count, names and values.
    _Headers: TypeAlias = tuple[Header, ...] | bytes
    # Timestamp, offset delta, key, value, headers, and the position of the next record.
    _Fields: TypeAlias = tuple[int, int, bytes | None, bytes | None, _Headers, int]

_MAX_CACHED_NAMES: Final = 256  # uncommon records may add wrong ones


def _read_field(
    data: bytes, at: int, end: int, corruption: Corruption = Corruption.HEADER
) -> tuple[bytes | None, int]:
    """Return the field at `at` and the position after it; raise CorruptSection beyond `end`."""
    length, at = read_varint(data, at, end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptSection(corruption)
    return data[at : at + length], at + length


def _read_header_count(data: bytes, at: int, end: int) -> tuple[int, int]:
    count, at = read_varint(data, at, end)
    if not 0 <= count * 2 <= end - at:  # a header is at least two lengths
        raise CorruptSection(Corruption.HEADER_COUNT)
    return count, at


def _read_header(data: bytes, at: int, end: int) -> tuple[bytes, bytes | None, int]:
    name, at = _read_field(data, at, end)
    if name is None:
        raise CorruptSection(Corruption.HEADER)
    value, at = _read_field(data, at, end)
    return name, value, at


def _read_raw_headers(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """Check headers; return their bytes, empty without headers, and the position after them."""
    first = at
    count, at = _read_header_count(data, at, end)
    for _ in range(count):
        _, _, at = _read_header(data, at, end)
    return data[first:at] if count else b"", at


def iter_headers(raw_headers: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the names, as valid UTF-8, and the values of raw headers."""
    if not raw_headers:
        return
    end = len(raw_headers)
    count, at = read_varint(raw_headers, 0, end)
    for _ in range(count):
        name, value, at = _read_header(raw_headers, at, end)
        yield name if name.isascii() else name.decode(errors="replace").encode(), value


def _read_headers(
    data: bytes, at: int, end: int, names: dict[bytes, str]
) -> tuple[tuple[Header, ...], int]:
    count, at = _read_header_count(data, at, end)
    headers: list[Header] = []
    for _ in range(count):
        name, value, at = _read_header(data, at, end)
        header = (_decode_name(name, names), value)
        # Equal neighbours share one object: a header may take only two bytes in the section, but
        # takes 56 as a tuple.
        headers.append(headers[-1] if headers and headers[-1] == header else header)
    return tuple(headers), at


def _decode_name(raw_name: bytes, names: dict[bytes, str]) -> str:
    # A one-byte name that is not UTF-8 becomes a string of 76 bytes. Sharing the few short names
    # keeps a batch full of them within its memory limit.
    name = names.get(raw_name)
    if name is None:
        name = raw_name.decode(errors="replace")
        if len(raw_name) <= 2 and not raw_name.isascii():
            name = names[raw_name] = names.setdefault(name.encode(), name)
    return name


def _read_record(
    data: bytes, at: int, section: Section, previous_delta: int, names: dict[bytes, str] | None
) -> _Fields:
    length, at = read_varint(data, at, len(data))
    if not 0 <= length <= len(data) - at:
        raise CorruptSection(Corruption.LENGTH)
    end = at + length
    if not length:
        raise CorruptSection(Corruption.TRUNCATED)
    at += 1  # no attributes are defined
    timestamp_delta, at = read_varint(data, at, end, 64)
    delta, at = read_varint(data, at, end)
    if not previous_delta < delta <= section.last_offset_delta:
        raise CorruptSection(Corruption.OFFSET_DELTA)
    timestamp = section.max_timestamp
    if section.timestamp_type == 0:
        timestamp = section.base_timestamp + timestamp_delta
        if not MIN_INT64 <= timestamp <= MAX_INT64:
            raise CorruptSection(Corruption.TIMESTAMP)
    key, at = _read_field(data, at, end, Corruption.FIELD)
    value, at = _read_field(data, at, end, Corruption.FIELD)
    if names is None:
        headers, at = _read_raw_headers(data, at, end)
    else:
        headers, at = _read_headers(data, at, end, names)
    if at != end:
        raise CorruptSection(Corruption.RECORD_LEFTOVER)
    return timestamp, delta, key, value, headers, end


class _UncommonRecordError(IndexError):
    """The record is not common. An IndexError beyond the data means the same."""


def _read_common_record(data: bytes, at: int, names: dict[bytes, str] | None) -> _Fields:
    """Read a record without long or invalid fields; return the timestamp's delta.

    All lengths are checked once, at the end. Positions only grow, so a record that ends where its
    length requires was read from its own bytes only. The raw varint of a valid length in one or two
    bytes is even and at most 16383.
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
        time, at = read_varint(data, at - 2, end, 64)
    else:
        time = (time >> 1) ^ -(time & 1)
    delta = data[at]
    at += 1
    if delta > 127:
        delta += (data[at] << 7) - 128
        at += 1
    if delta > 16383:
        delta, at = read_varint(data, at - 2, end)
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
    headers, at = _read_common_headers(data, at, names) if data[at] else ((), at + 1)
    sizes = size | key_size | value_size
    if at != end or end > len(data) or sizes & 1 or sizes > 16383:
        raise _UncommonRecordError
    return time, delta, key, value, headers, at


def _read_common_headers(
    data: bytes, at: int, names: dict[bytes, str] | None
) -> tuple[_Headers, int]:
    """Read the headers of a common record; `names` caches decoded names."""
    if names is None:
        return _read_common_raw_headers(data, at)
    count = sizes = data[at]
    at += 1
    headers: list[Header] = []
    for _ in range(count >> 1):
        size = data[at]
        sizes |= size
        at += 1
        stop = at + (size >> 1)
        raw_name = data[at:stop]
        name = names.get(raw_name)
        if name is None:
            name = _decode_name(raw_name, names)
            if len(names) < _MAX_CACHED_NAMES:
                names[raw_name] = name
        size = data[stop]
        at = stop + 1
        value = None
        if size != 1:
            sizes |= size
            stop = at + (size >> 1)
            value = data[at:stop]
            at = stop
        headers.append((name, value))
    # One test for all lengths: a negative one is odd, one of two bytes has the highest bit set.
    if sizes & 0x81:
        raise _UncommonRecordError
    return tuple(headers), at


def _read_common_raw_headers(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes of a common record's headers, and the position after them."""
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
        raise _UncommonRecordError
    return data[first:at], at


def _check_section(section: Section, size: int) -> None:
    base = section.base_offset
    if base < 0 or not 0 <= section.last_offset_delta < MAX_INT64 - base:
        raise CorruptSection(Corruption.OFFSETS)
    if not 0 <= section.records_count * MIN_RECORD_SIZE <= size:
        raise CorruptSection(Corruption.COUNT)


class RecordReader:
    """Reads the records of a section from offset `start` on, some at a time.

    Bytes in a header name that are not UTF-8 become U+FFFD, as in Java's consumer: one malformed
    header must not block a partition. Owned by one thread; refers to the section's bytes. Raises
    CorruptRecordError if the section contradicts its batch header.
    """

    __slots__ = (
        "_at",
        "_data",
        "_end",
        "_epoch",
        "_names",
        "_partition",
        "_previous_delta",
        "_remaining",
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
        self._data = to_bytes(section.data)
        self._topic, self._partition = topic, partition
        self._epoch = None if leader_epoch < 0 else leader_epoch
        self._start, self._end = start, MAX_INT64
        self._names: dict[bytes, str] | None = {}
        self._at, self._previous_delta, self._remaining = 0, -1, section.records_count
        try:
            _check_section(section, len(self._data))
        except CorruptSection as error:
            raise self._corrupt_record_error(error) from None

    def __reduce__(self) -> NoReturn:
        raise copy_error(self)

    @property
    def done(self) -> bool:
        """True if the section was read to its end without an error."""
        return not self._remaining and self._at == len(self._data)

    def read(self, count: int, size: int = MAX_INT64) -> list[Record]:
        """Read the next `count` records and return those at offset `start` or higher.

        Reads fewer at the section's end, or after `size` bytes. At a corrupt record, every call
        raises CorruptRecordError with the record's offset, after all earlier records have been
        returned.
        """
        records: list[Record] = []
        try:
            self._read(count, size, records)
        except CorruptSection as error:
            if not records:
                raise self._corrupt_record_error(error) from None
        return records

    def _corrupt_record_error(self, error: CorruptSection) -> CorruptRecordError:
        offset = self._section.base_offset + self._previous_delta + 1
        return corrupt_record_error(error.corruption, self._topic, self._partition, offset)

    def _read(self, count: int, size: int, records: list[Record]) -> None:
        section, data, names = self._section, self._data, self._names
        topic, partition, epoch = self._topic, self._partition, self._epoch
        base, last, kind = section.base_offset, section.last_offset_delta, section.timestamp_type
        first_time = section.base_timestamp
        start, end = self._start, self._end
        remaining, at, previous = self._remaining, self._at, self._previous_delta
        stop = at + size
        try:
            for _ in range(min(count, remaining)):
                # A common record takes one call. Any other record, including one with an offset or
                # timestamp out of range, is read again by the specification, which returns it or
                # raises the exact error.
                if at >= stop:
                    return
                try:
                    time, delta, key, value, headers, next_at = _read_common_record(data, at, names)
                    time = section.max_timestamp if kind else first_time + time
                    if not previous < delta <= last or not MIN_INT64 <= time <= MAX_INT64:
                        raise _UncommonRecordError
                except (IndexError, CorruptSection):
                    fields = _read_record(data, at, section, previous, names)
                    time, delta, key, value, headers, next_at = fields
                at = next_at
                previous = delta
                remaining -= 1
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
            self._at, self._previous_delta, self._remaining = at, previous, remaining
        if not remaining and at != len(data):
            raise CorruptSection(Corruption.SECTION_LEFTOVER)


class _RawHeadersReader(RecordReader):
    """Reads records, and leaves their headers as bytes for `iter_headers`."""

    __slots__ = ()

    def __init__(self, section: Section, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(section, topic, partition, start=start)
        self._end, self._names = end, None


def read_with_raw_headers(
    section: Section, topic: str, partition: int, start: int, end: int
) -> list[Record]:
    """Return the records with `start` <= offset < `end`, with their headers as bytes.

    Only `parse_columns` may use such records: it builds columns without an object per header.
    """
    return _read_all(_RawHeadersReader(section, topic, partition, start, end), section)


def _read_all(reader: RecordReader, section: Section) -> list[Record]:
    """Return all records of a section, or raise the first corrupt record's error."""
    records = reader.read(section.records_count)
    if not reader.done:
        reader.read(1)  # raises
    return records


def parse_records(
    section: Section, topic: str, partition: int, leader_epoch: int = -1, start: int = 0
) -> list[Record]:
    """Return all records of a section from offset `start` on; the whole section is validated.

    Raises CorruptRecordError with the offset of the first record that cannot be read.
    """
    return _read_all(RecordReader(section, topic, partition, leader_epoch, start), section)
