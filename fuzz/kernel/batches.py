"""The target "batches": reads any bytes as a fetched buffer with the whole batch reader.

An input is two bytes of arguments, then the buffer. The harness writes the correct CRC into every
batch, so that mutations get past it. With `PACK` it compresses each batch's records with the codec
in the batch's header, so that the decompressor returns the mutated section.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from fuzz.kernel.oracle import RaisedError, all_fields, require, require_equal, result_of
from kafka_async.kernel import Section
from kafka_async.records import compression
from kafka_async.records.batch import HEADER_SIZE, BatchView, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from fuzz.kernel.kernel_pair import KernelPair

KEEP_CRC = 0x01
PACK = 0x02
START = 2  # position of the buffer in an input

TOPIC, PARTITION = "topic", 7
LIMIT = 4 * 1024 * 1024  # decompressed bytes of a batch, low for speed
_PREFIX = struct.Struct(">qi")
_MAGIC_AT, _CRC_AT, _COVERED_AT, _LEGACY_COVERED_AT = 16, 17, 21, 16
_CODEC_AT = 22  # the low byte of the attributes


def repaired(data: bytes, flags: int) -> bytes:
    """Return the buffer with correct CRCs, and with compressed batches if the flags ask for it."""
    out: list[bytes] = []
    at = 0
    while len(data) - at > _MAGIC_AT:
        offset, length = _PREFIX.unpack_from(data, at)
        end = at + _PREFIX.size + length
        if length < 14 or end > len(data):
            break
        batch = bytearray(data[at:end])
        if batch[_MAGIC_AT] == 2 and len(batch) >= HEADER_SIZE:
            if flags & PACK:
                _pack(batch, offset)
            if not flags & KEEP_CRC:
                struct.pack_into(">I", batch, _CRC_AT, crc32c(batch[_COVERED_AT:]))
        elif batch[_MAGIC_AT] < 2 and not flags & KEEP_CRC:
            struct.pack_into(">I", batch, 12, zlib.crc32(batch[_LEGACY_COVERED_AT:]))
        out.append(bytes(batch))
        at = end
    out.append(data[at:])
    return b"".join(out)


def _pack(batch: bytearray, offset: int) -> None:
    codec = batch[_CODEC_AT] & 0x07
    if 0 < codec <= max(Codec):
        batch[HEADER_SIZE:] = compression.compress(Codec(codec), bytes(batch[HEADER_SIZE:]))
        _PREFIX.pack_into(batch, 0, offset, len(batch) - _PREFIX.size)


def prepare(data: bytes) -> tuple[bytes, int]:
    """Return the buffer of an input and the offset from which it is read."""
    if len(data) < START:
        return b"", 0
    return repaired(data[START:], data[0]), data[1]


def run(kernel: Any, prepared: tuple[bytes, int]) -> int:
    """Read the buffer without checks; return the bytes read, decompressed ones included."""
    given, start = prepared
    size = len(given)
    for view in _views(given):
        result_of(lambda view=view: view.records(start, LIMIT))
        if view.is_control:
            result_of(view.control)
        section = result_of(lambda view=view: view.section(LIMIT))
        if isinstance(section, Section):
            size += memoryview(section.data).nbytes if view.header.is_compressed else 0
            result_of(lambda section=section: kernel.parse_columns([section], TOPIC, PARTITION))
    return size


def _views(given: bytes) -> Iterator[BatchView]:
    batches = iter_batches(given, topic=TOPIC, partition=PARTITION)
    while True:
        view = result_of(lambda: next(batches, None))
        if not isinstance(view, BatchView):
            return
        yield view


def check(pair: KernelPair, data: bytes) -> None:
    """Read every batch in every way; raise Finding if a promise is broken."""
    given, start = prepare(data)
    due = pair.due()
    expected = 0
    for view in _views(given):
        require(view.base_offset >= expected, "a batch before the end of the last")
        expected = view.next_offset
        _check_batch(pair, view, start, due=due)


def _check_batch(pair: KernelPair, view: BatchView, start: int, *, due: bool) -> None:
    records = result_of(lambda: all_fields(view.records(start, LIMIT)))
    if view.is_control:
        result_of(view.control)
    if view.header.magic < 2:
        return
    section = result_of(lambda: view.section(LIMIT))
    if isinstance(section, RaisedError):
        require_equal("records and section", records, section)
        return
    require(isinstance(section, Section), "a section that is none")
    _check_offsets(view, records, start)
    if due:
        epoch = view.header.leader_epoch
        arguments = (section, TOPIC, PARTITION, epoch, start)
        require_equal(
            "records", records, result_of(lambda: all_fields(pair.pure.parse_records(*arguments)))
        )
        require_equal(
            "columns", *(_columns(kernel, section) for kernel in (pair.compiled, pair.pure))
        )


def _check_offsets(view: BatchView, records: Any, start: int) -> None:
    if isinstance(records, RaisedError):
        return
    offsets = [record[2] for record in records]
    require(offsets == sorted(set(offsets)), "offsets that do not ascend")
    low = max(start, view.base_offset)
    inside = all(low <= offset <= view.last_offset for offset in offsets)
    require(inside, "an offset that the batch does not cover")


def _columns(kernel: Any, section: object) -> object:
    return result_of(lambda: kernel.parse_columns([section], TOPIC, PARTITION, headers=True))
