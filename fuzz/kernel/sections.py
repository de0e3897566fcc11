"""The target "sections": reads any bytes as a records section with any header.

An input is the arguments, `ARGUMENTS`, then the section.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from fuzz.kernel.oracle import RaisedError, all_fields, require, require_equal, result_of
from kafka_async.kernel import Section

if TYPE_CHECKING:
    from fuzz.kernel.kernel_pair import KernelPair

# Flags, count, base offset, last offset delta, base and max timestamp, start, end.
ARGUMENTS = struct.Struct("<BiqiqqqqB")
LOG_APPEND_TIME = 0x01
AS_VIEW = 0x02
TWO_SECTIONS = 0x04
HEADERS = 0x08
TO_THE_END = 0x10
FROM_THE_BEGIN = 0x20

TOPIC, PARTITION = "topic", 7
MAX_INT64 = (1 << 63) - 1


class Arguments(NamedTuple):
    """Holds the arguments of the kernel's functions."""

    section: Section
    sections: list[Section]
    epoch: int
    start: int
    end: int
    headers: bool


def prepare(data: bytes) -> Arguments | None:
    """Return the arguments of an input, None if it is too short."""
    if len(data) < ARGUMENTS.size:
        return None
    flags, count, base, last, first_time, latest, start, end, epoch = ARGUMENTS.unpack_from(data)
    payload = data[ARGUMENTS.size :]
    section = Section(
        memoryview(payload) if flags & AS_VIEW else payload,
        *(count, base, last, first_time, latest, flags & LOG_APPEND_TIME),
    )
    return Arguments(
        section,
        [section] * (2 if flags & TWO_SECTIONS else 1),
        epoch - 1,
        0 if flags & FROM_THE_BEGIN else start,
        MAX_INT64 if flags & TO_THE_END else end,
        bool(flags & HEADERS),
    )


def run(kernel: Any, given: Arguments | None) -> int:
    """Read the section without checks; return the bytes read."""
    if given is None:
        return 0
    section, sections, epoch, start, end, headers = given
    result_of(lambda: kernel.parse_records(section, TOPIC, PARTITION, epoch, start))
    result_of(lambda: kernel.parse_columns(sections, TOPIC, PARTITION, start, end, headers))
    return memoryview(section.data).nbytes * len(sections)


def check(pair: KernelPair, data: bytes) -> None:
    """Read the section as records and columns; raise Finding if a promise is broken."""
    given = prepare(data)
    if given is None:
        return
    records, columns = _read(pair.compiled, given)
    slices = result_of(lambda: _slices(pair.compiled, given))
    require_equal("records and their slices", records, slices)
    if isinstance(records, RaisedError) or isinstance(columns, RaisedError):
        require_equal("records and columns", records, columns)
    else:
        # Columns contain the rows of both sections; only they are limited by `end`.
        wanted = sum(record[2] < given.end for record in records) * len(given.sections)
        require(columns.rows == wanted, f"{columns.rows} rows of {wanted} records")
    if pair.due():
        pure_records, pure_columns = _read(pair.pure, given)
        require_equal("records", records, pure_records)
        require_equal("columns", columns, pure_columns)
        require_equal("slices", slices, result_of(lambda: _slices(pair.pure, given)))


def _read(kernel: Any, given: Arguments) -> tuple[Any, Any]:
    section, sections, epoch, start, end, headers = given

    def records() -> object:
        return all_fields(kernel.parse_records(section, TOPIC, PARTITION, epoch, start))

    def columns() -> object:
        return kernel.parse_columns(sections, TOPIC, PARTITION, start, end, headers)

    return result_of(records), result_of(columns)


def _slices(kernel: Any, given: Arguments) -> object:
    """Return the records, read seven at a time, or raise where one cannot be read."""
    reader = kernel.RecordReader(given.section, TOPIC, PARTITION, given.epoch, given.start)
    records: list[Any] = []
    while not reader.done:
        records += reader.read(7)
    return all_fields(records)
