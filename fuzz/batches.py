"""The target "batches": reads any bytes as a fetched buffer with both kernels.

An input is a byte of flags, the distance from the first offset of each batch at which reading
starts, and the buffer. The harness writes the correct CRC into every batch, so that mutations get
past it, and corrects or compresses as the flags say.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from fuzz import captured
from fuzz.compression import decompressed_size
from fuzz.kernel_pair import PAIR
from fuzz.oracle import RaisedError, all_fields, require, require_equal, result_of
from fuzz.records import TIME, framed, large_sections
from fuzz.target import Target, functions_of
from kafka_async.kernel import OpenBatch, Section, parse_columns
from kafka_async.records import batch, compression, legacy
from kafka_async.records.batch import HEADER_SIZE, BatchView, encode_control_batch, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

KEEP_CRC, REPAIR_LENGTH, PACK, WRITE, COLUMNS = 1, 2, 4, 8, 16
"""Flags: leave the CRCs; correct the length of the first batch; compress each batch with the codec
in its header, so that the decompressor returns the mutated records; write the records with both
kernels and read them back; read columns too."""

LIMIT: Final = 1024 * 1024
"""Bytes to which a batch may decompress here; the client's limit is 128 times as large."""

TOPIC, PARTITION = "topic", 7
START: Final = 2
"""Position of the buffer in an input."""

_PREFIX = struct.Struct(">qi")
_LENGTH_AT, _MAGIC_AT, _CRC_AT, _COVERED_AT, _CODEC_AT = 8, 16, 17, 21, 22
_LEGACY_CRC_AT, _LEGACY_COVERED_AT, _LEGACY_VALUE_AT = 12, 16, 34
_MIN_LENGTH = 14
_COLUMN_OFFSETS = 100  # maximum number of offsets read as columns
_MAX_TIMESTAMP = _LAST_OFFSET = (1 << 63) - 2
_MAX_START = _LAST_OFFSET + 1 - _COLUMN_OFFSETS
_KERNEL_PARTS = ("columns", "open_batch", "record_encoder", "record_reader", "values", "varints")


def run(data: bytes) -> None:
    """Read every batch in every way; raise Finding if a promise is broken."""
    given, flags, distance = _split_input(data)
    due = PAIR.due()
    expected = 0
    for view in _views(given, data if due else b""):
        require(view.base_offset >= expected, "a batch before the end of the last")
        expected = view.next_offset
        start = min(view.base_offset + distance, _MAX_START)
        records = _read(lambda view=view, start=start: all_fields(view.records(start, LIMIT)), data)
        if view.is_control:
            _read(view.control, data)
        _check_offsets(view, records, start)
        if view.header.magic == 2:
            _check_section(view, records, start, flags, due=due)


def _split_input(data: bytes) -> tuple[bytes, int, int]:
    """Return the buffer, the flags, and the distance of the start from a batch's first offset."""
    if len(data) < START:
        return b"", 0, 0
    return repaired(data[START:], data[0]), data[0], data[1]


def _views(given: bytes, data: bytes) -> Iterator[BatchView]:
    batches = iter_batches(given, topic=TOPIC, partition=PARTITION)
    while isinstance(view := result_of(lambda: next(batches, None), data=data), BatchView):
        yield view


def _read(function: Callable[[], object], data: bytes) -> Any:
    result = result_of(function, data=data)
    if isinstance(result, RaisedError):
        topic, partition, offset = result.place
        require((topic, partition) == (TOPIC, PARTITION), "an error that names no partition")
        require(offset is not None, "an error that names no offset")
    return result


def _check_offsets(view: BatchView, records: Any, start: int) -> None:
    if isinstance(records, RaisedError):
        return
    offsets = [record[2] for record in records]
    require(offsets == sorted(set(offsets)), "offsets that do not ascend")
    last = view.last_offset if view.header.magic == 2 else _LAST_OFFSET
    inside = all(start <= offset <= last for offset in offsets)
    require(inside, "an offset beyond the batch's last, or before the start")


def _check_section(view: BatchView, records: Any, start: int, flags: int, *, due: bool) -> None:
    section: Any = result_of(lambda: view.section(LIMIT))
    if isinstance(section, RaisedError):
        require_equal("records and section", records, section)
        return
    if not isinstance(records, RaisedError):
        require(len(records) <= max(0, section.records_count), "more records than the batch claims")
    if not due:
        return
    epoch = view.header.leader_epoch
    for kernel in (PAIR.compiled, PAIR.pure):
        again = result_of(
            lambda kernel=kernel: all_fields(
                kernel.parse_records(section, TOPIC, PARTITION, epoch, start)
            )
        )
        require_equal("the records of both kernels", records, again)
    if flags & COLUMNS:
        columns = [_columns(kernel, section, start) for kernel in (PAIR.compiled, PAIR.pure)]
        require_equal("the columns of both kernels", *columns)
    if flags & WRITE and records and not isinstance(records, RaisedError):
        _check_writing([(row[3], *row[5:8]) for row in records])


def _columns(kernel: Any, section: Section, start: int) -> object:
    end = start + _COLUMN_OFFSETS
    sections = [section, section]
    return result_of(lambda: kernel.parse_columns(sections, TOPIC, PARTITION, start, end, True))


def _check_writing(contents: list[Any]) -> None:
    if not all(-1 <= content[0] <= _MAX_TIMESTAMP for content in contents):
        return
    sections = [_write(kernel, contents) for kernel in (PAIR.compiled, PAIR.pure)]
    require_equal("the written bytes of both kernels", *sections)
    section = Section(sections[0], len(contents), 0, len(contents) - 1, contents[0][0], -1, 0)
    again = all_fields(PAIR.compiled.parse_records(section, TOPIC, PARTITION))
    require_equal("written and read", contents, [(row[3], *row[5:8]) for row in again])


