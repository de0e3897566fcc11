"""Message sets of magic 0 and 1, read only: logs that were written before Kafka 0.11.

An entry is an offset, a size and a message; a compressed one is a message whose value is a message
set. Inside it magic 0 gives absolute offsets, magic 1 offsets relative to the first, so that the
wrapper's offset (the last one's) is needed to make them absolute.

    offset 8  size 4  crc 4  magic 1  attributes 1  [timestamp 8]  key 4+  value 4+

lz4 data inside magic 0 has a header checksum that Kafka got wrong; as in Java it is not looked at.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async import kernel
from kafka_async.errors import CorruptRecordError
from kafka_async.records import compression, lz4_header
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.kernel import Record

# The size field of the smallest message: CRC, magic, attributes, (timestamp,) two null fields.
MIN_LENGTH: Final = (14, 22)
"""The least that an entry's size field may say, by magic."""

_PREFIX: Final = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_AFTER_CRC_AT: Final = 16
_SIZE_AT_END: Final = 12
_CODEC_BITS: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_NO_TIMESTAMP: Final = -1
_MAX_OFFSET: Final = (1 << 63) - 1  # nobody could ask for what comes after it


class Head(NamedTuple):
    """The fixed fields of an entry; `timestamp` is -1 in magic 0."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int


class Entry(NamedTuple):
    """One entry of a message set, with its absolute offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class LegacyRecordReader:
    """Records that were parsed all at once, given as a `kernel.RecordReader` gives its own."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    @property
    def done(self) -> bool:
        """Whether there are no more."""
        return not self._records

    def read(self, count: int, size: int) -> list[Record]:
        """The next so many, whatever their size."""
        records = self._records[:count]
        del self._records[:count]
        return records


def read_head(raw: memoryview) -> Head:
    """The fixed fields of an entry that is as long as `MIN_LENGTH` asks for."""
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
    """Raise CorruptRecordError if the entry's bytes are not those that were written."""
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
    """The records from offset `start` on of one entry, which may be a compressed message set.

    And how many bytes it was decompressed to, 0 if it is not compressed. Raises CorruptRecordError,
    with topic, partition and offset, if it is damaged or decompresses to more than `limit` bytes.
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
    # The wrapper's attribute counts: a broker that stamps its own time rewrites only the wrapper.
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
    """The entries inside a compressed one, with absolute offsets, and what they are in bytes."""
    number = outer.attributes & _CODEC_BITS
    if number > Codec.lz4 or value is None:
        raise CorruptRecordError("a compressed message names no codec of its magic, or is empty")
    codec = Codec(number)
    if codec is Codec.lz4 and outer.magic == 0:
        value = lz4_header.with_right_checksum(value)
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
