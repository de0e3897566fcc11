"""Malformed batches raise CorruptRecordError with their position; other partitions continue."""

from __future__ import annotations

from types import ModuleType

import pytest

from kafka_async.errors import CorruptRecordError, RecordTooLargeError
from kafka_async.kernel.shared import corrupt_record_error
from kafka_async.records.batch import iter_batches
from kafka_async.records.compression import Codec
from tests.hostile.malformed_batches import (
    ATTRIBUTES,
    COUNT,
    CRC,
    LAST_DELTA,
    LENGTH,
    MAGIC,
    TIME,
    batch,
    flipped,
    with_field,
)
from tests.hostile.measure import allocates_at_most
from tests.hostile.scripted_fetch import BAD, ScriptedFetch, check_consumer_continues
from tests.kernel.malformed_records import FIRST, READABLE, RECORDS, SECRET
from tests.kernel.wire import record
from tests.rows import row

PREVIOUS, WHOLE, NEXT = batch(base=0), batch(), batch(base=10)


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
    "CRC-32C mismatch in the header": (flipped(WHOLE, ATTRIBUTES + 1), "CRC does not match"),
    "CRC-32C mismatch in a record": (flipped(WHOLE, 100), "CRC does not match"),
    "CRC-32C mismatch in itself": (flipped(WHOLE, CRC), "CRC does not match"),
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
    **{
        name: (batch(FIRST, malformed), corrupt_record_error(corruption).message)
        for name, (corruption, malformed) in RECORDS.items()
    },
}


READ_BEFORE: dict[str, list[int]] = {
    **{name: [6, 7][:readable] for name, readable in READABLE.items()},
    "count too small": [5, 6, 7, 8],
    "count too large": [5, 6, 7, 8, 9],
    "lastOffsetDelta mismatch": [5, 6, 7, 8],
}
"""Offsets of the records before the malformed one, which a consumer returns."""


def test_malformed_batch_is_corrupt_with_position_and_allocates_no_memory(
    kernel: ModuleType,
) -> None:
    for name in CASES:
        with row(name):
            data, message = CASES[name]
            walk = iter_batches(PREVIOUS + data + NEXT, topic="t", partition=0)
            assert [record.offset for record in next(walk).records()] == [0, 1, 2, 3, 4]
            with pytest.raises(CorruptRecordError, match=message) as caught:
                next(walk).records()
            assert (caught.value.topic, caught.value.partition) == ("t", 0)
            assert caught.value.offset is not None
            with allocates_at_most(64 * 1024), pytest.raises(CorruptRecordError, match=message):
                read(PREVIOUS + data + NEXT)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_consumer_raises_at_malformed_batch_and_continues(name: str) -> None:
    data, _ = CASES[name]
    read = [0, 1, 2, 3, 4, *READ_BEFORE.get(name, [])]
    await check_consumer_continues(read, PREVIOUS + data, (10, NEXT))


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
