"""The state table of acquired records, and the ranges in which they are acknowledged."""

from __future__ import annotations

from itertools import pairwise, product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.consumer.share.acquired_records import (
    TRANSITIONS,
    AcknowledgeType,
    AcquiredRecord,
    AcquiredRecords,
    RecordEvent,
    RecordState,
    by_partition,
    offset_ranges,
)
from kafka_async.consumer.share.share_record import ShareRecord
from kafka_async.errors import IllegalStateError
from kafka_async.types import TopicPartition

T0 = TopicPartition("t", 0)


def record(offset: int, node_id: int = 1, locked_until: float = 30.0) -> AcquiredRecord:
    content: ShareRecord = ShareRecord("t", 0, offset, 0, 0, None, b"v", (), None, 1)
    return AcquiredRecord(T0, offset, node_id, locked_until, UUID(int=1), content)


def test_every_state_but_the_last_can_be_left_and_reached() -> None:
    left = {state for state, _ in TRANSITIONS}
    assert left == set(RecordState) - {RecordState.DONE}
    assert set(TRANSITIONS.values()) == set(RecordState)
    assert {event for _, event in TRANSITIONS} == set(RecordEvent)


def test_record_passes_through_its_states() -> None:
    records = AcquiredRecords()
    one = record(0)
    records.add([one])
    assert records.take(5, now=1.0) == [one]
    assert list(records[RecordState.DELIVERED]) == [one]
    records.acknowledge(T0, 0, AcknowledgeType.RENEW)
    assert records.pending_nodes == [1]
    records.mark_sent(records.pending(1))
    assert records.pending_nodes == []
    records.complete([one], 60.0, accepted=True)
    assert one.locked_until == 60.0
    assert records.take(5, now=31.0) == [one]
    records.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    records.mark_sent([one])
    records.complete([one], 90.0, accepted=True)
    assert one.state is RecordState.DONE
    assert not any(records[state] for state in RecordState)


def test_failed_renewal_ends_the_record() -> None:
    records = AcquiredRecords()
    one = record(0)
    records.add([one])
    records.take(1, now=0.0)
    records.acknowledge(T0, 0, AcknowledgeType.RENEW)
    records.mark_sent([one])
    records.complete([one], 60.0, accepted=False)
    assert one.state is RecordState.DONE


def test_records_that_are_not_returned_cannot_be_acknowledged() -> None:
    records = AcquiredRecords()
    records.add([record(0), record(1)])
    records.take(1, now=0.0)
    for offset in (1, 2):
        with pytest.raises(IllegalStateError, match=f"t-0 offset {offset} is not a record"):
            records.acknowledge(T0, offset, AcknowledgeType.ACCEPT)


def test_second_delivery_replaces_the_first() -> None:
    records = AcquiredRecords()
    first, second = record(0), record(0, node_id=2)
    records.add([first])
    records.take(1, now=0.0)
    records.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    assert records.add([second]) == [first]
    assert first.state is RecordState.DONE
    assert records.pending_nodes == []
    assert records.take(1, now=0.0) == [second]
    assert records.add([record(0)]) == []  # the second was not acknowledged


@given(st.dictionaries(st.integers(0, 40), st.sampled_from(AcknowledgeType)))
def test_ranges_have_every_acknowledgement_once(chosen: dict[int, AcknowledgeType]) -> None:
    rows = [record(offset) for offset in chosen]
    for row in rows:
        row.type = chosen[row.offset]
    found: dict[int, int] = {}
    ranges = list(offset_ranges(rows))
    for first, last, types in ranges:
        assert len(types) in (1, last - first + 1)
        spread = types * (last - first + 1) if len(types) == 1 else types
        found.update(zip(range(first, last + 1), spread, strict=True))
    assert found == chosen
    assert all(a.last + 1 < b.first for a, b in pairwise(ranges))


def test_rows_are_grouped_by_partition() -> None:
    rows = [record(offset, node) for offset, node in product((0, 1), (1,))]
    assert by_partition(rows) == {T0: rows}
