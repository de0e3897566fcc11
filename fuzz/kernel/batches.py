"""The target "batches": any bytes as a fetched buffer, through the whole batch reader.

An input is two bytes of arguments, and then the buffer. The harness writes the right CRC into every
batch, so that mutations get past it, and with `PACK` it compresses each batch's records with the
codec that the batch names: the mutated section is then what comes out of the decompressor.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from fuzz.kernel.oracle import Refusal, all_fields, answer, holds, same
from kafka_async.kernel import Section
from kafka_async.records import compression
from kafka_async.records.batch import HEADER_SIZE, BatchView, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from fuzz.kernel.twins import Twins

KEEP_CRC = 0x01
PACK = 0x02
START = 2  # where the buffer begins

TOPIC, PARTITION = "topic", 7
LIMIT = 4 * 1024 * 1024  # of what one batch decompresses to, for speed
_PREFIX = struct.Struct(">qi")
_MAGIC_AT, _CRC_AT, _COVERED_AT, _LEGACY_COVERED_AT = 16, 17, 21, 16
_CODEC_AT = 22  # the low byte of the attributes


def repaired(data: bytes, flags: int) -> bytes:
    """The buffer with the CRCs that its batches must have, and packed if the flags say so."""
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
    """The buffer that an input stands for, and the offset to read from."""
    if len(data) < START:
        return b"", 0
    return repaired(data[START:], data[0]), data[1]


def run(kernel: Any, prepared: tuple[bytes, int]) -> int:
    """Only the reader's work; gives the bytes that it was about, decompressed ones included."""
    given, start = prepared
    size = len(given)
    for view in _views(given):
        answer(lambda view=view: view.records(start, LIMIT))
        if view.is_control:
            answer(view.control)
        section = answer(lambda view=view: view.section(LIMIT))
        if isinstance(section, Section):
            size += memoryview(section.data).nbytes if view.header.is_compressed else 0
            answer(lambda section=section: kernel.parse_columns([section], TOPIC, PARTITION))
    return size


def _views(given: bytes) -> Iterator[BatchView]:
    batches = iter_batches(given, topic=TOPIC, partition=PARTITION)
    while True:
        view = answer(lambda: next(batches, None))
        if not isinstance(view, BatchView):
            return
        yield view


def check(twins: Twins, data: bytes) -> None:
    """Read every batch in every way; raise Finding where something does not hold."""
    given, start = prepare(data)
    due = twins.due()
    expected = 0
    for view in _views(given):
        holds(view.base_offset >= expected, "a batch before the end of the last")
        expected = view.next_offset
        _check_batch(twins, view, start, due=due)


def _check_batch(twins: Twins, view: BatchView, start: int, *, due: bool) -> None:
    records = answer(lambda: all_fields(view.records(start, LIMIT)))
    if view.is_control:
        answer(view.control)
    if view.header.magic < 2:
        return
    section = answer(lambda: view.section(LIMIT))
    if isinstance(section, Refusal):
        same("records and section", records, section)
        return
    holds(isinstance(section, Section), "a section that is none")
    _check_offsets(view, records, start)
    if due:
        epoch = view.header.leader_epoch
        arguments = (section, TOPIC, PARTITION, epoch, start)
        same("records", records, answer(lambda: all_fields(twins.pure.parse_records(*arguments))))
        same("columns", *(_columns(kernel, section) for kernel in (twins.compiled, twins.pure)))


def _check_offsets(view: BatchView, records: Any, start: int) -> None:
    if isinstance(records, Refusal):
        return
    offsets = [record[2] for record in records]
    holds(offsets == sorted(set(offsets)), "offsets that do not ascend")
    low = max(start, view.base_offset)
    inside = all(low <= offset <= view.last_offset for offset in offsets)
    holds(inside, "an offset that the batch does not cover")


def _columns(kernel: Any, section: object) -> object:
    return answer(lambda: kernel.parse_columns([section], TOPIC, PARTITION, headers=True))
