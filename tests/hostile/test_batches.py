"""Batches whose header or records lie: CorruptRecordError with its place; the others flow on."""

from __future__ import annotations

from types import ModuleType

import pytest

from kafka_async.errors import CorruptRecordError, RecordTooLargeError
from kafka_async.records.batch import iter_batches
from kafka_async.records.compression import Codec
from tests.hostile.feed import BAD, GOOD, Feed, Reader
from tests.hostile.lies import (
    ATTRIBUTES,
    COUNT,
    CRC,
    LAST_DELTA,
    LENGTH,
    MAGIC,
    SECRET,
    TIME,
    batch,
    changed,
    records,
)
from tests.hostile.measure import allocating_at_most
from tests.kernel.wire import field, record, varint

BEFORE, WHOLE, AFTER = batch(base=0), batch(), batch(base=10)
FIRST = records()[0]
LONG = SECRET[:100]


def flipped(at: int) -> bytes:
    out = bytearray(WHOLE)
    out[at] ^= 0x40
    return bytes(out)


def second(lie: bytes) -> bytes:
    """A batch whose second record is this."""
    return batch(FIRST, lie)


def spelt(length: int, rest: bytes) -> bytes:
    """The bytes of a record after its length, which is whatever is said."""
    return varint(length) + rest


def read(data: bytes) -> None:
    """All of a fetched buffer."""
    for view in iter_batches(data, topic="t", partition=0):
        view.records()


