"""Tests of record batches: encoding, iterating over a buffer, changes by a leader, corruption."""

from __future__ import annotations

import struct
from typing import Any

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_async import kernel as kernels
from kafka_async.errors import CorruptRecordError
from kafka_async.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    RecordBatch,
    assign_offsets,
    encode_batch,
    iter_batches,
)
from kafka_async.records.compression import Codec, compress
from kafka_async.records.control import encode_control_batch
from kafka_async.records.marker import ControlMarker
from kafka_async.types import ProducerRecord

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


@pytest.mark.parametrize("cut", range(len(framed())))
def test_truncated_last_batch_is_legal(cut: int) -> None:
    first = framed()
    views = list(iter_batches(first + framed(base_offset=5)[:cut], topic="t", partition=0))
    assert [view.base_offset for view in views] == [0]


def test_views_do_not_copy_the_buffer() -> None:
    buffer = bytearray(framed())
    (view,) = iter_batches(buffer)
    buffer[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        view.check_crc()


def test_empty_buffer_has_no_batches() -> None:
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize(
    ("at", "code", "value", "says"),
    [
        (8, ">i", -1, "impossible length -1"),
        (8, ">i", 0, "impossible length 0"),
        (8, ">i", 48, "impossible length 48"),
        (8, ">i", -(1 << 31), "impossible length"),
        (16, ">b", 3, "magic 3"),
        (16, ">B", 127, "magic 127"),
        (16, ">B", 255, "magic 255"),
        (0, ">q", -1, "begins at -1"),
        (0, ">q", 2, "before the end of the last"),
        (23, ">i", -1, "ends before it begins"),
    ],
)
def test_raises_where_next_batch_cannot_be_found(at: int, code: str, value: int, says: str) -> None:
    second = tampered(framed(base_offset=5), at, code, value)
    walk = iter_batches(framed() + second, topic="t", partition=3)
    assert next(walk).base_offset == 0
    with pytest.raises(CorruptRecordError, match=says) as caught:
        next(walk)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 5)


def test_length_beyond_the_buffer_is_a_truncated_batch() -> None:
    assert list(iter_batches(tampered(framed(), 8, ">i", (1 << 31) - 1))) == []


# -- corruption -----------------------------------------------------------------------------------


def corrupt(batch: bytes, match: str | None = None) -> CorruptRecordError:
    (view,) = iter_batches(batch, topic="t", partition=3)
    with pytest.raises(CorruptRecordError, match=match) as caught:
        view.records()
    assert (caught.value.topic, caught.value.partition) == ("t", 3)
    return caught.value


@pytest.mark.parametrize("at", range(17, len(framed())))
def test_crc_covers_every_byte_after_it(at: int) -> None:
    batch = bytearray(framed(base_offset=9))
    batch[at] ^= 0x40
    assert corrupt(bytes(batch), "CRC does not match").offset == 9


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_corrupt(codec: int) -> None:
    corrupt(tampered(framed(), 21, ">h", codec), f"names codec {codec}")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_wrong_codec_is_corrupt(codec: Codec) -> None:
    other = CODECS[1 + codec % 4]
    error = corrupt(tampered(framed(codec, 20), 21, ">h", other), other.name)
    assert error.offset == 20


@pytest.mark.parametrize("count", [-1, 0, 4, 6, 1000, (1 << 31) - 1])
def test_wrong_record_count_is_corrupt(count: int) -> None:
    corrupt(tampered(framed(), 57, ">i", count))


def test_wrong_last_offset_is_corrupt() -> None:
    corrupt(tampered(framed(), 23, ">i", 3), "out of order or beyond")


def test_timestamp_overflow_is_corrupt() -> None:
    corrupt(tampered(framed(), 27, ">q", (1 << 63) - 2), "timestamp")


def test_offsets_beyond_64_bits_are_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="legal range"):
        list(iter_batches(assign_offsets(framed(), (1 << 63) - 3, 0)))


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


