"""The target "sections": reads any bytes as a records section with any header.

An input is the arguments, `ARGUMENTS`, then the section.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from fuzz import captured
from fuzz.kernel_pair import PAIR
from fuzz.oracle import RaisedError, all_fields, require, require_equal, result_of
from fuzz.records import TIME, large_sections
from fuzz.target import Target
from kafka_async import kernel as installed
from kafka_async.kernel import Section
from kafka_async.records.batch import iter_batches
from tests.kernel.wire import encoded_headers, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Flags, count, base offset, last offset delta, base and max timestamp, start, end.
ARGUMENTS = struct.Struct("<BiqiqqqqB")
LOG_APPEND_TIME = 0x01
AS_VIEW = 0x02
TWO_SECTIONS = 0x04
HEADERS = 0x08
TO_THE_END = 0x10
FROM_THE_BEGIN = 0x20
READ_ALL = HEADERS | FROM_THE_BEGIN | TO_THE_END

TOPIC, PARTITION = "topic", 7
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1


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


def run(data: bytes) -> None:
    """Read an input in every way; raise Finding if a promise is broken."""
    given = prepare(data)
    if given is not None:
        check(given)


def check(given: Arguments) -> None:
    """Read the sections as records and columns; raise Finding if a promise is broken."""
    records, columns, slices = _read(PAIR.compiled, given)
    failed = slices[-1] if slices and isinstance(slices[-1], RaisedError) else None
    together = list(itertools.chain.from_iterable(slices)) if failed is None else failed
    require_equal("records and their slices", records, together)
    if isinstance(records, RaisedError) or isinstance(columns, RaisedError):
        require_equal("records and columns", records, columns)
    else:
        # Columns contain the rows of both sections; only they are limited by `end`.
        wanted = sum(row[2] < given.end for row in records) * len(given.sections)
        require(columns.rows == wanted, f"{columns.rows} rows of {wanted} records")
    if PAIR.due():
        for what, ours, theirs in zip(
            ("records", "columns", "slices"),
            (records, columns, slices),
            _read(PAIR.pure, given),
            strict=True,
        ):
            require_equal(f"the {what} of both kernels", ours, theirs)


def _read(kernel: Any, given: Arguments) -> tuple[Any, Any, list[Any]]:
    """Return the records, the columns, and the result of each call that reads some records."""
    section, sections, epoch, start, end, headers = given

    def slices() -> Iterator[object]:
        reader: Any = result_of(
            lambda: kernel.RecordReader(section, TOPIC, PARTITION, epoch, start)
        )
        if isinstance(reader, RaisedError):
            yield reader
            return
        for limits in itertools.cycle([(2,), (3, 20)]):
            if reader.done:
                return
            yield (read := result_of(lambda: all_fields(reader.read(*limits))))  # noqa: B023
            if isinstance(read, RaisedError):
                return

    return (
        result_of(
            lambda: all_fields(kernel.parse_records(section, TOPIC, PARTITION, epoch, start))
        ),
        result_of(lambda: kernel.parse_columns(sections, TOPIC, PARTITION, start, end, headers)),
        list(slices()),
    )


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that only reads, with the kernel of the process."""
    given = prepare(data)

    def read() -> None:
        if given is not None:
            section, sections, epoch, start, end, headers = given
            result_of(lambda: installed.parse_records(section, TOPIC, PARTITION, epoch, start))
            result_of(
                lambda: installed.parse_columns(sections, TOPIC, PARTITION, start, end, headers)
            )

    return read


def size(data: bytes) -> int:
    """Return the bytes that are read."""
    given = prepare(data)
    return 0 if given is None else memoryview(given.section.data).nbytes * len(given.sections)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield the sections of batches that Kafka's classes wrote, and small ones."""
    for name, buffer in captured.batches().items():
        for number, view in enumerate(iter_batches(buffer)):
            if view.header.magic == 2:
                data, *header = view.section()
                yield f"{name}-{number}", _input(bytes(memoryview(data)), header, READ_ALL)
    records = (
        record(key=b"key"),
        record(delta=1, value=None),
        record(key=b"", value=b"", delta=2),
    )
    for flags in (0, AS_VIEW | TWO_SECTIONS, READ_ALL | TWO_SECTIONS):
        yield (
            f"small-{flags}",
            _input(b"".join(records), [3, 100, 2, TIME, TIME + 9, 0], flags),
        )
    yield "lowest-base-offset", _input(records[0], [1, MIN_INT64, 2, TIME, TIME + 9, 0], READ_ALL)
    unnamed = record(headers=encoded_headers(("", None), ("", b"")))
    yield "empty-header-names", _input(unnamed, [1, 100, 0, TIME, TIME, 0], READ_ALL)
    yield "empty", b""
    yield "zeros", bytes(ARGUMENTS.size)


def _input(data: bytes, header: list[int], flags: int) -> bytes:
    *numbers, kind = header
    flags |= LOG_APPEND_TIME if kind else 0
    return ARGUMENTS.pack(flags, *numbers, 0, MAX_INT64, 3) + data


def large() -> Iterator[bytes]:
    """Yield sections of 64 KiB, each the worst of its kind for time or memory."""
    for data, count in large_sections():
        yield _input(data, [count, 100, count - 1, TIME, TIME, 0], READ_ALL)


TARGET = Target(run, subject, size, seeds, large=large)
