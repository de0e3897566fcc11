"""Where a partition stands: committed, done, position, fetch_offset; and what voids an answer."""

from __future__ import annotations

import pytest

from kafka_async.consumer.fetch_buffer import Buffer, CompletedFetch
from kafka_async.consumer.subscription import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    PartitionState,
    Phase,
    Subscription,
)
from kafka_async.errors import CorruptRecordError, IllegalStateError, RecordTooLargeError
from kafka_async.records.batch import RecordBatch, assign_offsets
from kafka_async.types import OffsetAndMetadata, ProducerRecord, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def framed(values: list[str], offset: int) -> bytes:
    batch = RecordBatch.build([ProducerRecord("", v.encode()) for v in values]).frame()
    return assign_offsets(batch, offset, 4)


def found(data: bytes, offset: int) -> CompletedFetch:
    fetched = CompletedFetch(P0, memoryview(data), offset, None)
    assert fetched.walk(100)
    return fetched


# -- a partition ----------------------------------------------------------------------------------


def test_a_partition_without_an_offset_is_new() -> None:
    state = PartitionState(P0)
    assert (state.phase, state.position, state.lag(committed=False)) == (Phase.NEW, UNKNOWN, None)
    assert state.to_commit(in_hand=True) is None


def test_handing_out_asking_and_committing_move_three_offsets() -> None:
    state = PartitionState(P0)
    state.found_committed(5)
    state.handed_out(8, epoch=4)
    assert (state.in_hand, state.moved) == (True, True)
    assert state.to_commit(in_hand=True) == OffsetAndMetadata(8, 4)
    assert state.to_commit(in_hand=False) is None
    state.asked_past()
    assert not state.in_hand
    assert state.to_commit(in_hand=False) == OffsetAndMetadata(8, 4)
    state.was_committed(8)
    assert (state.moved, state.to_commit(in_hand=True)) == (False, None)


def test_committing_takes_things_out_of_hand_too() -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.handed_out(3)
    state.was_committed(3)
    assert not state.in_hand


@pytest.mark.parametrize("move", ["seek", "reset", "found_committed"])
def test_going_elsewhere_voids_what_was_asked_and_what_was_fetched(move: str) -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.fetched(found(framed(["a", "b"], 0), 0))
    version, place = state.version, state.place
    getattr(state, move)(7 if move != "reset" else LATEST)
    assert state.version > version
    assert state.place > place
    assert not state.buffer
    assert state.error is None


def test_another_leader_voids_what_was_asked_but_not_what_was_fetched() -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.leader_epoch = 4
    state.fetched(found(framed(["a"], 0), 0))
    version, place = state.version, state.place
    state.led_by(4)
    assert state.phase is Phase.READY
    state.led_by(5)
    assert state.phase is Phase.VALIDATING
    assert state.version > version
    assert state.place == place
    assert state.buffer
    state.validated(5)
    assert (state.phase, state.leader_epoch) == (Phase.READY, 5)


def test_without_an_epoch_of_its_own_a_position_cannot_be_compared() -> None:
    state = PartitionState(P0)
    state.seek(3)
    state.led_by(9)
    assert (state.phase, state.leader_epoch) == (Phase.READY, 9)
    state.seek(3, epoch=2)
    assert state.phase is Phase.VALIDATING


def test_a_truncated_log_takes_back_only_what_lies_beyond_its_end() -> None:
    state = PartitionState(P0)
    state.seek(0)
    state.fetched(found(framed(["a", "b", "c", "d"], 0), 0))
    state.handed_out(2, 4)
    state.truncated(3, 4, 5)
    assert (state.position, state.fetch_offset, state.phase) == (2, 2, Phase.READY)
    state.truncated(1, 4, 6)
    assert (state.position, state.done) == (1, 0)


def test_a_held_partition_starts_where_the_listener_put_it() -> None:
    held = PartitionState(P0, Phase.HELD)
    held.release()
    assert held.phase is Phase.NEW
    sought = PartitionState(P0, Phase.HELD)
    sought.seek(3)
    sought.release()
    assert (sought.phase, sought.position) == (Phase.READY, 3)
    reset = PartitionState(P0, Phase.HELD)
    reset.reset(EARLIEST)
    reset.release()
    assert reset.phase is Phase.RESETTING


# -- a subscription -------------------------------------------------------------------------------


