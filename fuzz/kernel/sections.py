"""The target "sections": any bytes as a records section, under any header.

An input is the arguments, `ARGUMENTS`, and then the section.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from fuzz.kernel.oracle import Refusal, all_fields, answer, holds, same
from kafka_async.kernel import Section

if TYPE_CHECKING:
    from fuzz.kernel.twins import Twins

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
    """What the kernel is called with."""

    section: Section
    sections: list[Section]
    epoch: int
    start: int
    end: int
    headers: bool


def prepare(data: bytes) -> Arguments | None:
    """The arguments of an input, None if it is too short."""
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
    """Only the kernel's work; gives the bytes that it was about."""
    if given is None:
        return 0
    section, sections, epoch, start, end, headers = given
    answer(lambda: kernel.parse_records(section, TOPIC, PARTITION, epoch, start))
    answer(lambda: kernel.parse_columns(sections, TOPIC, PARTITION, start, end, headers))
    return memoryview(section.data).nbytes * len(sections)


def check(twins: Twins, data: bytes) -> None:
    """Read the section in both ways; raise Finding where something does not hold."""
    given = prepare(data)
    if given is None:
        return
    records, columns = _read(twins.compiled, given)
    slices = answer(lambda: _slices(twins.compiled, given))
    same("records and their slices", records, slices)
    if isinstance(records, Refusal) or isinstance(columns, Refusal):
        same("records and columns", records, columns)
    else:
        # Of two sections both rows; `end` bounds only columns.
        wanted = sum(record[2] < given.end for record in records) * len(given.sections)
        holds(columns.rows == wanted, f"{columns.rows} rows of {wanted} records")
    if twins.due():
        pure_records, pure_columns = _read(twins.pure, given)
        same("records", records, pure_records)
        same("columns", columns, pure_columns)
        same("slices", slices, answer(lambda: _slices(twins.pure, given)))


def _read(kernel: Any, given: Arguments) -> tuple[Any, Any]:
    section, sections, epoch, start, end, headers = given

    def records() -> object:
        return all_fields(kernel.parse_records(section, TOPIC, PARTITION, epoch, start))

    def columns() -> object:
        return kernel.parse_columns(sections, TOPIC, PARTITION, start, end, headers)

    return answer(records), answer(columns)


def _slices(kernel: Any, given: Arguments) -> object:
    """The records, seven at a time, or what is raised where the next one cannot be read."""
    reader = kernel.RecordReader(given.section, TOPIC, PARTITION, given.epoch, given.start)
    records: list[Any] = []
    while not reader.done:
        records += reader.read(7)
    return all_fields(records)
