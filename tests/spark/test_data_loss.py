"""Tests of the detection of lost records."""

from __future__ import annotations

import re
import uuid

import pytest

from kafka_async.errors import DataLossError
from kafka_async.spark.offsets import OffsetRange, Offsets
from kafka_async.spark.source.data_loss import LogState, find_losses, plan_batch
from kafka_async.spark.source.stream_offset import StreamOffset
from kafka_async.types import TopicPartition

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def logs(
    earliest: Offsets, latest: Offsets, *, topic_id: uuid.UUID = OLD, ends: Offsets | None = None
) -> LogState:
    return LogState({"a": topic_id}, dict.fromkeys(latest, 3), earliest, latest, ends or {})


def at(offset: int, topic_id: uuid.UUID | None = OLD) -> StreamOffset:
    return StreamOffset({A0: offset}, {"a": topic_id} if topic_id else {}, {A0: 1})


def test_position_within_the_log_loses_nothing() -> None:
    for offset in (5, 7, 9):
        assert find_losses(at(offset), logs({A0: 5}, {A0: 9})) == ({A0: offset}, [])


def test_new_partition_is_read_from_its_first_record() -> None:
    starts, losses = find_losses(at(7), logs({A0: 0, A1: 0}, {A0: 9, A1: 4}))
    assert starts == {A0: 7, A1: 0}
    assert losses == []


@pytest.mark.parametrize(
    ("state", "resumes_at", "reason"),
    [
        (logs({}, {}), None, "deleted"),
        (logs({A1: 0}, {A1: 9}, topic_id=NEW), None, "created again .*, without this partition"),
        (logs({A0: 8}, {A0: 9}), 8, "begins at offset 8"),
        (logs({A0: 20}, {A0: 20}), 20, "begins at offset 20"),
        (logs({A0: 0}, {A0: 6}), 6, "ends at offset 6"),
        (logs({A0: 2}, {A0: 9}, topic_id=NEW), 2, "created again"),
        (logs({A0: 0}, {A0: 9}, ends={A0: 4}), 4, "replaced by others"),
        (logs({A0: 5}, {A0: 9}, ends={A0: 4}), 5, "replaced by others"),
    ],
)
def test_loss_names_the_position_and_where_reading_goes_on(
    state: LogState, resumes_at: int | None, reason: str
) -> None:
    starts, (loss, *_) = find_losses(at(7), state)
    assert starts.get(A0) == resumes_at
    assert (loss.partition, loss.offset, loss.to) == (A0, 7, resumes_at)
    error = loss.error()
    assert isinstance(error, DataLossError)
    assert (error.topic, error.partition, error.offset) == ("a", 0, 7)
    assert re.search(reason, str(error))
    assert "failOnDataLoss=false" in str(error)
    assert re.search(reason, str(loss))


def test_end_of_an_older_epoch_at_the_position_loses_nothing() -> None:
    assert find_losses(at(7), logs({A0: 0}, {A0: 9}, ends={A0: 7}))[1] == []


def test_new_partition_that_does_not_begin_at_0_is_a_loss() -> None:
    starts, (loss,) = find_losses(at(7), logs({A0: 0, A1: 3}, {A0: 9, A1: 4}))
    assert starts[A1] == 3
    assert loss.partition == A1


def test_checkpoint_of_sparks_connector_has_no_topic_id_to_compare() -> None:
    assert find_losses(at(7, None), logs({A0: 0}, {A0: 9}, topic_id=NEW))[1] == []


def test_batch_has_the_ranges_between_its_ends() -> None:
    end = StreamOffset({A0: 9, A1: 4}, {"a": OLD})
    ranges, losses = plan_batch(at(7), end, logs({A0: 0, A1: 0}, {A0: 50, A1: 50}))
    assert ranges == [OffsetRange("a", 0, 7, 9), OffsetRange("a", 1, 0, 4)]
    assert losses == []


def test_batch_of_a_topic_that_was_created_again_after_planning_is_lost() -> None:
    ranges, losses = plan_batch(at(7), at(9), logs({A0: 0}, {A0: 50}, topic_id=NEW))
    assert ranges == []
    assert [loss.partition for loss in losses] == [A0]


def test_batch_after_the_creation_reads_the_new_topic_from_its_first_record() -> None:
    ranges, losses = plan_batch(at(7), at(3, NEW), logs({A0: 0}, {A0: 50}, topic_id=NEW))
    assert ranges == [OffsetRange("a", 0, 0, 3)]
    assert "created again" in losses[0].reason


def test_batch_whose_end_was_truncated_after_planning_is_shorter() -> None:
    ranges, losses = plan_batch(at(7), at(20), logs({A0: 0}, {A0: 50}), {A0: 12})
    assert ranges == [OffsetRange("a", 0, 7, 12)]
    assert losses[0].offset == 20
    ranges, losses = plan_batch(at(7), at(20), logs({A0: 0}, {A0: 15}))
    assert ranges == [OffsetRange("a", 0, 7, 15)]
    assert len(losses) == 1


def test_batch_of_a_deleted_topic_is_lost() -> None:
    ranges, losses = plan_batch(at(7), at(9), logs({}, {}))
    assert ranges == []
    assert [loss.to for loss in losses] == [None]
