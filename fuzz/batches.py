"""The target "batches": reads fetched buffers with both kernels and compares the results.

The first byte of an input holds flags; the rest is a fetched buffer:

    bits 0-1   0: the buffer is used as it is; 1, 2: its CRCs are corrected first, because no
               mutation would get past them; 3: the length of the first batch is corrected too
    bit 2      the records that were read are written by both kernels and read back
    bit 3      the records are read as columns too
    bits 4-7   reading starts at this offset above the first
"""

from __future__ import annotations

import importlib
import struct
import zlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from fuzz import captured
from fuzz.compression import decompressed_size
from fuzz.oracle import check_error_message, require
from fuzz.target import Target, functions_of
from kafka_async.errors import CorruptRecordError
from kafka_async.kernel import Section
from kafka_async.records import batch, compression, legacy
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType, ModuleType

LIMIT: Final = 1024 * 1024
"""Bytes to which a batch may decompress here; the client's limit is 128 times as large."""

TOPIC, PARTITION, EPOCH = "t", 3, 7
REPAIR, REPAIR_LENGTH = 3, 3
WRITE, COLUMNS = 4, 8

_MAGIC_AT, _CRC_AT, _AFTER_CRC_AT, _RECORDS_AT, _LENGTH_AT = 16, 17, 21, 61, 8
_LAST_OFFSET = (1 << 63) - 2
_COLUMN_OFFSETS = 100  # maximum number of offsets read as columns
_LEGACY_CRC_AT, _LEGACY_AFTER_CRC_AT, _LEGACY_VALUE_AT = 12, 16, 34
_MAX_TIMESTAMP = (1 << 63) - 2
_MAX_START = (1 << 63) - 1 - _COLUMN_OFFSETS


def _kernel(name: str) -> ModuleType:
    return importlib.import_module(f"kafka_async.kernel.{name}")


def _kernels() -> tuple[Any, Any]:
    """Return the kernel in plain Python and the compiled one, or the former twice without it."""
    python = _kernel("_pykernel")
    try:
        return python, _kernel("_ckernel")
    except ImportError:
        return python, python


PYTHON, COMPILED = _kernels()
FIELDS: Final = attrgetter(
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    "leader_epoch",
)
CONTENTS: Final = attrgetter("timestamp", "key", "value", "headers")


def run(data: bytes) -> None:
    """Read every batch with both kernels and require equal results."""
    if not data:
        return
    flags = data[0]
    try:
        for view in iter_batches(repaired(data[1:], flags), topic=TOPIC, partition=PARTITION):
            try:
                _check(view, flags)
            except CorruptRecordError as error:
                check_error_message(error, data)
                require(error.topic == TOPIC, "an error that names no topic")
                require(error.partition == PARTITION, "an error that names no partition")
                require(error.offset is not None, "an error that names no offset")
    except CorruptRecordError as error:
        check_error_message(error, data)


def _check(view: BatchView, flags: int) -> None:
    start = min(view.base_offset + (flags >> 4), _MAX_START)
    if view.header.magic < 2:
        _check_offsets(view.records(start, LIMIT), start, _LAST_OFFSET)
        return
    section = view.section(LIMIT)
    epoch = view.header.leader_epoch
    ours = result_of(COMPILED, "parse_records", section, TOPIC, PARTITION, epoch, start)
    theirs = result_of(PYTHON, "parse_records", section, TOPIC, PARTITION, epoch, start)
    require(ours == theirs, "the kernels read different records")
    if flags & COLUMNS:
        _compare_columns(section, start)
    records = view.records(start, LIMIT)
    _check_offsets(records, start, view.last_offset)
    require(len(records) <= max(0, section.records_count), "more records than the batch claims")
    if view.is_control:
        view.control()
    if flags & WRITE and records:
        _check_writing(records)


def result_of(kernel: Any, function: str, *arguments: object) -> object:
    """Return the result of a kernel's function, or all fields of its error, for comparison."""
    try:
        given = getattr(kernel, function)(*arguments)
    except CorruptRecordError as error:
        return str(error), error.topic, error.partition, error.offset
    return [FIELDS(record) for record in given] if function == "parse_records" else given


def _compare_columns(section: Section, start: int) -> None:
    arguments = ([section, section], TOPIC, PARTITION, start, start + _COLUMN_OFFSETS, True)
    ours = result_of(COMPILED, "parse_columns", *arguments)
    require(ours == result_of(PYTHON, "parse_columns", *arguments), "the kernels' columns differ")


def _check_offsets(records: list[Any], start: int, end: int) -> None:
    last = start - 1
    for record in records:
        require(record.offset > last, "offsets that do not ascend, or lie before the start")
        last = record.offset
    require(last <= max(start - 1, end), "an offset beyond the batch's last")


