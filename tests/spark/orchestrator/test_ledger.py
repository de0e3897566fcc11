"""The job ledger: its JSON, transactions, and the states that a crash leaves."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_async.errors import DecodeError
from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.job_ledger import (
    JobRecord,
    JobState,
    LedgerChange,
    LedgerState,
    LedgerTransaction,
    RangeAlreadyProcessedError,
)
from kafka_async.types import ProducerRecord, TopicPartition

A = TopicPartition("in", 0)


def job(job_id: str = "j", **fields: Any) -> JobRecord:
    return JobRecord(job_id=job_id, job="count", scope="count", **fields)


def commit(state: LedgerState, *changes: LedgerChange) -> list[ProducerRecord]:
    transaction = LedgerTransaction(state, "ledger")
    for change in changes:
        transaction.add(change)
    records = transaction.close()
    transaction.commit()
    return records


def reload(*transactions: list[ProducerRecord]) -> LedgerState:
    state = LedgerState()
    for records in transactions:
        for record in records:
            if record.topic == "ledger":
                state.load(record.key, record.value)
    return state


def same(left: LedgerState, right: LedgerState) -> bool:
    return (left.jobs, left.progress, left.paused, left.driver) == (
        right.jobs,
        right.progress,
        right.paused,
        right.driver,
    )


def processed(start: int, end: int, **fields: Any) -> LedgerChange:
    part = (OffsetRange("in", 0, start, end),)
    return LedgerChange(scope="count", processed=part, **fields)


def test_records_restore_the_state() -> None:
    state = LedgerState()
    ranges = (OffsetRange("in", 0, 0, 10),)
    details: dict[str, Any] = {"params": {"a": [1]}, "tag": "t", "pool": "p", "timeout": 2.5}
    written = [
        commit(state, LedgerChange(driver="d-1")),
        commit(state, LedgerChange(jobs=(job(ranges=ranges, reply_topic="r", **details),))),
        commit(state, processed(0, 4), LedgerChange(paused=True)),
        commit(
            state,
            processed(4, 10, jobs=(job(ranges=ranges, state=JobState.SUCCEEDED, value={"n": 1}),)),
        ),
    ]
    assert same(reload(*written), state)
    assert state.jobs["j"].value == {"n": 1}
    assert state.position("count", A) == 10


def test_a_crash_before_any_part_leaves_the_whole_range() -> None:
    state = LedgerState()
    ranges = (OffsetRange("in", 0, 0, 10),)
    written = commit(state, LedgerChange(jobs=(job(ranges=ranges),), control_offset=1))
    after = reload(written)
    assert [record.job_id for record in after.accepted()] == ["j"]
    assert after.remaining("count", ranges) == [ranges]


def test_a_crash_between_parts_leaves_the_other_parts() -> None:
    state = LedgerState()
    ranges = (OffsetRange("in", 0, 0, 10),)
    written = [
        commit(state, LedgerChange(jobs=(job(ranges=ranges),))),
        commit(state, processed(2, 5)),
    ]
    after = reload(*written)
    assert [record.state for record in after.accepted()] == [JobState.ACCEPTED]
    assert after.remaining("count", ranges) == [
        (OffsetRange("in", 0, 0, 2),),
        (OffsetRange("in", 0, 5, 10),),
    ]


def test_a_crash_after_the_last_part_leaves_nothing_to_do() -> None:
    state = LedgerState()
    ranges = (OffsetRange("in", 0, 0, 10),)
    ended = job(ranges=ranges, state=JobState.SUCCEEDED)
    after = reload(commit(state, processed(0, 10, jobs=(ended,))))
    assert after.accepted() == []
    assert after.remaining("count", ranges) == []


def test_marks_no_offset_twice_even_in_one_transaction() -> None:
    state = LedgerState()
    commit(state, processed(0, 10))
    transaction = LedgerTransaction(state, "ledger")
    with pytest.raises(RangeAlreadyProcessedError, match="in-0"):
        transaction.add(processed(9, 12, output=(ProducerRecord("out", b"twice"),)))
    transaction.add(processed(10, 12))
    with pytest.raises(RangeAlreadyProcessedError):
        transaction.add(processed(11, 13))
    assert all(record.topic == "ledger" for record in transaction.close())
    transaction.commit()
    assert state.position("count", A) == 12


def test_another_scope_processes_the_same_offsets() -> None:
    state = LedgerState()
    commit(state, processed(0, 10))
    part = (OffsetRange("in", 0, 0, 10),)
    commit(state, LedgerChange(scope="count@backfill", processed=part))
    assert state.remaining("count@backfill", part) == []


def test_commits_the_first_unprocessed_offset_to_the_group() -> None:
    state = LedgerState()
    transaction = LedgerTransaction(state, "ledger")
    transaction.add(LedgerChange(scope="count", starts={A: 5}))
    transaction.add(processed(8, 12))
    assert transaction.group_offsets() == {"count": {A: 5}}
    transaction.add(processed(5, 8))
    assert transaction.group_offsets() == {"count": {A: 12}}


def test_a_start_does_not_replace_progress() -> None:
    state = LedgerState()
    commit(state, processed(0, 10))
    commit(state, LedgerChange(scope="count", starts={A: 100}))
    assert state.position("count", A) == 10


def test_jobs_keep_their_order_when_their_state_changes() -> None:
    state = LedgerState()
    commit(state, LedgerChange(jobs=(job("a"), job("b"), job("c"))))
    commit(state, LedgerChange(jobs=(job("b", state=JobState.FAILED, error="E"),)))
    commit(state, LedgerChange(jobs=(job("d"),)))
    assert [record.job_id for record in state.accepted()] == ["a", "c", "d"]
    assert state.jobs["b"].number == 2


def test_accepted_does_not_replace_the_last_state() -> None:
    state = LedgerState()
    ended = job(state=JobState.SUCCEEDED, value=1)
    written = [
        commit(state, LedgerChange(jobs=(ended,))),
        commit(state, LedgerChange(jobs=(job(),))),
    ]
    assert same(reload(*written), state)
    assert state.jobs["j"].state is JobState.SUCCEEDED
    commit(
        state, LedgerChange(jobs=(job("k", state=JobState.FAILED),)), LedgerChange(jobs=(job("k"),))
    )
    assert state.accepted() == []


def test_deletes_the_oldest_ended_jobs_with_tombstones() -> None:
    state = LedgerState()
    ended = JobState.SUCCEEDED
    written = [commit(state, LedgerChange(jobs=(job("open"),)))]
    written += [commit(state, LedgerChange(jobs=(job(str(n), state=ended),))) for n in range(4)]
    transaction = LedgerTransaction(state, "ledger")
    transaction.add(LedgerChange(jobs=(job("new"),)))
    records = transaction.close(history=2)
    assert [record.key for record in records if record.value is None] == [
        b'["job", "0"]',
        b'["job", "1"]',
    ]
    transaction.commit()
    assert set(state.jobs) == {"open", "2", "3", "new"}
    assert same(reload(*written, records), state)


def test_combines_the_positions_in_the_control_topic() -> None:
    transaction = LedgerTransaction(LedgerState(), "ledger")
    for offset in (5, 3, None):
        transaction.add(LedgerChange(control_offset=offset))
    assert transaction.control_offset == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"x", b"1"), (None, b"{}"), (b'["job", "a"]', b"{}"), (b'["progress", "a"]', b"{}")],
)
def test_names_a_record_of_another_application(key: bytes | None, value: bytes) -> None:
    with pytest.raises(DecodeError, match="no orchestrator wrote"):
        LedgerState().load(key, value)
