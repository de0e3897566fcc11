"""Values and error messages that both kernels share.

Nothing here runs per record on the hot path. Both kernels take their messages from here, so they
raise the same errors.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.errors import CorruptRecordError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MIN_RECORD_SIZE: Final = 7
"""Bytes: a length and six fields of at least one byte each."""
MAX_RECORD_OVERHEAD: Final = 36
"""Maximum bytes of a record without its key, value and headers.

Length 5, attributes 1, timestamp 10, offset 5, key length 5, value length 5, header count 5.
"""
MAX_TIMESTAMP: Final = (1 << 63) - 2
"""Milliseconds. One more, and the difference to a timestamp of -1 would overflow int64."""
MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1
MIN_INT64: Final = -(1 << 63)

_MAX_REPR_BYTES: Final = 32


class Corruption(enum.IntEnum):
    """Kinds of corruption in a records section."""

    TRUNCATED = 1
    VARINT = 2
    COUNT = 3
    OFFSETS = 4
    LENGTH = 5
    OFFSET_DELTA = 6
    TIMESTAMP = 7
    FIELD = 8
    HEADER_COUNT = 9
    HEADER = 10
    RECORD_LEFTOVER = 11
    SECTION_LEFTOVER = 12


_MESSAGES: Final = {
    Corruption.TRUNCATED: "the record ends inside a field",
    Corruption.VARINT: "a variable-length integer does not fit its type",
    Corruption.COUNT: "the batch is too short for the number of records it claims",
    Corruption.OFFSETS: "the batch's offsets are outside the legal range",
    Corruption.LENGTH: "the record's length is negative or beyond the batch",
    Corruption.OFFSET_DELTA: (
        "the record's offset is out of order or beyond the batch's last offset"
    ),
    Corruption.TIMESTAMP: "the record's timestamp is outside the legal range",
    Corruption.FIELD: "the length of a key or value is negative or beyond the record",
    Corruption.HEADER_COUNT: "the number of headers is negative or beyond the record",
    Corruption.HEADER: "a header's name is null, or its length is negative or beyond the record",
    Corruption.RECORD_LEFTOVER: "bytes are left over after the record's last field",
    Corruption.SECTION_LEFTOVER: "bytes are left over after the batch's last record",
}


def corrupt_record_error(
    corruption: int,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
) -> CorruptRecordError:
    """Return the error for a corruption; `offset` is the first record's that cannot be read."""
    message = _MESSAGES[Corruption(corruption)]
    return CorruptRecordError(message, topic=topic, partition=partition, offset=offset)


class Section(NamedTuple):
    """Holds the decompressed records of one batch and the header fields needed to read them."""

    data: Buffer
    records_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    timestamp_type: int


class BinaryColumn(NamedTuple):
    """Holds a column of byte strings in Arrow's layout, in the machine's byte order.

    `validity` is a bitmap, or None without nulls; `offsets` are int32, one more than rows.
    """

    validity: bytes | None
    offsets: bytes
    data: bytes


class HeaderColumn(NamedTuple):
    """Holds a column of header lists; an empty list is null.

    `offsets` (int32) index the names and values.
    """

    validity: bytes | None
    offsets: bytes
    names: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """Holds records as columns in Arrow's layout.

    Offsets and timestamps (milliseconds) are int64, timestamp types int32.
    """

    rows: int
    keys: BinaryColumn
    values: BinaryColumn
    offsets: bytes
    timestamps: bytes
    timestamp_types: bytes
    headers: HeaderColumn | None


class RowFault(enum.IntEnum):
    """Reasons why a row of Arrow columns cannot become a record."""

    SIZE = 1
    PARTITION = 2
    TIMESTAMP = 3
    HEADER_NAME = 4


class BinaryInput(NamedTuple):
    """Holds an input column of byte strings in Arrow's layout.

    `start` is the position of the first row in `validity` and `offsets`; the offsets are int64 if
    `wide` is set, otherwise int32.
    """

    rows: int
    start: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer
    wide: bool


class NumberInput(NamedTuple):
    """Holds an input column of integers in Arrow's layout: int64 if `wide`, else int32."""

    rows: int
    start: int
    validity: Buffer | None
    data: Buffer
    wide: bool


class HeaderInput(NamedTuple):
    """Holds an input column of header lists in Arrow's layout.

    The offsets index the names and values; a null list has no headers.
    """

    rows: int
    start: int
    validity: Buffer | None
    offsets: Buffer
    wide: bool
    names: BinaryInput
    values: BinaryInput


def arrow_layout_error(column: str) -> ValueError:
    """Return the error for buffers that do not have Arrow's layout."""
    return ValueError(
        f"the buffers of column {column} do not have Arrow's layout: "
        "RecordBatch.validate(full=True) says where"
    )


def copy_error(value: object) -> TypeError:
    """Return the error for copying or pickling an object that has one owner."""
    return TypeError(f"{type(value).__name__} objects cannot be copied or pickled")


def abbreviate(value: object) -> str:
    """Return the repr of a value; long byte strings are cut and followed by their size."""
    if isinstance(value, bytes) and len(value) > _MAX_REPR_BYTES:
        return f"{value[:_MAX_REPR_BYTES]!r}...({len(value)} bytes)"
    return repr(value)


def to_bytes(value: Buffer) -> bytes:
    """Return the bytes of any buffer; a bytes object is not copied."""
    # bytes(value) would turn an int into that many zero bytes.
    return value if isinstance(value, bytes) else bytes(memoryview(value))