def _write(kernel: Any, contents: list[Any]) -> bytes:
    opened = kernel.OpenBatch(None, (1 << 31) - 1)
    for content in contents:
        opened.append(*content)
    return opened.close()


# -- mutations that get past the checksums --------------------------------------------------------


def repaired(data: bytes, flags: int) -> bytes:
    """Return the buffer with the corrections that the flags ask for."""
    if flags & REPAIR_LENGTH and len(data) > _MAGIC_AT:
        data = data[:_LENGTH_AT] + struct.pack(">i", len(data) - _PREFIX.size) + data[12:]
    out: list[bytes] = []
    at = 0
    while len(data) - at > _MAGIC_AT:
        offset, length = _PREFIX.unpack_from(data, at)
        end = at + _PREFIX.size + length
        if length < _MIN_LENGTH or end > len(data):
            break
        raw = bytearray(data[at:end])
        if raw[_MAGIC_AT] == 2 and len(raw) >= HEADER_SIZE:
            if flags & PACK:
                _pack(raw, offset)
            if not flags & KEEP_CRC:
                struct.pack_into(">I", raw, _CRC_AT, crc32c(raw[_COVERED_AT:]))
        elif raw[_MAGIC_AT] < 2 and not flags & KEEP_CRC:
            struct.pack_into(">I", raw, _LEGACY_CRC_AT, zlib.crc32(raw[_LEGACY_COVERED_AT:]))
        out.append(bytes(raw))
        at = end
    return b"".join([*out, data[at:]])


def _pack(raw: bytearray, offset: int) -> None:
    codec = raw[_CODEC_AT] & 0x07
    if 0 < codec <= max(Codec):
        raw[HEADER_SIZE:] = compression.compress(Codec(codec), bytes(raw[HEADER_SIZE:]))
        _PREFIX.pack_into(raw, 0, offset, len(raw) - _PREFIX.size)


# -- measurement and seeds ------------------------------------------------------------------------


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that only reads, with the kernel of the process."""
    given, _, distance = _split_input(data)

    def read() -> None:
        views = list(_views(given, b""))
        kept = [
            result_of(lambda view=view: view.records(view.base_offset + distance, LIMIT))
            for view in views
        ]
        kept.clear()
        for view in views:
            if view.is_control:
                result_of(view.control)
            if view.header.magic == 2:
                section = result_of(lambda view=view: view.section(LIMIT))
                if isinstance(section, Section):
                    result_of(lambda section=section: parse_columns([section], TOPIC, PARTITION))

    return read


def size(data: bytes) -> int:
    """Return the size of the buffer, or of its decompressed batches if that is larger."""
    given, _, _ = _split_input(data)
    held = 0
    for view in _views(given, b""):
        codec = view.header.attributes & 0x07
        if 0 < codec <= max(Codec):
            packed = view.raw[HEADER_SIZE if view.header.magic == 2 else _LEGACY_VALUE_AT :]
            held += decompressed_size(Codec(codec), bytes(packed), LIMIT)
    return max(len(given), held)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield batches that Kafka's classes and we wrote, with every relevant flag."""
    for name, raw in captured.batches().items():
        if name.startswith("large-"):
            yield name, bytes([REPAIR_LENGTH, 0]) + raw
            continue
        for flags, start in ((KEEP_CRC, 0), (0, 0), (WRITE | COLUMNS, 0), (COLUMNS, 1)):
            yield f"{name}-{flags}-{start}", bytes([flags, start]) + raw
        header = batch.BatchHeader.unpack(raw) if raw[_MAGIC_AT] == 2 else None
        if header is not None and header.codec is not Codec.none:
            plain = raw[:HEADER_SIZE] + compression.decompress(
                header.codec, raw[HEADER_SIZE : header.size]
            )
            flags = REPAIR_LENGTH | WRITE | COLUMNS
            # Without the codec: mutations of compressed data would be useless.
            without = plain[:_CODEC_AT] + bytes([plain[_CODEC_AT] & 0xF8]) + plain[_CODEC_AT + 1 :]
            yield f"{name}-plain", bytes([flags, 0]) + without
    yield (
        "control",
        b"\0\0"
        + encode_control_batch(
            "abort", producer_id=5, producer_epoch=1, coordinator_epoch=3, timestamp=TIME
        ),
    )
    data = _five_records()
    for codec in Codec:
        yield f"pack-{codec.name}", bytes((PACK, 0)) + framed(data, codec, 5)


def _five_records() -> bytes:
    opened = OpenBatch(None, 4096)
    for number in range(5):
        headers = [("h", b"x" * number), ("é", None)] if number & 1 else []
        opened.append(TIME + number, b"k" * number, b"v" * number * 9, headers)
    return opened.close()


def large() -> Iterator[bytes]:
    """Yield batches of 64 KiB, each the worst of its kind for time or memory."""
    for data, count in large_sections():
        for codec in Codec:
            yield b"\0\0" + framed(compression.compress(codec, data), codec, count)


def functions() -> Iterable[FunctionType]:
    """Return the functions of the batch reader and of the kernel in plain Python."""
    parts = [importlib.import_module(f"kafka_async.kernel.{name}") for name in _KERNEL_PARTS]
    return functions_of(batch, legacy, compression, *parts)


TARGET = Target(run, subject, size, seeds, functions, overhead=256 * 1024, large=large)
