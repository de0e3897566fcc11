"""The log of a partition: appends, transactions, leader epochs, timestamps."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_async.embedded.settings import Settings
from kafka_async.embedded.state.configs import effective_configs
from kafka_async.embedded.state.log import PartitionLog
from kafka_async.errors import InvalidProducerEpochError, OffsetOutOfRangeError
from kafka_async.records.batch import iter_batches
from kafka_async.types import OffsetAndTimestamp
from tests.raw_connection import batch

ALL = 1 << 20


def offsets(log: PartitionLog, start: int = 0, *, committed: bool = False) -> list[int]:
    data = log.read(start, ALL, committed=committed).records
    return [record.offset for view in iter_batches(data) for record in view.records()]


def test_log_append_time_replaces_timestamps() -> None:
    log = PartitionLog()
    configs = effective_configs(Settings(), {"message.timestamp.type": "LogAppendTime"})
    log.configure(configs)
    sent = batch(b"a", producer_id=1, epoch=0, sequence=0, timestamp=5)
    assert log.append(sent, 700).append_time == 700
    assert log.append(sent, 900).append_time == 700
    (view,) = iter_batches(log.read(0, ALL).records)
    assert [record.timestamp for record in view.records()] == [700]


# -- transactions ---------------------------------------------------------------------------------


def append_transactional(log: PartitionLog, producer_id: int, sequence: int = 0) -> int:
    sent = batch(b"t", producer_id=producer_id, epoch=0, sequence=sequence, transactional=True)
    return log.append(sent, 0).base_offset


def test_read_committed_ends_at_last_stable_offset() -> None:
    log = PartitionLog()
    log.append(batch(b"a"), 0)
    append_transactional(log, 1)
    append_transactional(log, 2)
    log.append(batch(b"b"), 0)
    assert log.last_stable_offset == 1
    assert offsets(log, committed=True) == [0]
    assert offsets(log) == [0, 1, 2, 3]
    log.append_end_txn_marker("commit", 1, 0, 0, 0)
    assert log.last_stable_offset == 2
    log.append_end_txn_marker("commit", 2, 0, 0, 0)
    assert log.last_stable_offset == log.end_offset == 6


def test_read_committed_returns_aborted_transactions_from_offset_on() -> None:
    log = PartitionLog()
    append_transactional(log, 1)
    marker = log.append_end_txn_marker("abort", 1, 0, 0, 0)
    data = log.read(0, ALL, committed=True)
    assert data.aborted is not None
    assert [(entry.producer_id, entry.first_offset) for entry in data.aborted] == [(1, 0)]
    assert log.read(marker + 1, ALL, committed=True).aborted == []


def test_marker_has_type_and_coordinator_epoch() -> None:
    log = PartitionLog()
    append_transactional(log, 1)
    log.append_end_txn_marker("abort", 1, 0, 3, 50)
    *_, marker = iter_batches(log.read(0, ALL).records)
    assert marker.is_control
    assert marker.is_transactional
    assert marker.control() == ("abort", 3)
    assert (marker.producer_id, marker.header.producer_epoch) == (1, 0)


def test_marker_of_fenced_epoch_is_rejected() -> None:
    log = PartitionLog()
    log.append(batch(b"a", producer_id=1, epoch=4, sequence=0), 0)
    with pytest.raises(InvalidProducerEpochError):
        log.append_end_txn_marker("commit", 1, 3, 0, 0)
    assert log.end_offset == 1


# -- deletion and epochs --------------------------------------------------------------------------


def test_deleting_records_advances_log_start_offset() -> None:
    log = PartitionLog()
    for _ in range(3):
        log.append(batch(b"a", b"b"), 0)
    assert log.delete_records_before(3) == 3
    assert log.delete_records_before(1) == 3
    with pytest.raises(OffsetOutOfRangeError):
        log.check_offset(2)
    assert offsets(log, 3) == [2, 3, 4, 5]  # the batch with offset 3 is kept
    assert log.delete_records_before(-1) == log.end_offset == 6
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(7)


def test_epoch_ends_at_start_of_next_epoch() -> None:
    log = PartitionLog()
    log.append(batch(b"a", b"b"), 0)
    log.assign_leader_epoch(3)
    log.append(batch(b"c"), 0)
    log.assign_leader_epoch(5)
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (0, 2)
    assert log.end_offset_for_epoch(3) == (3, 3)
    assert log.end_offset_for_epoch(5) == (5, 3)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    assert [log.epoch_for_offset(offset) for offset in range(3)] == [0, 0, 3]


def test_epoch_without_records_is_dropped() -> None:
    log = PartitionLog()
    log.append(batch(b"a"), 0)
    log.assign_leader_epoch(1)
    log.assign_leader_epoch(2)
    log.append(batch(b"b"), 0)
    assert log.end_offset_for_epoch(1) == (0, 1)
    assert log.epoch_for_offset(1) == 2


def test_batches_have_leader_epoch() -> None:
    log = PartitionLog()
    log.append(batch(b"a"), 0)
    log.assign_leader_epoch(4)
    log.append(batch(b"b"), 0)
    views = iter_batches(log.read(0, ALL).records)
    assert [view.header.leader_epoch for view in views] == [0, 4]


# -- time -----------------------------------------------------------------------------------------


def test_read_committed_finds_no_timestamp_above_last_stable_offset() -> None:
    log = PartitionLog()
    log.append(batch(b"a", timestamp=10), 0)
    append_transactional(log, 1)
    assert log.fetch_offset_by_timestamp(11, committed=True) is None
    assert log.fetch_offset_by_timestamp(11) == OffsetAndTimestamp(1, 1_000, 0)


@given(
    batches=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=8),
    timestamp=st.integers(0, 55),
    deleted=st.integers(0, 10),
)
@example(batches=[[50, 0]], timestamp=40, deleted=1)  # only a deleted record is late enough
def test_timestamp_lookup_matches_scan_of_all_records(
    batches: list[list[int]], timestamp: int, deleted: int
) -> None:
    log = PartitionLog()
    for times in batches:
        log.append(batch(*[b""] * len(times), timestamps=times), 0)
    start = log.delete_records_before(min(deleted, log.end_offset))
    flat = [time for times in batches for time in times]
    expected = next(
        (OffsetAndTimestamp(o, t, 0) for o, t in enumerate(flat) if o >= start and t >= timestamp),
        None,
    )
    assert log.fetch_offset_by_timestamp(timestamp) == expected
