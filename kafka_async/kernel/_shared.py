"""What the two kernels share: the values that pass through them and the sentences they raise.

Nothing here runs once a record on the hot path; keeping it in one place is what makes the twins
raise the same errors with the same words.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafka_async.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from typing_extensions import Buffer

    from kafka_async.kernel._pyvalues import Delivery
    from kafka_async.types import RecordMetadata

# A record is a length and six fields of at least one byte each.
MIN_RECORD_SIZE: Final = 7
# Room for the varints around key and value at their longest: length 5, attributes 1, timestamp 10,
# offset 5, key length 5, value length 5, header count 5.
MAX_RECORD_OVERHEAD: Final = 36
# An outermost timestamp of int64 would let the difference of two of them overflow.
MAX_TIMESTAMP: Final = (1 << 63) - 2
MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1

_SHOWN_BYTES: Final = 32


class Fault(enum.IntEnum):
    """What is wrong with a records section."""

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


_SENTENCES: Final = {
    Fault.TRUNCATED: "the record ends inside a field",
    Fault.VARINT: "a variable-length integer does not fit its type",
    Fault.COUNT: "the batch is too short for the number of records it claims",
    Fault.OFFSETS: "the batch's offsets are outside the legal range",
    Fault.LENGTH: "the record's length is negative or beyond the batch",
    Fault.OFFSET_DELTA: "the record's offset is out of order or beyond the batch's last offset",
    Fault.TIMESTAMP: "the record's timestamp is outside the legal range",
    Fault.FIELD: "the length of a key or value is negative or beyond the record",
    Fault.HEADER_COUNT: "the number of headers is negative or beyond the record",
    Fault.HEADER: "a header's name is null, or its length is negative or beyond the record",
    Fault.RECORD_LEFTOVER: "bytes are left over after the record's last field",
    Fault.SECTION_LEFTOVER: "bytes are left over after the batch's last record",
}


def corrupt(
    fault: int, topic: str | None = None, partition: int | None = None, offset: int | None = None
) -> CorruptRecordError:
    """The error for a fault; the offset is that of the first record that cannot be read."""
    sentence = _SENTENCES[Fault(fault)]
    return CorruptRecordError(sentence, topic=topic, partition=partition, offset=offset)


class Section(NamedTuple):
    """The decompressed records of one batch, with what its header says about them."""

    data: Buffer
    records_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    timestamp_type: int


class BinaryColumn(NamedTuple):
    """A column of byte strings as Arrow lays it out, in the machine's byte order.

    `validity` is a bitmap, or None when no value is null; `offsets` are int32, one more than rows.
    """

    validity: bytes | None
    offsets: bytes
    data: bytes


class HeaderColumn(NamedTuple):
    """A column of header lists: `offsets` (int32) into the names and values; null when empty."""

    validity: bytes | None
    offsets: bytes
    names: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """Records as columns: offsets and timestamps (milliseconds) int64, timestamp types int32."""

    rows: int
    keys: BinaryColumn
    values: BinaryColumn
    offsets: bytes
    timestamps: bytes
    timestamp_types: bytes
    headers: HeaderColumn | None


class Outcome(Protocol):
    """What became of a batch; every handle of the batch asks it."""

    @property
    def done(self) -> bool:
        """Whether the batch was acknowledged or has failed."""
        ...

    def wait(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        """Wait until the batch is done: what awaiting the handle gives, or raises."""
        ...

    def result(self, delivery: Delivery) -> RecordMetadata:
        """The metadata of that record; raises its error, or IllegalStateError if not done."""
        ...

    def exception(self, delivery: Delivery) -> BaseException | None:
        """The batch's error, None if it was acknowledged; raises IllegalStateError if not done."""
        ...

    def add_done_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call a function with the delivery once the batch is done."""
        ...


def uncopied(value: object) -> TypeError:
    """The error for copying or pickling what has one owner."""
    return TypeError(f"{type(value).__name__} objects cannot be copied or pickled")


def show(value: object) -> str:
    """A value for a repr: long byte strings are cut and their size is given instead."""
    if isinstance(value, bytes) and len(value) > _SHOWN_BYTES:
        return f"{value[:_SHOWN_BYTES]!r}...({len(value)} bytes)"
    return repr(value)