# -- malformed markers ----------------------------------------------------------------------------


def control(*pairs: tuple[bytes | None, bytes | None]) -> ControlMarker:
    section = kernels.OpenBatch(None, 1000)
    for key, value in pairs:
        section.append(TIME, key, value)
    batch = encode_batch(
        section.close(),
        codec=Codec.none,
        count=len(pairs),
        base_timestamp=TIME,
        max_timestamp=TIME,
        control=True,
    )
    out = tampered(batch, 23, ">i", max(len(pairs) - 1, 0))
    (view,) = iter_batches(out, topic="t", partition=3)
    return view.control()


COMMIT, ABORT, EPOCH = b"\0\0\0\x01", b"\0\0\0\0", b"\0\0\0\0\0\x09"


def test_decodes_control_records() -> None:
    assert control((COMMIT, EPOCH)) == ("commit", 9)
    assert control((ABORT, EPOCH)) == ("abort", 9)
    # Only the first record counts, as in Java; newer versions may add fields to key and value.
    assert control((ABORT, EPOCH), (COMMIT, EPOCH)) == ("abort", 9)
    assert control((b"\0\x05\0\x01more", b"\0\x05\0\0\0\x09more")) == ("commit", 9)
    assert control((b"\0\0\0\x02", None)) == ("other", -1)
    assert control((b"\0\0\x7f\xff", b"")) == ("other", -1)
    assert control() == ("other", -1)


@pytest.mark.parametrize("pair", [(None, EPOCH), (b"\0\0\0", EPOCH), (ABORT, None), (ABORT, b"\0")])
def test_malformed_control_records_are_corrupt(pair: tuple[bytes | None, bytes | None]) -> None:
    with pytest.raises(CorruptRecordError):
        control(pair)


# -- properties -----------------------------------------------------------------------------------

DATA = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        ProducerRecord,
        topic=st.just("t"),
        key=DATA,
        value=DATA,
        headers=st.lists(st.tuples(st.text(max_size=10), DATA), max_size=3),
        timestamp=st.integers(-1, 1 << 60),
    ),
    min_size=1,
    max_size=15,
)
SLOW = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(written=RECORDS, codec=st.sampled_from(CODECS), base=st.integers(0, 1 << 60))
def test_written_records_are_read_back(
    written: list[ProducerRecord], codec: Codec, base: int
) -> None:
    batch = assign_offsets(RecordBatch.build(written, codec.name).frame(), base, 3)
    (view,) = iter_batches(batch, topic="t", partition=0)
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in view.records()] == [
        (base + n, r.timestamp, r.key, r.value, tuple(r.headers)) for n, r in enumerate(written)
    ]


def read_error(data: bytes) -> CorruptRecordError | None:
    """Return the CorruptRecordError of reading a buffer; any other exception is a bug."""
    try:
        for view in iter_batches(data, topic="t", partition=0):
            view.records()
    except CorruptRecordError as error:
        return error
    return None


@SLOW
@given(data=st.binary(max_size=300))
def test_random_bytes_are_batches_or_corrupt(data: bytes) -> None:
    error = read_error(data)
    assert error is None or (error.topic, error.partition) == ("t", 0)


@SLOW
@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=300), count=st.integers(-1, 50))
def test_random_sections_are_records_or_corrupt(codec: Codec, data: bytes, count: int) -> None:
    for payload in (data, compress(codec, data)):
        batch = encode_batch(payload, codec=codec, count=count, base_timestamp=0, max_timestamp=0)
        error = read_error(batch)
        assert error is None or (error.topic, error.partition) == ("t", 0)


def test_repr_names_partition_and_offsets() -> None:
    (view,) = iter_batches(framed(base_offset=10), topic="t", partition=3)
    assert repr(view) == f"<batch t-3 offsets 10-14, {len(framed())} bytes>"
