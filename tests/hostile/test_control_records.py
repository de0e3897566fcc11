"""Malformed markers and lists of aborted transactions: aborted records stay hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_async.consumer.buffer.completed_fetch import AbortedRange, all_batches, committed_batches
from kafka_async.errors import CorruptRecordError
from kafka_async.records.batch import (
    assign_offsets,
    encode_batch,
    encode_control_batch,
    iter_batches,
)
from kafka_async.records.compression import Codec
from tests.hostile.malformed_batches import COUNT, SECRET, batch, with_field
from tests.hostile.scripted_fetch import BAD, GOOD, Reader, ScriptedFetch, check_consumer_continues
from tests.kernel.wire import record

OURS, OTHERS = 7, 8
ABORT, COMMIT, EPOCH = b"\0\0\0\0", b"\0\0\0\x01", b"\0\0\0\0\0\x09"
LISTED = [(0, OURS)]


def data(offset: int, producer: int = OURS) -> bytes:
    """Return a transactional batch of one record."""
    made = encode_batch(
        record(value=b"of %d" % producer),
        codec=Codec.none,
        count=1,
        base_timestamp=5_000,
        max_timestamp=5_000,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return assign_offsets(made, offset, 0)


def marker(offset: int, kind: Literal["commit", "abort"] = "abort", producer: int = OURS) -> bytes:
    made = encode_control_batch(
        kind, producer_id=producer, producer_epoch=0, coordinator_epoch=9, timestamp=5_000
    )
    return assign_offsets(made, offset, 0)


def control(offset: int, *pairs: tuple[bytes | None, bytes | None]) -> bytes:
    """Return a control batch of our producer with these keys and values."""
    parts = [record(delta=n, key=key, value=value) for n, (key, value) in enumerate(pairs)]
    made = encode_batch(
        b"".join(parts),
        codec=Codec.none,
        count=max(len(pairs), 1),
        base_timestamp=5_000,
        max_timestamp=5_000,
        producer_id=OURS,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    if not pairs:  # compaction may leave a batch without records
        made = with_field(made, COUNT, ">i", 0)
    return assign_offsets(made, offset, 0)


def visible_offsets(log: Sequence[bytes], aborted: Iterable[tuple[int, int]] = LISTED) -> list[int]:
    views = iter_batches(b"".join(log), topic="t", partition=0)
    ranges = [AbortedRange(*each) for each in aborted]
    return [view.base_offset for view, returned in committed_batches(views, ranges) if returned]


# The log, the list of aborted transactions, and the visible offsets.
CASES: dict[str, tuple[list[bytes], list[tuple[int, int]], list[int]]] = {
    "0 abort markers": ([data(0), data(1), data(2, OTHERS)], LISTED, [2]),
    "0 records in the marker": ([data(0), control(1), data(2), data(3, OTHERS)], LISTED, [3]),
    "2 abort markers in a row": ([data(0), marker(1), marker(2), data(3)], LISTED, [3]),
    "2 markers in one batch, the first aborts": (
        [data(0), control(1, (ABORT, EPOCH), (COMMIT, EPOCH)), data(3)],
        LISTED,
        [3],
    ),
    "2 markers in one batch, the first commits": (
        [data(0), control(1, (COMMIT, EPOCH), (ABORT, EPOCH)), data(3)],
        LISTED,
        [],
    ),
    "a commit marker for what is listed as aborted": (
        [data(0), marker(1, "commit"), data(2), marker(3), data(4)],
        LISTED,
        [4],
    ),
    "unknown control type 2": ([data(0), control(1, (b"\0\0\0\x02", None)), data(2)], LISTED, []),
    "unknown control type 32767": (
        [data(0), control(1, (b"\0\0\x7f\xff", SECRET)), data(2)],
        LISTED,
        [],
    ),
    "unknown control type -1": ([data(0), control(1, (b"\0\0\xff\xff", b"")), data(2)], LISTED, []),
    "unknown control version": (
        [data(0), control(1, (b"\0\x05\0\0more", b"\0\x05\0\0\0\x09more")), data(2)],
        LISTED,
        [2],
    ),
    "negative control version": (
        [data(0), control(1, (b"\xff\xff\0\0", b"\xff\xff\0\0\0\x09")), data(2)],
        LISTED,
        [2],
    ),
    "marker without txn": ([marker(0), marker(1, "commit"), data(2)], [], [2]),
    "marker of another producer": ([data(0), marker(1, "abort", OTHERS), data(2)], LISTED, []),
    "aborted list unsorted": (
        [data(0), marker(1), data(2), data(3, OTHERS), marker(4), marker(5, "abort", OTHERS)],
        [(3, OTHERS), (2, OURS), (0, OURS)],
        [],
    ),
    "aborted list with duplicates": (
        [data(0), marker(1), data(2), marker(3, "commit")],
        [(0, OURS)] * 3,
        [2],
    ),
    "aborted list that overlaps": (
        [data(0), data(1), marker(2), data(3)],
        [(0, OURS), (1, OURS)],
        [3],
    ),
    "aborted list from before the fetch": ([data(5), marker(6), data(7)], [(-(2**63), OURS)], [7]),
    "aborted list beyond the fetch": ([data(0), data(1)], [(2**63 - 1, OURS)], [0, 1]),
    "aborted list of unknown producers": ([data(0), data(1)], [(0, -1), (0, 2**63 - 1)], [0, 1]),
    "aborted list that is empty": ([data(0), marker(1), data(2)], [], [0, 2]),
}


@pytest.mark.parametrize("name", CASES)
def test_hides_aborted_records(kernel: ModuleType, name: str) -> None:
    log, aborted, visible = CASES[name]
    assert visible_offsets(log, aborted) == visible


@pytest.mark.parametrize("name", CASES)
def test_read_uncommitted_accepts_any_markers(kernel: ModuleType, name: str) -> None:
    log, _, visible = CASES[name]
    views = iter_batches(b"".join(log), topic="t", partition=0)
    returned = [view.base_offset for view, returned in all_batches(views) if returned]
    assert set(visible) <= set(returned)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_consumer_hides_aborted_records(name: str) -> None:
    log, aborted, visible = CASES[name]
    end = 10
    script = ScriptedFetch()
    script.aborted = aborted
    script.data[BAD] = {0: b"".join([*log, batch(base=end)])}
    script.data[GOOD] = {0: batch(base=0)}
    async with script.consumer(isolation_level="read_committed") as consumer:
        reader = Reader(consumer)
        await reader.until(BAD, [*visible, *range(end, end + 5)])
        await reader.until(GOOD, [0, 1, 2, 3, 4])


# Any list hides the records of the producers in it, and no others.
LOGS = st.lists(
    st.tuples(st.sampled_from([OURS, OTHERS]), st.sampled_from(["data", "abort", "commit"])),
    max_size=12,
)
RANGES = st.lists(
    st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 14), st.sampled_from([OURS, -1])),
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=LOGS, ranges=RANGES)
def test_aborted_list_hides_only_listed_producers(
    kernel: ModuleType, log: list[tuple[int, str]], ranges: list[tuple[int, int]]
) -> None:
    made = [
        data(n, producer) if kind == "data" else marker(n, kind, producer)  # type: ignore[arg-type]  # one of the two
        for n, (producer, kind) in enumerate(log)
    ]
    visible = visible_offsets(made, ranges)
    assert {
        n for n, (producer, kind) in enumerate(log) if (producer, kind) == (OTHERS, "data")
    } <= {*visible}
    for first, producer in ranges:
        after = range(max(first, 0), len(log))
        ends = (n for n in after if log[n] == (producer, "abort"))
        hidden = range(max(first, 0), next(ends, len(log)))
        assert not [n for n in visible if n in hidden and log[n][0] == producer]


# -- malformed markers ----------------------------------------------------------------------------

MALFORMED_MARKERS = {
    "marker without a key": control(1, (None, EPOCH)),
    "marker with a key cut off": control(1, (b"\0\0\0", EPOCH)),
    "marker without a value": control(1, (ABORT, None)),
    "marker with a value cut off": control(1, (ABORT, b"\0\0\0\0\0")),
    "marker that is damaged": marker(1)[:-1] + b"\x7f",
}


@pytest.mark.parametrize("name", MALFORMED_MARKERS)
def test_malformed_marker_is_corrupt(kernel: ModuleType, name: str) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        visible_offsets([data(0), MALFORMED_MARKERS[name], data(2)])
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 1)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", MALFORMED_MARKERS)
async def test_consumer_raises_at_malformed_marker_and_hides_aborted_records(name: str) -> None:
    errors = await check_consumer_continues(
        [],
        data(0) + MALFORMED_MARKERS[name] + data(2),
        (3, batch(base=3)),
        isolation_level="read_committed",
        aborted=LISTED,
    )
    assert {error.offset for error in errors} == {1}


# -- wrong watermarks -----------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("high_watermark", "last_stable_offset"),
    [(10, 20), (-1, -1), (0, 2**63 - 1), (2**63 - 1, -(2**63))],
    ids=["LSO>HW", "both unknown", "LSO far beyond HW", "LSO far below"],
)
async def test_wrong_watermarks_do_not_affect_reads(
    high_watermark: int, last_stable_offset: int
) -> None:
    script = ScriptedFetch()
    script.aborted = LISTED
    script.high_watermark, script.last_stable_offset = high_watermark, last_stable_offset
    script.data[BAD] = {0: data(0) + marker(1) + batch(base=2)}
    async with script.consumer(isolation_level="read_committed") as consumer:
        reader = Reader(consumer)
        await reader.until(BAD, [2, 3, 4, 5, 6])
        assert await consumer.position(BAD) == 7
        assert consumer.statistics().records_lag.get(BAD, 0) >= 0
