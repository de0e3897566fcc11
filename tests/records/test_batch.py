"""Tests of record batches: encoding, iterating over a buffer, changes by a leader, corruption."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest

from kafka_async.errors import CorruptRecordError
from kafka_async.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    RecordBatch,
    assign_offsets,
    encode_batch,
    encode_control_batch,
    iter_batches,
)
from kafka_async.records.compression import Codec
from kafka_async.records.control import ControlMarker
from kafka_async.types import ProducerRecord
from tests.rows import row

pytestmark = pytest.mark.usefixtures("kernel")

TIME = 1_700_000_000_000
CODECS = list(Codec)


def records(count: int = 5) -> list[ProducerRecord]:
    return [
        ProducerRecord("t", b"value %d" % n, b"k%d" % n, [("h", b"x")], timestamp=TIME + n)
        for n in range(count)
    ]


def framed(
    codec: Codec = Codec.none, base_offset: int = 0, count: int = 5, **options: Any
) -> bytes:
    batch = RecordBatch.build(records(count), codec.name)
    return assign_offsets(batch.frame(**options), base_offset, 7)


def tampered(batch: bytes, at: int, code: str, value: int) -> bytes:
    """Return the batch with one field changed and a correct CRC."""
    out = bytearray(batch)
    struct.pack_into(code, out, at, value)
    struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


# -- encoding -------------------------------------------------------------------------------------


def test_header_has_61_bytes_in_kafkas_order() -> None:
    batch = encode_batch(
        b"payload",
        codec=Codec.lz4,
        count=3,
        base_timestamp=100,
        max_timestamp=200,
        producer_id=42,
        producer_epoch=5,
        base_sequence=6,
        transactional=True,
        base_offset=9,
        leader_epoch=8,
    )
    assert len(batch) == HEADER_SIZE + 7
    assert batch[61:] == b"payload"
    assert BatchHeader.unpack(batch) == (
        9,
        49 + 7,
        8,
        2,
        crc32c.crc32c(batch[21:]),
        3 | 0x10,
        2,
        100,
        200,
        42,
        5,
        6,
        3,
    )
    assert BatchHeader.unpack(batch).size == len(batch)


@pytest.mark.parametrize("codec", CODECS)
def test_batch_round_trip(codec: Codec) -> None:
    (view,) = iter_batches(framed(codec, 1000), topic="t", partition=2)
    assert view.header.codec is codec
    assert (view.base_offset, view.last_offset, view.next_offset) == (1000, 1004, 1005)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in view.records()] == [
        (1000 + n, r.timestamp, r.key, r.value, tuple(r.headers)) for n, r in enumerate(records())
    ]
    assert {(r.topic, r.partition, r.leader_epoch) for r in view.records()} == {("t", 2, 7)}
    assert [r.offset for r in view.records(start=1003)] == [1003, 1004]


def test_same_batch_can_be_framed_for_any_producer() -> None:
    batch = RecordBatch.build(records(), "gzip")
    (plain,) = iter_batches(batch.frame())
    (ours,) = iter_batches(
        batch.frame(producer_id=9, producer_epoch=1, base_sequence=77, transactional=True)
    )
    assert (plain.producer_id, plain.is_transactional) == (-1, False)
    assert (ours.producer_id, ours.header.base_sequence, ours.is_transactional) == (9, 77, True)
    assert plain.raw[HEADER_SIZE:] == ours.raw[HEADER_SIZE:] == batch.payload
    assert plain.records() == ours.records()
    assert batch.size == len(batch.frame())
    assert (batch.count, batch.base_timestamp, batch.max_timestamp) == (5, TIME, TIME + 4)


def test_records_without_timestamp_get_the_default() -> None:
    batch = RecordBatch.build([ProducerRecord("t", b"v")], timestamp=TIME)
    assert batch.base_timestamp == TIME


def test_empty_batch_or_unknown_codec_raises() -> None:
    with pytest.raises(ValueError, match="at least one"):
        RecordBatch.build([])
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd, not 'rar'"):
        RecordBatch.build(records(), "rar")


# -- changes by a leader --------------------------------------------------------------------------


def test_assigning_offsets_does_not_change_the_crc() -> None:
    before = RecordBatch.build(records()).frame()
    after = assign_offsets(before, 123, 45)
    assert after[17:] == before[17:]
    (view,) = iter_batches(after)
    assert (view.base_offset, view.header.leader_epoch) == (123, 45)
    view.check_crc()


def test_assigning_append_time_sets_log_append_time() -> None:
    (view,) = iter_batches(assign_offsets(framed(Codec.zstd), 10, 1, TIME + 999))
    assert view.header.timestamp_type == 1
    assert {(r.timestamp, r.timestamp_type) for r in view.records()} == {(TIME + 999, 1)}


@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_transaction_marker_round_trip(kind: Any) -> None:
    batch = encode_control_batch(
        kind,
        producer_id=4242,
        producer_epoch=3,
        coordinator_epoch=15,
        timestamp=TIME,
        base_offset=800,
        leader_epoch=7,
    )
    (view,) = iter_batches(batch, topic="t", partition=0)
    assert view.is_control
    assert view.is_transactional
    assert (view.producer_id, view.header.producer_epoch) == (4242, 3)
    assert (view.header.base_sequence, view.base_offset, view.header.leader_epoch) == (-1, 800, 7)
    assert view.control() == ControlMarker(kind, 15)
    assert len(view.records()) == 1


# -- iterating over a buffer ----------------------------------------------------------------------


def test_iterates_consecutive_batches() -> None:
    parts = [framed(codec, 100 * n) for n, codec in enumerate(CODECS)]
    views = list(iter_batches(b"".join(parts), topic="t", partition=0))
    assert [view.base_offset for view in views] == [0, 100, 200, 300, 400]
    assert [bytes(view.raw) for view in views] == parts


def test_views_do_not_copy_the_buffer() -> None:
    buffer = bytearray(framed())
    (view,) = iter_batches(buffer)
    buffer[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        view.check_crc()


def test_empty_buffer_has_no_batches() -> None:
    assert list(iter_batches(b"")) == []


# -- corruption -----------------------------------------------------------------------------------


def corrupt(batch: bytes, match: str | None = None) -> CorruptRecordError:
    (view,) = iter_batches(batch, topic="t", partition=3)
    with pytest.raises(CorruptRecordError, match=match) as caught:
        view.records()
    assert (caught.value.topic, caught.value.partition) == ("t", 3)
    return caught.value


def test_crc_covers_every_byte_after_it() -> None:
    for at in range(17, len(framed())):
        batch = bytearray(framed(base_offset=9))
        batch[at] ^= 0x40
        with row(at):
            assert corrupt(bytes(batch), "CRC does not match").offset == 9


@pytest.mark.parametrize("codec", CODECS)
def test_batch_larger_than_the_limit_is_corrupt(codec: Codec) -> None:
    (view,) = iter_batches(framed(codec, count=200))
    if codec is Codec.none:
        assert (
            len(view.records(limit=10)) == 200
        )  # uncompressed records have no limit but the frame
        return
    with pytest.raises(CorruptRecordError):
        view.records(limit=100)


def test_reads_batch_emptied_by_compaction() -> None:
    empty = encode_batch(
        b"", codec=Codec.zstd, count=0, base_timestamp=-1, max_timestamp=-1, producer_id=4
    )
    (view,) = iter_batches(tampered(empty, 23, ">i", 11))
    assert view.records() == []
    assert view.next_offset == 12


def test_repr_names_partition_and_offsets() -> None:
    (view,) = iter_batches(framed(base_offset=10), topic="t", partition=3)
    assert repr(view) == f"<batch t-3 offsets 10-14, {len(framed())} bytes>"