def test_the_groups_share_and_static_partitions_are_one_assignment() -> None:
    subscription = Subscription()
    subscription.set_static([P0])
    subscription.own([P0, P1])
    assert subscription.assignment == {P0, P1}
    assert subscription.state(P1).phase is Phase.HELD
    subscription.disown([P0, P1])
    assert subscription.assignment == {P0}
    subscription.set_static([])
    assert list(subscription) == []
    with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
        subscription.state(P0)


def test_what_was_handed_out_and_is_gone_is_remembered() -> None:
    subscription = Subscription()
    subscription.own([P0, P1])
    for partition in (P0, P1):
        subscription.state(partition).seek(0)
    subscription.state(P0).handed_out(3)
    subscription.disown([P0, P1])
    assert subscription.forfeited == {P0}


def test_an_answer_for_a_partition_that_went_and_came_back_is_void() -> None:
    subscription = Subscription()
    subscription.own([P0])
    before = subscription.state(P0)
    version = before.version
    subscription.disown([P0])
    subscription.own([P0])
    assert before.version != version
    assert subscription.state(P0).version not in (version, before.version)


# -- a buffer -------------------------------------------------------------------------------------


def offsets(records: list[object]) -> list[int]:
    return [record.offset for record in records]  # type: ignore[attr-defined]  # Records


def never() -> bool:
    return False


def filled(*parts: bytes, at: int = 0) -> Buffer:
    buffer = Buffer(P0)
    buffer.clear(at)
    for part in parts:
        buffer.add(found(part, at))
    return buffer


def test_records_are_taken_in_order_and_the_position_follows() -> None:
    buffer = filled(framed(["a", "b", "c"], 0) + framed(["d"], 3), framed(["e"], 4))
    assert offsets([*buffer.take(2, never)]) == [0, 1]
    assert buffer.position == 2
    assert offsets([*buffer.take_some()]) == [2]
    assert offsets([*buffer.take(10, never)]) == [3, 4]
    assert (buffer.position, buffer.size, bool(buffer)) == (5, 0, False)
    assert buffer.take(1, never) == []


def test_a_batch_that_begins_before_the_position_is_cut() -> None:
    assert offsets([*filled(framed(["a", "b", "c"], 0), at=2).take(9, never)]) == [2]


def test_what_is_put_back_comes_first() -> None:
    buffer = filled(framed(["a", "b", "c"], 0))
    taken = buffer.take_some()
    buffer.put_back(taken[1:])
    assert buffer.position == 1
    assert offsets([*buffer.take(9, never)]) == [1, 2]
    assert buffer.position == 3


def test_damage_is_met_after_what_is_before_it_and_stays() -> None:
    broken = bytearray(framed(["c"], 2))
    broken[-1] ^= 0xFF
    buffer = filled(framed(["a", "b"], 0) + bytes(broken))
    assert offsets([*buffer.take(9, never)]) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as caught:
            buffer.take(9, never)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 2)


def test_bytes_that_are_no_batch_are_damage_too() -> None:
    broken = bytearray(framed(["c"], 2))
    broken[16] = 9  # the magic
    buffer = filled(framed(["a", "b"], 0) + bytes(broken))
    assert len(buffer.take(9, never)) == 2
    with pytest.raises(CorruptRecordError):
        buffer.take(9, never)
    views = filled(framed(["a", "b"], 0) + bytes(broken))
    assert len(views.take_views()[0]) == 1
    with pytest.raises(CorruptRecordError):
        views.take_views()


def test_a_batch_larger_than_what_was_fetched_is_an_error() -> None:
    part = filled(framed(["a" * 1000], 0)[:500])
    with pytest.raises(RecordTooLargeError):
        part.take(1, never)


def test_a_batch_cut_off_at_the_end_is_fetched_again() -> None:
    data = framed(["a"], 0) + framed(["b"], 1)[:30]
    assert found(data, 0).end == 1
    assert found(data, 0).error is None


def test_views_begin_with_the_rest_of_the_batch_in_hand() -> None:
    buffer = filled(framed(["a", "b", "c"], 0) + framed(["d"], 3))
    buffer.take(1, never)
    views, start = buffer.take_views()
    assert start == 1
    assert [view.base_offset for view in views] == [0, 3]
    assert (buffer.position, bool(buffer)) == (4, False)
