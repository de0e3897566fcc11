"""A partition's offsets and state, and the subscription that has the partitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_async.consumer.buffer.completed_fetch import CompletedFetch
from kafka_async.consumer.offsets import LATEST, UNKNOWN
from kafka_async.consumer.subscription import FetchState, PartitionState, Subscription
from kafka_async.kernel import NextRecord
from kafka_async.records.batch import RecordBatch, assign_offsets
from kafka_async.types import ProducerRecord, TopicPartition
from tests.compacted_batch import end_later

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fetch(state: PartitionState, count: int) -> None:
    """Add a completed fetch of `count` records from the fetch offset on, with leader epoch 4."""
    frame = RecordBatch.build([ProducerRecord("", b"v")] * count).frame()
    data = memoryview(assign_offsets(frame, state.fetch_offset, 4))
    fetched = CompletedFetch(P0, data, state.fetch_offset, None)
    assert fetched.find_batches(100)
    state.add_fetch(fetched)


# -- a partition ----------------------------------------------------------------------------------


@pytest.mark.parametrize("move", ["seek", "request_reset", "start_at_committed"])
def test_seek_outdates_lookups_and_drops_records_of_buffer_and_stream(move: str) -> None:
    state, stream = streaming(3, returned=1)
    fetch(state, 2)
    version = state.version
    getattr(state, move)(7 if move != "request_reset" else LATEST)
    assert state.version > version
    assert state.position == (7 if move != "request_reset" else UNKNOWN)
    assert (bool(state.buffer), stream.records, stream.at) == (False, [], 0)
    assert state.error is None


def test_new_leader_outdates_lookups_but_not_fetched_records() -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.on_leader_known(4)
    fetch(state, 1)
    version = state.version
    state.maybe_validate_position(4)
    assert state.fetch_state is FetchState.FETCHING
    state.prefer_replica(2, until=10)
    state.maybe_validate_position(5)
    assert state.fetch_state is FetchState.AWAIT_VALIDATION
    assert state.preferred_replica is None
    assert state.version > version
    assert state.buffer
    state.complete_validation(5)
    assert (state.fetch_state, state.leader_epoch) == (FetchState.FETCHING, 5)


def test_position_without_epoch_is_not_validated() -> None:
    state = PartitionState(P0)
    state.seek(3)
    state.maybe_validate_position(9)
    assert (state.fetch_state, state.leader_epoch) == (FetchState.FETCHING, 9)
    state.seek(3, epoch=2)
    assert state.fetch_state is FetchState.AWAIT_VALIDATION


def test_truncation_moves_position_back_to_end_of_log() -> None:
    state = PartitionState(P0)
    state.seek(0)
    fetch(state, 4)
    state.buffer.take_chunk(2)
    state.truncate(3, 4, 5)
    assert (state.position, state.fetch_offset, state.fetch_state) == (2, 2, FetchState.FETCHING)
    state.truncate(1, 4, 6)
    assert (state.position, state.processed) == (1, 0)


# -- a stream ------------------------------------------------------------------------------------


async def no_more() -> Any:
    raise AssertionError


def streaming(count: int, *, returned: int) -> tuple[PartitionState, NextRecord]:
    """Return a partition whose records were lent to a stream, which has returned some."""
    state, stream = PartitionState(P0), NextRecord(lambda: 0.0, no_more)
    state.seek(0)
    fetch(state, count)
    state.lend(state.buffer.take_chunk(), stream)
    stream.at = returned
    return state, stream


@pytest.mark.parametrize(
    ("returned", "position", "processed"), [(0, 0, 0), (1, 1, 0), (2, 2, 1), (3, 3, 2)]
)
def test_position_follows_stream(returned: int, position: int, processed: int) -> None:
    """The record that was returned last is being processed."""
    state, stream = streaming(3, returned=returned)
    assert (state.position, state.processed) == (position, processed)
    assert state.has_unprocessed == bool(returned)
    assert state.buffer.has_unreturned == (returned < 3)
    assert state.take_back() == 3 - returned
    assert (state.position, state.processed) == (position, processed)
    assert (stream.records, stream.at) == ([], 0)
    assert [r.offset for r in state.buffer.take_chunk()] == list(range(returned, 3))


COMPACTED = Path(__file__).parents[1] / "records/data/java_batches.json"
"""Has a batch with the records 502, 507 and 700."""


@pytest.mark.parametrize(
    ("returned", "committed", "position"), [(1, 503, 507), (2, 508, 700), (3, 701, 751)]
)
def test_position_passes_compacted_offsets_without_becoming_uncommitted(
    returned: int, committed: int, position: int
) -> None:
    """The batch ends at offset 750, behind its last record."""
    case = json.loads(COMPACTED.read_text())["cases"]["v2-compacted"]
    batch = end_later(bytes.fromhex(case["hex"]), 250)
    state, stream = PartitionState(P0), NextRecord(lambda: 0.0, no_more)
    state.seek(500)
    fetched = CompletedFetch(P0, memoryview(batch), 500, None)
    assert fetched.find_batches(100)
    state.add_fetch(fetched)
    state.lend(state.buffer.take_chunk(), stream)
    stream.at = returned
    assert (state.has_unprocessed, state.has_uncommitted) == (True, True)
    state.on_committed(committed)
    state.take_back()
    assert state.position == position
    assert (state.has_unprocessed, state.has_uncommitted) == (False, False)


def test_truncation_during_stream_continues_at_its_position() -> None:
    state, stream = streaming(4, returned=2)
    state.truncate(3, 4, 5)
    assert (state.position, state.fetch_offset, state.processed) == (2, 2, 1)
    assert stream.records == []


# -- a subscription -------------------------------------------------------------------------------


def test_response_is_outdated_when_partition_was_reassigned() -> None:
    subscription = Subscription()
    subscription.add_owned([P0])
    before = subscription.state(P0)
    version = before.version
    subscription.remove_owned([P0])
    subscription.add_owned([P0])
    assert before.version != version
    assert subscription.state(P0).version not in (version, before.version)