def _check_writing(records: list[Any]) -> None:
    """Write records with both kernels and read them back."""
    contents = [CONTENTS(record) for record in records]
    if not all(-1 <= content[0] <= _MAX_TIMESTAMP for content in contents):
        return
    sections = [_write(kernel, contents) for kernel in (PYTHON, COMPILED)]
    require(sections[0] == sections[1], "the kernels write different bytes")
    section = Section(sections[0], len(contents), 0, len(contents) - 1, contents[0][0], -1, 0)
    again = COMPILED.parse_records(section, TOPIC, PARTITION)
    require([CONTENTS(record) for record in again] == contents, "records do not come back the same")


def _write(kernel: Any, contents: list[Any]) -> bytes:
    opened = kernel.OpenBatch(None, (1 << 31) - 1)
    for content in contents:
        opened.append(*content)
    return opened.close()


# -- mutations that get past the checksums --------------------------------------------------------


def repaired(data: bytes, flags: int) -> bytes:
    """Return the buffer with the corrections that the flags ask for."""
    if not flags & REPAIR:
        return data
    out = bytearray(data)
    if flags & REPAIR == REPAIR_LENGTH and len(out) > _MAGIC_AT:
        struct.pack_into(">i", out, _LENGTH_AT, len(out) - 12)
    at = 0
    while len(out) - at > _MAGIC_AT:
        (length,) = struct.unpack_from(">i", out, at + _LENGTH_AT)
        end = at + 12 + length
        magic = out[at + _MAGIC_AT]
        if magic > 2 or end > len(out) or length < (49 if magic == 2 else 14):
            break
        _repair_crc(out, at, end)
        at = end
    return bytes(out)


def _repair_crc(out: bytearray, at: int, end: int) -> None:
    if out[at + _MAGIC_AT] == 2:
        crc = crc32c(bytes(out[at + _AFTER_CRC_AT : end]))
        struct.pack_into(">I", out, at + _CRC_AT, crc)
    else:
        crc = zlib.crc32(bytes(out[at + _LEGACY_AFTER_CRC_AT : end]))
        struct.pack_into(">I", out, at + _LEGACY_CRC_AT, crc)


# -- measurement and seeds ------------------------------------------------------------------------


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that only reads, with the kernel of the process, and keeps all records."""
    buffer = repaired(data[1:], data[0]) if data else b""

    def read() -> object:
        kept: list[object] = []
        try:
            for view in iter_batches(buffer, topic=TOPIC, partition=PARTITION):
                try:
                    kept.append(view.records(0, LIMIT))
                except CorruptRecordError:
                    pass
        except CorruptRecordError:
            pass
        return kept

    return read


def size(data: bytes) -> int:
    """Return the size of the buffer, or of its decompressed batches if that is larger."""
    buffer = repaired(data[1:], data[0]) if data else b""
    held = 0
    try:
        for view in iter_batches(buffer):
            codec = view.header.codec
            if codec is not Codec.none:
                packed = view.raw[_RECORDS_AT if view.header.magic == 2 else _LEGACY_VALUE_AT :]
                held += decompressed_size(codec, bytes(packed), LIMIT)
    except CorruptRecordError:
        pass
    return max(len(buffer), held)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield batches that Kafka's classes wrote, with every relevant flag."""
    for name, raw in captured.batches().items():
        if name.startswith("large-"):
            yield name, b"\x03" + raw
            continue
        for flags in (0, 3, 1 | WRITE | COLUMNS, 3 | COLUMNS | 1 << 4):
            yield f"{name}-{flags}", bytes([flags]) + raw
        header = batch.BatchHeader.unpack(raw) if raw[_MAGIC_AT] == 2 else None
        if header is not None and header.codec is not Codec.none:
            yield f"{name}-plain", bytes([3 | WRITE | COLUMNS]) + _decompressed(raw, header)


def _decompressed(raw: bytes, header: batch.BatchHeader) -> bytes:
    """Return the first batch uncompressed: mutations of compressed data would be useless."""
    out = bytearray(raw[:_RECORDS_AT])
    out += compression.decompress(header.codec, raw[_RECORDS_AT : header.size])
    out[22] &= 0xF8  # the low byte of the attributes, without the codec
    return bytes(out)


def functions() -> Iterable[FunctionType]:
    """Return the functions of the batch reader and of the kernel in plain Python."""
    return functions_of(batch, legacy, compression, PYTHON, _kernel("_pysection"))


TARGET = Target("batches", run, subject, size, seeds, functions, overhead=256 * 1024)