CASES: dict[str, tuple[bytes, str]] = {
    # Where the next batch begins cannot be known.
    "length -1": (changed(WHOLE, LENGTH, ">i", -1), "impossible length -1"),
    "length 0": (changed(WHOLE, LENGTH, ">i", 0), "impossible length 0"),
    "length 48": (changed(WHOLE, LENGTH, ">i", 48), "impossible length 48"),
    "length -2^31": (changed(WHOLE, LENGTH, ">i", -(2**31)), "impossible length"),
    "magic 3": (changed(WHOLE, MAGIC, ">b", 3), "magic 3"),
    "magic 127": (changed(WHOLE, MAGIC, ">b", 127), "magic 127"),
    "magic -1": (changed(WHOLE, MAGIC, ">b", -1), "magic 255"),
    "baseOffset -1": (changed(WHOLE, 0, ">q", -1), "begins at -1"),
    "baseOffset going backwards": (changed(WHOLE, 0, ">q", 3), "before the end of the last"),
    "lastOffsetDelta -1": (changed(WHOLE, LAST_DELTA, ">i", -1), "ends before it begins"),
    # The batch is damaged.
    "magic 0 that is none": (changed(WHOLE, MAGIC, ">b", 0), "CRC does not match"),
    "magic 1 that is none": (changed(WHOLE, MAGIC, ">b", 1), "CRC does not match"),
    "CRC-32C mismatch in the header": (flipped(ATTRIBUTES + 1), "CRC does not match"),
    "CRC-32C mismatch in a record": (flipped(100), "CRC does not match"),
    "CRC-32C mismatch in itself": (flipped(CRC), "CRC does not match"),
    "codec 5": (changed(WHOLE, ATTRIBUTES, ">h", 5), "codec 5"),
    "codec 6": (changed(WHOLE, ATTRIBUTES, ">h", 6), "codec 6"),
    "codec 7": (changed(WHOLE, ATTRIBUTES, ">h", 7), "codec 7"),
    "count -1": (changed(WHOLE, COUNT, ">i", -1), "number of records it claims"),
    "count 0": (changed(WHOLE, COUNT, ">i", 0), "after the batch's last record"),
    "count too small": (changed(WHOLE, COUNT, ">i", 4), "after the batch's last record"),
    "count too large": (changed(WHOLE, COUNT, ">i", 6), "ends inside a field"),
    "count 2^31-1": (changed(WHOLE, COUNT, ">i", 2**31 - 1), "number of records it claims"),
    "lastOffsetDelta mismatch": (changed(WHOLE, LAST_DELTA, ">i", 3), "out of order or beyond"),
    "baseOffset at the end": (changed(WHOLE, 0, ">q", 2**63 - 3), "outside the legal range"),
    "timestamp overflow": (
        changed(batch(record(time=10)), TIME, ">q", 2**63 - 2),
        "timestamp is outside",
    ),
    "timestamp underflow": (
        changed(batch(record(time=-10)), TIME, ">q", -(2**63)),
        "timestamp is outside",
    ),
    # A record lies.
    "record length negative": (second(spelt(-1, LONG)), "record's length is negative"),
    "record length beyond the batch": (
        second(record(delta=1, value=LONG, length=109)),
        "record's length is",
    ),
    "record length 2^31-1": (second(spelt(2**31 - 1, LONG)), "record's length is"),
    "record length 0": (second(spelt(0, b"")), "ends inside a field"),
    "record length too small": (second(record(delta=1, value=LONG, length=100)), "beyond the rec"),
    "offset twice": (second(FIRST), "out of order"),
    "offset going backwards": (batch(record(delta=3), record(delta=2)), "out of order"),
    "offset beyond the last": (second(record(delta=5, value=LONG)), "beyond the batch's last"),
    "timestamp delta of 11 bytes": (
        second(spelt(113, b"\0" + b"\x80" * 10 + LONG + b"\0\0")),
        "does not fit its type",
    ),
    "key length -2": (second(spelt(108, b"\0\0\x02\x03" + LONG + b"\0" * 4)), "key or value"),
    "key beyond the record": (
        second(spelt(105, b"\0\0\x02" + varint(200) + LONG)),
        "key or value",
    ),
    "key 2^31-1": (
        second(spelt(108, b"\0\0\x02" + varint(2**31 - 1) + LONG)),
        "key or value",
    ),
    "value length -2": (second(spelt(108, b"\0\0\x02\x01\x03" + LONG + b"\0" * 3)), "key or value"),
    "value beyond the record": (
        second(spelt(106, b"\0\0\x02\x01" + varint(200) + LONG)),
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
"""Offsets of the records that lie before what cannot be read: a consumer gets them."""


@pytest.mark.parametrize("name", CASES)
def test_a_batch_that_lies_is_corrupt_and_says_where(kernel: ModuleType, name: str) -> None:
    data, says = CASES[name]
    walk = iter_batches(BEFORE + data + AFTER, topic="t", partition=0)
    assert [record.offset for record in next(walk).records()] == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptRecordError, match=says) as caught:
        next(walk).records()
    assert (caught.value.topic, caught.value.partition) == ("t", 0)
    assert caught.value.offset is not None


@pytest.mark.parametrize("name", CASES)
def test_a_batch_that_lies_costs_no_memory(kernel: ModuleType, name: str) -> None:
    data, says = CASES[name]
    with allocating_at_most(64 * 1024), pytest.raises(CorruptRecordError, match=says):
        read(BEFORE + data + AFTER)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_a_consumer_raises_it_in_its_place_and_goes_on(name: str) -> None:
    data, _ = CASES[name]
    read = [0, 1, 2, 3, 4, *READ_BEFORE.get(name, [])]
    feed = Feed()
    feed.data[BAD] = {0: BEFORE + data, 10: AFTER}
    feed.data[GOOD] = {0: BEFORE, 5: WHOLE}
    async with feed.consumer() as consumer:
        reader = Reader(consumer)
        await reader.until_raised(2)
        for error in reader.errors:
            assert (error.topic, error.partition) == BAD
            assert error.offset is not None
            assert error.offset > max(read)
        assert reader.offsets[BAD] == read
        # The others flow on, what comes later too.
        await reader.until(GOOD, list(range(10)))
        feed.data[GOOD][10] = AFTER
        await reader.until(GOOD, list(range(15)))
        # And the application may pass it.
        consumer.seek(BAD, 10)
        await reader.until(BAD, [*read, 10, 11, 12, 13, 14])


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_a_stream_meets_it_in_the_same_place(name: str) -> None:
    data, says = CASES[name]
    feed = Feed()
    feed.data[BAD] = {0: BEFORE + data, 10: AFTER}
    read: list[int] = []

    async def read_all() -> None:
        async for each in consumer:
            read.append(each.offset)  # noqa: PERF401  # what came before it raised is wanted

    async with feed.consumer() as consumer:
        with pytest.raises(CorruptRecordError, match=says) as caught:
            await read_all()
        assert (caught.value.topic, caught.value.partition) == BAD
        assert read == [0, 1, 2, 3, 4, *READ_BEFORE.get(name, [])]
        assert await consumer.position(BAD) == read[-1] + 1


# -- what is odd and legal ------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 12, 16, 17, 60, 61, 62, len(WHOLE) - 1])
def test_a_tail_that_is_cut_off_is_legal(kernel: ModuleType, cut: int) -> None:
    views = list(iter_batches(BEFORE + WHOLE[:cut], topic="t", partition=0))
    assert [view.base_offset for view in views] == [0]


@pytest.mark.parametrize("length", [len(WHOLE), 2**31 - 1])
def test_a_length_beyond_the_buffer_is_a_tail(kernel: ModuleType, length: int) -> None:
    with allocating_at_most(64 * 1024):
        views = list(iter_batches(BEFORE + changed(WHOLE, LENGTH, ">i", length)))
    assert [view.base_offset for view in views] == [0]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_a_batch_beyond_the_buffer_that_is_alone_in_it_is_said() -> None:
    feed = Feed()
    feed.data[BAD] = {0: BEFORE[:-1]}
    async with feed.consumer() as consumer:
        with pytest.raises(RecordTooLargeError, match="raise max_partition_fetch_bytes") as caught:
            await consumer.poll(timeout=5)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 0)


def test_a_last_offset_beyond_the_last_record_is_what_compaction_leaves(kernel: ModuleType) -> None:
    (view,) = iter_batches(changed(batch(base=0), LAST_DELTA, ">i", 2**31 - 1))
    assert len(view.records()) == 5
    assert view.next_offset == 2**31


@pytest.mark.parametrize("codec", Codec)
def test_all_of_it_is_read_when_nothing_lies(kernel: ModuleType, codec: Codec) -> None:
    (view,) = iter_batches(batch(codec=codec), topic="t", partition=0)
    assert [record.offset for record in view.records()] == [5, 6, 7, 8, 9]
    assert b"".join(record.value for record in view.records() if record.value) == SECRET[:500]
