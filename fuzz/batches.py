"""The batch reader on the compiled kernel, its twin in plain Python beside it.

The first byte of an input says what is done with the rest, a fetched buffer:

    bits 0-1   0: taken as it is; 1, 2: its CRCs are put right first, or no damage would get past
               them; 3: the first batch's length is put right as well
    bit 2      the records that were read are written again, by both kernels, and read back
    bit 3      the records are read as columns too
    bits 4-7   where reading starts: at this offset above the first
"""

from __future__ import annotations

import importlib
import struct
import zlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from fuzz import captured
from fuzz.compression import unpacked_size
from fuzz.oracle import promise, refused_in_few_words
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
"""What a batch may decompress to here, in bytes; the product's own limit is 128 times that."""

TOPIC, PARTITION, EPOCH = "t", 3, 7
REPAIR, REPAIR_LENGTH = 3, 3
WRITE, COLUMNS = 4, 8

_MAGIC_AT, _CRC_AT, _AFTER_CRC_AT, _RECORDS_AT, _LENGTH_AT = 16, 17, 21, 61, 8
_LAST_OFFSET = (1 << 63) - 2
_COLUMN_OFFSETS = 100  # that are read as columns, at most
_LEGACY_CRC_AT, _LEGACY_AFTER_CRC_AT, _LEGACY_VALUE_AT = 12, 16, 34
_MAX_TIMESTAMP = (1 << 63) - 2
_MAX_START = (1 << 63) - 1 - _COLUMN_OFFSETS


def _kernel(name: str) -> ModuleType:
    return importlib.import_module(f"kafka_async.kernel.{name}")


def _twins() -> tuple[Any, Any]:
    """The kernel in plain Python and the compiled one; the first twice where nothing compiles."""
    python = _kernel("_pykernel")
    try:
        return python, _kernel("_ckernel")
    except ImportError:
        return python, python


PYTHON, COMPILED = _twins()
FIELDS: Final = attrgetter(
    *("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    "leader_epoch",
)
CONTENTS: Final = attrgetter("timestamp", "key", "value", "headers")


def run(data: bytes) -> None:
    """Read every batch with both kernels, which must say the same."""
    if not data:
        return
    flags = data[0]
    try:
        for view in iter_batches(repaired(data[1:], flags), topic=TOPIC, partition=PARTITION):
            try:
                _check(view, flags)
            except CorruptRecordError as error:
                refused_in_few_words(error, data)
                promise(error.topic == TOPIC, "an error that names no topic")
                promise(error.partition == PARTITION, "an error that names no partition")
                promise(error.offset is not None, "an error that names no offset")
    except CorruptRecordError as error:
        refused_in_few_words(error, data)


def _check(view: BatchView, flags: int) -> None:
    start = min(view.base_offset + (flags >> 4), _MAX_START)
    if view.header.magic < 2:
        _check_offsets(view.records(start, LIMIT), start, _LAST_OFFSET)
        return
    section = view.section(LIMIT)
    epoch = view.header.leader_epoch
    ours = outcome(COMPILED, "parse_records", section, TOPIC, PARTITION, epoch, start)
    theirs = outcome(PYTHON, "parse_records", section, TOPIC, PARTITION, epoch, start)
    promise(ours == theirs, "the kernels read different records")
    if flags & COLUMNS:
        _compare_columns(section, start)
    records = view.records(start, LIMIT)
    _check_offsets(records, start, view.last_offset)
    promise(len(records) <= max(0, section.records_count), "more records than the batch claims")
    if view.is_control:
        view.control()
    if flags & WRITE and records:
        _written_again(records)


def outcome(kernel: Any, function: str, *arguments: object) -> object:
    """What a kernel's function gives, in a form that compares: values, or all of an error."""
    try:
        given = getattr(kernel, function)(*arguments)
    except CorruptRecordError as error:
        return str(error), error.topic, error.partition, error.offset
    return [FIELDS(record) for record in given] if function == "parse_records" else given


def _compare_columns(section: Section, start: int) -> None:
    arguments = ([section, section], TOPIC, PARTITION, start, start + _COLUMN_OFFSETS, True)
    ours = outcome(COMPILED, "parse_columns", *arguments)
    promise(ours == outcome(PYTHON, "parse_columns", *arguments), "the kernels' columns differ")


def _check_offsets(records: list[Any], start: int, end: int) -> None:
    last = start - 1
    for record in records:
        promise(record.offset > last, "offsets that do not ascend, or lie before the start")
        last = record.offset
    promise(last <= max(start - 1, end), "an offset beyond the batch's last")


def _written_again(records: list[Any]) -> None:
    """Records that are written again are read as the same."""
    contents = [CONTENTS(record) for record in records]
    if not all(-1 <= content[0] <= _MAX_TIMESTAMP for content in contents):
        return
    sections = [_written(kernel, contents) for kernel in (PYTHON, COMPILED)]
    promise(sections[0] == sections[1], "the kernels write different bytes")
    section = Section(sections[0], len(contents), 0, len(contents) - 1, contents[0][0], -1, 0)
    again = COMPILED.parse_records(section, TOPIC, PARTITION)
    promise([CONTENTS(record) for record in again] == contents, "records do not come back the same")


def _written(kernel: Any, contents: list[Any]) -> bytes:
    opened = kernel.OpenBatch(None, (1 << 31) - 1)
    for content in contents:
        opened.append(*content)
    return opened.seal()


# -- damage that gets past the checksums ----------------------------------------------------------


def repaired(data: bytes, flags: int) -> bytes:
    """The buffer with right CRCs, as far as batches can be found in it; see the flags above."""
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


# -- what is measured, and what it begins with ----------------------------------------------------


def subject(data: bytes) -> Callable[[], object]:
    """Reading alone, on the kernel that the process runs on; all records of the buffer are kept."""
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
    """Bytes of the buffer, or of what its compressed batches hold if that is more."""
    buffer = repaired(data[1:], data[0]) if data else b""
    held = 0
    try:
        for view in iter_batches(buffer):
            codec = view.header.codec
            if codec is not Codec.none:
                packed = view.raw[_RECORDS_AT if view.header.magic == 2 else _LEGACY_VALUE_AT :]
                held += unpacked_size(codec, bytes(packed), LIMIT)
    except CorruptRecordError:
        pass
    return max(len(buffer), held)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Batches that Kafka's classes wrote, as they are and with every flag that matters."""
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
    """The first batch with its records as they are: a fuzzer does not mend what is compressed."""
    out = bytearray(raw[:_RECORDS_AT])
    out += compression.decompress(header.codec, raw[_RECORDS_AT : header.size])
    out[22] &= 0xF8  # the low byte of the attributes, without the codec
    return bytes(out)


def functions() -> Iterable[FunctionType]:
    """The walk over batches, and the kernel in plain Python, which stands for its twin."""
    return functions_of(batch, legacy, compression, PYTHON, _kernel("_pysection"))


TARGET = Target("batches", run, subject, size, seeds, functions, overhead=256 * 1024)
