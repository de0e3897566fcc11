"""The read_committed filter, on logs made by hand and generated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.consumer.buffer.completed_fetch import AbortedRange, all_batches, committed_batches
from kafka_async.records.batch import (
    BatchView,
    RecordBatch,
    assign_offsets,
    encode_control_batch,
    iter_batches,
)
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

Entry = tuple[int, Literal["data", "plain", "commit", "abort"]]


def batch(entry: Entry, offset: int) -> bytes:
    producer, kind = entry
    if kind in ("commit", "abort"):
        marker = encode_control_batch(
            kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0
        )
        return assign_offsets(marker, offset, 0)
    framed = RecordBatch.build([ProducerRecord("", b"v")]).frame(
        producer_id=producer, producer_epoch=0, base_sequence=0, transactional=kind == "data"
    )
    return assign_offsets(framed, offset, 0)


def log(entries: Iterable[Entry]) -> list[BatchView]:
    """Return a log of one record per batch: its offset is its index."""
    data = b"".join(batch(entry, offset) for offset, entry in enumerate(entries))
    return list(iter_batches(data))


def visible(entries: Iterable[Entry], aborted: Iterable[AbortedRange]) -> list[int]:
    return [
        view.base_offset
        for view, is_delivered in committed_batches(log(entries), aborted)
        if is_delivered
    ]


def aborted_transactions(entries: list[Entry]) -> list[AbortedRange]:
    """Return the broker's list: a row for each transaction that an abort marker ends."""
    first: dict[int, int] = {}
    found: list[AbortedRange] = []
    for offset, (producer, kind) in enumerate(entries):
        if kind == "data":
            first.setdefault(producer, offset)
        elif kind in ("commit", "abort") and producer in first:
            start = first.pop(producer)
            if kind == "abort":
                found.append(AbortedRange(start, producer))
    return found


def expected_visible(entries: list[Entry]) -> list[int]:
    """Return offsets of data in committed and open transactions, and outside of transactions."""
    out: list[int] = []
    for offset, (producer, kind) in enumerate(entries):
        later = (k for p, k in entries[offset:] if p == producer and k in ("commit", "abort"))
        if kind == "plain" or (kind == "data" and next(later, "open") != "abort"):
            out.append(offset)
    return out


def test_drops_only_markers_without_aborted_transactions() -> None:
    assert visible([(1, "data"), (1, "commit"), (2, "plain")], []) == [0, 2]
    views = log([(1, "data"), (1, "abort"), (2, "plain")])
    assert [is_delivered for _, is_delivered in all_batches(views)] == [True, False, True]


def test_drops_transaction_that_began_before_the_fetch() -> None:
    entries: list[Entry] = [(1, "data"), (2, "data"), (1, "abort"), (2, "commit")]
    assert visible(entries, [AbortedRange(-50, 1)]) == [1]


@given(
    entries=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["data", "data", "plain", "commit", "abort"])),
        max_size=24,
    ),
    random=st.randoms(use_true_random=False),
)
def test_filter_matches_model_for_any_log(entries: list[Entry], random: object) -> None:
    aborted = aborted_transactions(entries)
    random.shuffle(aborted)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert visible(entries, aborted) == expected_visible(entries)
