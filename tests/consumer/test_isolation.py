"""Which batches a reader of committed data is shown: hand-made logs, any order of the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.consumer.isolation import AbortedRange, committed, everything
from kafka_async.errors import CorruptRecordError
from kafka_async.records.batch import (
    BatchView,
    RecordBatch,
    assign_offsets,
    iter_batches,
)
from kafka_async.records.control import encode_control_batch
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
    """One batch of one record an entry: its offset is its place."""
    data = b"".join(batch(entry, offset) for offset, entry in enumerate(entries))
    return list(iter_batches(data))


def shown(entries: Iterable[Entry], aborted: Iterable[AbortedRange]) -> list[int]:
    return [view.base_offset for view, handed in committed(log(entries), aborted) if handed]


def aborted_of(entries: list[Entry]) -> list[AbortedRange]:
    """What a broker would say: one row for each transaction that an abort marker ends."""
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


def visible_in_truth(entries: list[Entry]) -> list[int]:
    """Data of transactions that were committed, or are still open, and what has none."""
    out: list[int] = []
    for offset, (producer, kind) in enumerate(entries):
        later = (k for p, k in entries[offset:] if p == producer and k in ("commit", "abort"))
        if kind == "plain" or (kind == "data" and next(later, "open") != "abort"):
            out.append(offset)
    return out


def test_without_aborted_transactions_only_markers_are_left_out() -> None:
    assert shown([(1, "data"), (1, "commit"), (2, "plain")], []) == [0, 2]
    views = log([(1, "data"), (1, "abort"), (2, "plain")])
    assert [handed for _, handed in everything(views)] == [True, False, True]


def test_an_aborted_transaction_is_left_out_and_the_producers_next_is_not() -> None:
    entries: list[Entry] = [(1, "data"), (1, "abort"), (1, "data"), (1, "commit")]
    assert shown(entries, [AbortedRange(0, 1)]) == [2]


def test_a_producers_records_outside_transactions_are_shown() -> None:
    entries: list[Entry] = [(1, "data"), (1, "plain"), (1, "abort")]
    assert shown(entries, [AbortedRange(0, 1)]) == [1]


def test_a_transaction_that_began_before_the_fetch_is_left_out_from_the_first_batch_on() -> None:
    entries: list[Entry] = [(1, "data"), (2, "data"), (1, "abort"), (2, "commit")]
    assert shown(entries, [AbortedRange(-50, 1)]) == [1]


def test_a_marker_that_cannot_be_read_is_damage() -> None:
    entries: list[Entry] = [(1, "data"), (1, "abort")]
    data = bytearray(b"".join(batch(entry, offset) for offset, entry in enumerate(entries)))
    data[-1] ^= 0xFF
    with pytest.raises(CorruptRecordError):
        list(committed(iter_batches(bytes(data)), [AbortedRange(0, 1)]))


@given(
    entries=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from(["data", "data", "plain", "commit", "abort"])),
        max_size=24,
    ),
    random=st.randoms(use_true_random=False),
)
def test_whatever_the_log_and_the_order_of_the_list(entries: list[Entry], random: object) -> None:
    aborted = aborted_of(entries)
    random.shuffle(aborted)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert shown(entries, aborted) == visible_in_truth(entries)
