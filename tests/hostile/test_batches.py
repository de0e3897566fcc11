"""Malformed batches raise CorruptRecordError with their position; other partitions continue."""

from __future__ import annotations

from types import ModuleType

import pytest

from kafka_async.errors import CorruptRecordError, RecordTooLargeError
from kafka_async.records.batch import iter_batches
from kafka_async.records.compression import Codec
from tests.hostile.malformed_batches import (
    ATTRIBUTES,
    COUNT,
    CRC,
    LAST_DELTA,
    LENGTH,
    MAGIC,
    SECRET,
    TIME,
    batch,
    records,
    with_field,
)
from tests.hostile.measure import allocates_at_most
from tests.hostile.scripted_fetch import BAD, GOOD, Reader, ScriptedFetch
from tests.kernel.wire import field, record, varint

PREVIOUS, WHOLE, NEXT = batch(base=0), batch(), batch(base=10)
FIRST_RECORD = records()[0]
LONG = SECRET[:100]


def flipped(at: int) -> bytes:
    out = bytearray(WHOLE)
    out[at] ^= 0x40
    return bytes(out)


def second(malformed: bytes) -> bytes:
    """Return a batch whose second record has these bytes."""
    return batch(FIRST_RECORD, malformed)


def record_of_length(length: int, rest: bytes) -> bytes:
    """Return a record of these bytes after a given length."""
    return varint(length) + rest


def read(data: bytes) -> None:
    """Read all records of a fetched buffer."""
    for view in iter_batches(data, topic="t", partition=0):
        view.records()


