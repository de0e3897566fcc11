"""A partition's offsets and state: committed, processed, position, fetch_offset."""

from __future__ import annotations

import pytest

from kafka_async.consumer.fetch_buffer import CompletedFetch, FetchBuffer
from kafka_async.consumer.subscription import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    FetchState,
    PartitionState,
    Subscription,
)
from kafka_async.errors import CorruptRecordError, IllegalStateError, RecordTooLargeError
from kafka_async.records.batch import RecordBatch, assign_offsets
from kafka_async.types import OffsetAndMetadata, ProducerRecord, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def framed(values: list[str], offset: int) -> bytes:
    batch = RecordBatch.build([ProducerRecord("", v.encode()) for v in values]).frame()
    return assign_offsets(batch, offset, 4)


def completed_fetch(data: bytes, offset: int) -> CompletedFetch:
    fetched = CompletedFetch(P0, memoryview(data), offset, None)
    assert fetched.find_batches(100)
    return fetched


# -- a partition ----------------------------------------------------------------------------------


def test_partition_without_offset_is_initializing() -> None:
    state = PartitionState(P0)
    assert (state.fetch_state, state.position, state.lag(committed=False)) == (
        FetchState.INITIALIZING,
        UNKNOWN,
        None,
    )
    assert state.to_commit(include_unprocessed=True) is None


def test_delivery_processing_and_commit_advance_their_offsets() -> None:
    state = PartitionState(P0)
    state.start_at_committed(5)
    state.advance_position(8, epoch=4)
    assert (state.has_unprocessed, state.has_uncommitted) == (True, True)
    assert state.to_commit(include_unprocessed=True) == OffsetAndMetadata(8, 4)
    assert state.to_commit(include_unprocessed=False) is None
    state.mark_processed()
    assert not state.has_unprocessed
    assert state.to_commit(include_unprocessed=False) == OffsetAndMetadata(8, 4)
    state.on_committed(8)
    assert (state.has_uncommitted, state.to_commit(include_unprocessed=True)) == (False, None)


def test_commit_marks_records_processed() -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.advance_position(3)
    state.on_committed(3)
    assert not state.has_unprocessed


@pytest.mark.parametrize("move", ["seek", "request_reset", "start_at_committed"])
def test_seek_outdates_lookups_and_fetched_records(move: str) -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.add_fetch(completed_fetch(framed(["a", "b"], 0), 0))
    version, position_version = state.version, state.position_version
    getattr(state, move)(7 if move != "request_reset" else LATEST)
    assert state.version > version
    assert state.position_version > position_version
    assert not state.buffer
    assert state.error is None


def test_new_leader_outdates_lookups_but_not_fetched_records() -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.leader_epoch = 4
    state.add_fetch(completed_fetch(framed(["a"], 0), 0))
    version, position_version = state.version, state.position_version
    state.maybe_validate_position(4)
    assert state.fetch_state is FetchState.FETCHING
    state.maybe_validate_position(5)
    assert state.fetch_state is FetchState.AWAIT_VALIDATION
    assert state.version > version
    assert state.position_version == position_version
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
    state.add_fetch(completed_fetch(framed(["a", "b", "c", "d"], 0), 0))
    state.advance_position(2, 4)
    state.truncate(3, 4, 5)
    assert (state.position, state.fetch_offset, state.fetch_state) == (2, 2, FetchState.FETCHING)
    state.truncate(1, 4, 6)
    assert (state.position, state.processed) == (1, 0)


def test_partition_starts_where_listener_seeks() -> None:
    held = PartitionState(P0, FetchState.AWAIT_CALLBACK)
    held.on_callback_done()
    assert held.fetch_state is FetchState.INITIALIZING
    sought = PartitionState(P0, FetchState.AWAIT_CALLBACK)
    sought.seek(3)
    sought.on_callback_done()
    assert (sought.fetch_state, sought.position) == (FetchState.FETCHING, 3)
    reset = PartitionState(P0, FetchState.AWAIT_CALLBACK)
    reset.request_reset(EARLIEST)
    reset.on_callback_done()
    assert reset.fetch_state is FetchState.AWAIT_RESET


# -- a subscription -------------------------------------------------------------------------------


