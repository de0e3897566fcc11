"""Reads message sets of magic 0 and 1, which Kafka wrote before version 0.11.

An entry is an offset, a size and a message. The value of a compressed message is a message set. Its
offsets are absolute in magic 0; in magic 1 they are relative to the first message, and the
wrapper's offset is the last message's absolute offset.

    offset 8  size 4  crc 4  magic 1  attributes 1  [timestamp 8]  key 4+  value 4+

Kafka wrote wrong header checksums into lz4 frames of magic 0; as in Java, they are not checked.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async import kernel
from kafka_async.errors import CorruptRecordError
from kafka_async.records import compression
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.kernel import Record

MIN_LENGTH: Final = (14, 22)
"""Minimum of an entry's size field in bytes, by magic.

It covers CRC, magic, attributes, the timestamp in magic 1, and two null fields.
"""

_PREFIX: Final = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_AFTER_CRC_AT: Final = 16
_SIZE_AT_END: Final = 12
_CODEC_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_NO_TIMESTAMP: Final = -1
_MAX_OFFSET: Final = (1 << 63) - 1  # invalid: the next offset would not fit into int64


class Head(NamedTuple):
    """Holds the fixed fields of an entry; `timestamp` is -1 in magic 0."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int


class Entry(NamedTuple):
    """Holds one entry of a message set, with its absolute offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class LegacyRecordReader:
    """Returns parsed records some at a time, with the methods of `kernel.RecordReader`."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    @property
    def done(self) -> bool:
        """True if all records were returned."""
        return not self._records

    def read(self, count: int, size: int) -> list[Record]:
        """Return the next `count` records; `size` is ignored."""
        records = self._records[:count]
        del self._records[:count]
        return records


def read_head(raw: memoryview) -> Head:
    """Read the fixed fields of an entry, which has at least `MIN_LENGTH` bytes."""
    offset, size, crc, magic, attributes = _PREFIX.unpack_from(raw)
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _TIMESTAMP.unpack_from(raw, _PREFIX.size)
    return Head(offset, size, crc, magic, attributes, timestamp)


def _read_entry(raw: memoryview, head: Head) -> Entry:
    at = _PREFIX.size + (_TIMESTAMP.size if head.magic == 1 else 0)
    try:
        key, at = _field(raw, at)
        value, at = _field(raw, at)
    except struct.error:
        raise CorruptRecordError("a message ends inside a field") from None
    if at != raw.nbytes:
        raise CorruptRecordError("bytes are left over after a message's value")
    return Entry(head.offset, head.timestamp, key, value)


def _field(raw: memoryview, at: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(raw, at)
    at += _LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= raw.nbytes - at:
        raise CorruptRecordError("a message's key or value has an impossible length")
    return bytes(raw[at : at + length]), at + length


def check_crc(raw: memoryview, topic: str | None, partition: int | None, offset: int) -> None:
    """Raise CorruptRecordError if the entry's CRC does not match its bytes."""
    if zlib.crc32(raw[_AFTER_CRC_AT:]) != _PREFIX.unpack_from(raw)[2]:
        raise CorruptRecordError(
            "the message's CRC does not match its bytes",
            topic=topic,
            partition=partition,
            offset=offset,
        )


def read_records(
    raw: memoryview, topic: str, partition: int, start: int, limit: int
) -> tuple[list[Record], int]:
    """Return the records of one entry from offset `start` on, and its decompressed size in bytes.

    The size is 0 unless the entry is a compressed message set. Raises CorruptRecordError, with
    topic, partition and offset, if the entry is corrupt or decompresses to more than `limit` bytes.
    """
    head = read_head(raw)
    try:
        check_crc(raw, topic, partition, head.offset)
        outer = _read_entry(raw, head)
        entries, decompressed_bytes = [outer], 0
        if head.attributes & _CODEC_BITS:
            entries, decompressed_bytes = _unwrap(head, outer.value, limit)
    except CorruptRecordError as error:
        raise CorruptRecordError(
            error.message, topic=topic, partition=partition, offset=head.offset
        ) from error
    # A broker that sets the append time rewrites only the wrapper, so the wrapper's attribute
    # counts.
    append_time = head.magic == 1 and head.attributes & _LOG_APPEND_TIME
    records = [
        kernel.Record(
            topic,
            partition,
            entry.offset,
            outer.timestamp if append_time else entry.timestamp,
            1 if append_time else 0,
            entry.key,
            entry.value,
        )
        for entry in entries
        if entry.offset >= start
    ]
    return records, decompressed_bytes


def _unwrap(outer: Head, value: bytes | None, limit: int) -> tuple[list[Entry], int]:
    """Return the entries in a compressed entry, with absolute offsets, and their size in bytes."""
    number = outer.attributes & _CODEC_BITS
    if number > Codec.lz4 or value is None:
        raise CorruptRecordError("a compressed message names no codec of its magic, or is empty")
    codec = Codec(number)
    if codec is Codec.lz4 and outer.magic == 0:
        value = compression.with_correct_lz4_checksum(value)
    data = memoryview(compression.decompress(codec, value, limit))
    entries: list[Entry] = []
    for raw in _iter_raw(data):
        head = read_head(raw)
        if head.magic != outer.magic or head.attributes & _CODEC_BITS:
            raise CorruptRecordError("a compressed message holds one of another kind")
        check_crc(raw, None, None, head.offset)
        if entries and head.offset <= entries[-1].offset:
            raise CorruptRecordError("the offsets inside a compressed message do not ascend")
        entries.append(_read_entry(raw, head))
    if not entries:
        raise CorruptRecordError("a compressed message holds none")
    shift = outer.offset - entries[-1].offset if outer.magic == 1 else 0
    if entries[0].offset + shift < 0 or entries[-1].offset + shift >= _MAX_OFFSET:
        raise CorruptRecordError("the offsets inside a compressed message are impossible")
    return [entry._replace(offset=entry.offset + shift) for entry in entries], data.nbytes


def _iter_raw(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < data.nbytes:
        if data.nbytes - at < _PREFIX.size:
            raise CorruptRecordError("a compressed message ends inside an entry")
        _, size, _, magic, _ = _PREFIX.unpack_from(data, at)
        end = at + _SIZE_AT_END + size
        if magic not in (0, 1) or size < MIN_LENGTH[magic] or end > data.nbytes:
            raise CorruptRecordError("a compressed message holds an entry that is impossible")
        yield data[at:end]
        at = end