CASES: dict[str, tuple[bytes, str]] = {
    # The start of the next batch is unknown.
    "length -1": (with_field(WHOLE, LENGTH, ">i", -1), "impossible length -1"),
    "length 0": (with_field(WHOLE, LENGTH, ">i", 0), "impossible length 0"),
    "length 48": (with_field(WHOLE, LENGTH, ">i", 48), "impossible length 48"),
    "length -2^31": (with_field(WHOLE, LENGTH, ">i", -(2**31)), "impossible length"),
    "magic 3": (with_field(WHOLE, MAGIC, ">b", 3), "magic 3"),
    "magic 127": (with_field(WHOLE, MAGIC, ">b", 127), "magic 127"),
    "magic -1": (with_field(WHOLE, MAGIC, ">b", -1), "magic 255"),
    "baseOffset -1": (with_field(WHOLE, 0, ">q", -1), "begins at -1"),
    "baseOffset going backwards": (with_field(WHOLE, 0, ">q", 3), "before the end of the last"),
    "lastOffsetDelta -1": (with_field(WHOLE, LAST_DELTA, ">i", -1), "ends before it begins"),
    # The batch is damaged.
    "magic 0 without a message set": (with_field(WHOLE, MAGIC, ">b", 0), "CRC does not match"),
    "magic 1 without a message set": (with_field(WHOLE, MAGIC, ">b", 1), "CRC does not match"),
    "CRC-32C mismatch in the header": (flipped(ATTRIBUTES + 1), "CRC does not match"),
    "CRC-32C mismatch in a record": (flipped(100), "CRC does not match"),
    "CRC-32C mismatch in itself": (flipped(CRC), "CRC does not match"),
    "codec 5": (with_field(WHOLE, ATTRIBUTES, ">h", 5), "codec 5"),
    "codec 6": (with_field(WHOLE, ATTRIBUTES, ">h", 6), "codec 6"),
    "codec 7": (with_field(WHOLE, ATTRIBUTES, ">h", 7), "codec 7"),
    "count -1": (with_field(WHOLE, COUNT, ">i", -1), "number of records it claims"),
    "count 0": (with_field(WHOLE, COUNT, ">i", 0), "after the batch's last record"),
    "count too small": (with_field(WHOLE, COUNT, ">i", 4), "after the batch's last record"),
    "count too large": (with_field(WHOLE, COUNT, ">i", 6), "ends inside a field"),
    "count 2^31-1": (with_field(WHOLE, COUNT, ">i", 2**31 - 1), "number of records it claims"),
    "lastOffsetDelta mismatch": (with_field(WHOLE, LAST_DELTA, ">i", 3), "out of order or beyond"),
    "baseOffset at the end": (with_field(WHOLE, 0, ">q", 2**63 - 3), "outside the legal range"),
    "timestamp overflow": (
        with_field(batch(record(time=10)), TIME, ">q", 2**63 - 2),
        "timestamp is outside",
    ),
    "timestamp underflow": (
        with_field(batch(record(time=-10)), TIME, ">q", -(2**63)),
        "timestamp is outside",
    ),
    # A record is malformed.
    "record length negative": (second(record_of_length(-1, LONG)), "record's length is negative"),
    "record length beyond the batch": (
        second(record(delta=1, value=LONG, length=109)),
        "record's length is",
    ),
    "record length 2^31-1": (second(record_of_length(2**31 - 1, LONG)), "record's length is"),
    "record length 0": (second(record_of_length(0, b"")), "ends inside a field"),
    "record length too small": (second(record(delta=1, value=LONG, length=100)), "beyond the rec"),
    "offset twice": (second(FIRST_RECORD), "out of order"),
    "offset going backwards": (batch(record(delta=3), record(delta=2)), "out of order"),
    "offset beyond the last": (second(record(delta=5, value=LONG)), "beyond the batch's last"),
    "timestamp delta of 11 bytes": (
        second(record_of_length(113, b"\0" + b"\x80" * 10 + LONG + b"\0\0")),
        "does not fit its type",
    ),
    "key length -2": (
        second(record_of_length(108, b"\0\0\x02\x03" + LONG + b"\0" * 4)),
        "key or value",
    ),
    "key beyond the record": (
        second(record_of_length(105, b"\0\0\x02" + varint(200) + LONG)),
        "key or value",
    ),
    "key 2^31-1": (
        second(record_of_length(108, b"\0\0\x02" + varint(2**31 - 1) + LONG)),
        "key or value",
    ),
    "value length -2": (
        second(record_of_length(108, b"\0\0\x02\x01\x03" + LONG + b"\0" * 3)),
        "key or value",
    ),
    "value beyond the record": (
        second(record_of_length(106, b"\0\0\x02\x01" + varint(200) + LONG)),
        "key or value",
    ),
    "header count -1": (second(record(delta=1, headers=varint(-1) + LONG)), "number of headers"),
    "header count 2^31-1": (
        second(record(delta=1, headers=varint(2**31 - 1) + LONG)),
        "number of headers",
    ),
    "null header key": (
        second(record(delta=1, headers=varint(1) + field(None) + field(LONG))),
        "header's name is null",
    ),
    "header name of length -2": (
        second(record(delta=1, headers=varint(1) + varint(-2) + field(LONG))),
        "header's name",
    ),
    "header name beyond the record": (
        second(record(delta=1, headers=varint(1) + varint(200) + LONG)),
        "beyond the record",
    ),
    "header value of length -2": (
        second(record(delta=1, headers=varint(1) + field(LONG) + varint(-2))),
        "negative",
    ),
    "header value beyond the record": (
        second(record(delta=1, headers=varint(1) + field(b"h") + varint(200) + LONG)),
        "beyond the record",
    ),
    "leftover bytes in a record": (second(record(delta=1, tail=LONG)), "after the record's last"),
    "leftover bytes in the batch": (
        batch(*records(), LONG, count=5),
        "after the batch's last record",
    ),
}


SECOND = list(CASES)[list(CASES).index("record length negative") :]
READ_BEFORE: dict[str, list[int]] = {
    **{name: [5] for name in SECOND},
    "count too small": [5, 6, 7, 8],
    "count too large": [5, 6, 7, 8, 9],
    "lastOffsetDelta mismatch": [5, 6, 7, 8],
    "offset going backwards": [8],
    "leftover bytes in the batch": [5, 6, 7, 8, 9],
}
"""Offsets of the records before the malformed one, which a consumer returns."""