def test_assignment_has_owned_and_static_partitions() -> None:
    subscription = Subscription()
    subscription.set_static([P0])
    subscription.add_owned([P0, P1])
    assert subscription.assignment == {P0, P1}
    assert subscription.state(P1).fetch_state is FetchState.AWAIT_CALLBACK
    subscription.remove_owned([P0, P1])
    assert subscription.assignment == {P0}
    subscription.set_static([])
    assert list(subscription) == []
    with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
        subscription.state(P0)


def test_remembers_lost_partitions_with_uncommitted_records() -> None:
    subscription = Subscription()
    subscription.add_owned([P0, P1])
    for partition in (P0, P1):
        subscription.state(partition).seek(0)
    subscription.state(P0).advance_position(3)
    subscription.remove_owned([P0, P1])
    assert subscription.lost_uncommitted == {P0}


def test_response_is_outdated_when_partition_was_reassigned() -> None:
    subscription = Subscription()
    subscription.add_owned([P0])
    before = subscription.state(P0)
    version = before.version
    subscription.remove_owned([P0])
    subscription.add_owned([P0])
    assert before.version != version
    assert subscription.state(P0).version not in (version, before.version)


# -- a buffer -------------------------------------------------------------------------------------


def offsets(records: list[object]) -> list[int]:
    return [record.offset for record in records]  # type: ignore[attr-defined]  # Records


def never() -> bool:
    return False


def filled(*parts: bytes, at: int = 0) -> FetchBuffer:
    buffer = FetchBuffer(P0)
    buffer.clear(at)
    for part in parts:
        buffer.add(completed_fetch(part, at))
    return buffer


def test_takes_records_in_order_and_advances_position() -> None:
    buffer = filled(framed(["a", "b", "c"], 0) + framed(["d"], 3), framed(["e"], 4))
    assert offsets([*buffer.take_records(2, never)]) == [0, 1]
    assert buffer.position == 2
    assert offsets([*buffer.take_chunk()]) == [2]
    assert offsets([*buffer.take_records(10, never)]) == [3, 4]
    assert (buffer.position, buffer.size, bool(buffer)) == (5, 0, False)
    assert buffer.take_records(1, never) == []


def test_skips_records_before_position() -> None:
    assert offsets([*filled(framed(["a", "b", "c"], 0), at=2).take_records(9, never)]) == [2]


def test_records_put_back_are_taken_first() -> None:
    buffer = filled(framed(["a", "b", "c"], 0))
    taken = buffer.take_chunk()
    buffer.put_back(taken[1:])
    assert buffer.position == 1
    assert offsets([*buffer.take_records(9, never)]) == [1, 2]
    assert buffer.position == 3


def test_corrupt_record_is_raised_after_earlier_records_and_again() -> None:
    broken = bytearray(framed(["c"], 2))
    broken[-1] ^= 0xFF
    buffer = filled(framed(["a", "b"], 0) + bytes(broken))
    assert offsets([*buffer.take_records(9, never)]) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as caught:
            buffer.take_records(9, never)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 2)


def test_bytes_that_are_not_a_batch_are_corrupt() -> None:
    broken = bytearray(framed(["c"], 2))
    broken[16] = 9  # the magic
    buffer = filled(framed(["a", "b"], 0) + bytes(broken))
    assert len(buffer.take_records(9, never)) == 2
    with pytest.raises(CorruptRecordError):
        buffer.take_records(9, never)
    views = filled(framed(["a", "b"], 0) + bytes(broken))
    assert len(views.take_batches()[0]) == 1
    with pytest.raises(CorruptRecordError):
        views.take_batches()


def test_batch_larger_than_fetch_is_an_error() -> None:
    part = filled(framed(["a" * 1000], 0)[:500])
    with pytest.raises(RecordTooLargeError):
        part.take_records(1, never)


def test_incomplete_last_batch_is_fetched_again() -> None:
    data = framed(["a"], 0) + framed(["b"], 1)[:30]
    assert completed_fetch(data, 0).end == 1
    assert completed_fetch(data, 0).error is None


def test_take_batches_starts_with_rest_of_open_batch() -> None:
    buffer = filled(framed(["a", "b", "c"], 0) + framed(["d"], 3))
    buffer.take_records(1, never)
    views, start = buffer.take_batches()
    assert start == 1
    assert [view.base_offset for view in views] == [0, 3]
    assert (buffer.position, bool(buffer)) == (4, False)