@pytest.mark.parametrize("name", CASES)
def test_malformed_batch_is_corrupt_with_position(kernel: ModuleType, name: str) -> None:
    data, message = CASES[name]
    walk = iter_batches(PREVIOUS + data + NEXT, topic="t", partition=0)
    assert [record.offset for record in next(walk).records()] == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecordError, match=message) as caught:
        next(walk).records()
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert caught.value.offset is not None


@pytest.mark.parametrize("name", CASES)
def test_malformed_batch_allocates_no_memory(kernel: ModuleType, name: str) -> None:
    data, message = CASES[name]
    with allocates_at_most(64 * 1024), pytest.raises(CorruptRecordError, match=message):
        read(PREVIOUS + data + NEXT)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_consumer_raises_at_malformed_batch_and_continues(name: str) -> None:
    data, _ = CASES[name]
    read = [0, 1, 2, 3, 4, *READ_BEFORE.get(name, [])]
    script = ScriptedFetch()
    script.data[BAD] = {0: PREVIOUS + data, 10: NEXT}
    script.data[GOOD] = {0: PREVIOUS, 5: WHOLE}
    async with script.consumer() as consumer:
        reader = Reader(consumer)
        await reader.until_errors(2)
        for error in reader.errors:
            assert (error.topic, error.partition) == BAD
            assert error.offset is not None
            assert error.offset > max(read)
        assert reader.offsets[BAD] == read
        # The other partition continues.
        await reader.until(GOOD, list(range(10)))
        script.data[GOOD][10] = NEXT
        await reader.until(GOOD, list(range(15)))
        # The application can skip the batch.
        consumer.seek(BAD, 10)
        await reader.until(BAD, [*read, 10, 11, 12, 13, 14])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_stream_raises_at_same_position(name: str) -> None:
    data, message = CASES[name]
    script = ScriptedFetch()
    script.data[BAD] = {0: PREVIOUS + data, 10: NEXT}
    read: list[int] = []

    async def read_all() -> None:
        async for each in consumer:
            read.append(each.offset)  # noqa: PERF401  # keeps offsets before the error

    async with script.consumer() as consumer:
        with pytest.raises(CorruptRecordError, match=message) as caught:
            await read_all()
        assert (caught.value.topic, caught.value.partition) == BAD
        assert read == [0, 1, 2, 3, 4, *READ_BEFORE.get(name, [])]
        assert await consumer.position(BAD) == read[-1] + 1


# -- unusual but valid ----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 12, 16, 17, 60, 61, 62, len(WHOLE) - 1])
def test_incomplete_last_batch_is_ignored(kernel: ModuleType, cut: int) -> None:
    views = list(iter_batches(PREVIOUS + WHOLE[:cut], topic="t", partition=0))
    assert [view.base_offset for view in views] == [0]


@pytest.mark.parametrize("length", [len(WHOLE), 2**31 - 1])
def test_length_beyond_buffer_is_incomplete_batch(kernel: ModuleType, length: int) -> None:
    with allocates_at_most(64 * 1024):
        views = list(iter_batches(PREVIOUS + with_field(WHOLE, LENGTH, ">i", length)))
    assert [view.base_offset for view in views] == [0]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_single_incomplete_batch_raises_record_too_large() -> None:
    script = ScriptedFetch()
    script.data[BAD] = {0: PREVIOUS[:-1]}
    async with script.consumer() as consumer:
        with pytest.raises(RecordTooLargeError, match="raise max_partition_fetch_bytes") as caught:
            await consumer.poll(timeout=5)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 0)


def test_last_offset_may_exceed_last_record_after_compaction(kernel: ModuleType) -> None:
    (view,) = iter_batches(with_field(batch(base=0), LAST_DELTA, ">i", 2**31 - 1))
    assert len(view.records()) == 5
    assert view.next_offset == 2**31


@pytest.mark.parametrize("codec", Codec)
def test_reads_well_formed_batch(kernel: ModuleType, codec: Codec) -> None:
    (view,) = iter_batches(batch(codec=codec), topic="t", partition=0)
    assert [record.offset for record in view.records()] == [5, 6, 7, 8, 9]
    assert b"".join(record.value for record in view.records() if record.value) == SECRET[:500]
