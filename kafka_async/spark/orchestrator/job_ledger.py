"""The job ledger: its records, its state, and the content of its transactions. Pure.

Protocol
========

The ledger is a compacted topic with one partition. Only the active driver writes to it, with a
transactional producer under the id "orchestrator-NAME". A driver becomes active in three steps:

1. The consumer group "orchestrator-NAME" assigns the control topic's only partition to it.
2. It starts the producer. The new producer epoch fences the former driver, and the coordinator
   completes or aborts that driver's last transaction first.
3. It reads the ledger to its end and commits a transaction with its name.

Every transaction commits the position in the control topic with the driver's group generation. A
driver can therefore write only while the group has assigned the partition to it (KIP-447) and no
later driver has started the producer. Each check alone is enough to fail the write of a former
driver.

States of a job:

| state | event | next state |
|---|---|---|
| - | a control message is accepted | ACCEPTED |
| - | a job of `run` ends | SUCCEEDED, FAILED or CANCELLED |
| ACCEPTED | all its ranges are processed, or a job without ranges returns | SUCCEEDED |
| ACCEPTED | an error that retries and bisection do not resolve, or its time-out | FAILED |
| ACCEPTED | cancelled by tag | CANCELLED |
| FAILED, CANCELLED | `run` with the same ranges ends | SUCCEEDED, FAILED or CANCELLED |

Content of the transactions:

| transaction | job record | processed offsets | output events | reply | offsets of groups |
|---|---|---|---|---|---|
| a driver becomes active | - | - | - | - | control topic |
| control messages | ACCEPTED | - | - | accepted | control topic, after the messages |
| a part of a job | - | of the part | of the part | - | control topic, group of the job |
| the last part of a job | SUCCEEDED | of the part | of the part | result | the same |
| failing records, after all parts | SUCCEEDED | their offsets | dead letters | result | the same |
| a job without ranges | SUCCEEDED | - | of the job | result | control topic |
| failed or cancelled | FAILED, CANCELLED | - | - | result | control topic |

State that a crash leaves, and the next driver's continuation:

| crash | state | the next driver |
|---|---|---|
| before the message's transaction is committed | not consumed | reads the message again |
| after it, before or in the job's function | ACCEPTED | runs the job for the remaining ranges |
| after the function, before its transaction | the same; its events were not written | the same |
| in the transaction | decided by the coordinator at step 2 | as after or before the transaction |
| after the transaction of a part | processed offsets | runs the job for the remaining ranges |
| after the last transaction | SUCCEEDED | nothing; a repeated message gets the same reply |

A job starts while its message's transaction is in progress. Its own transactions usually come
later; if one comes first, the ACCEPTED record does not replace the job's final state.

The function may run more than once for a range, but its output events, dead letters, offsets and
replies are committed once. Other effects, such as writing a file, must be idempotent by job id.

Processed offsets are stored as sets of intervals per scope, topic and partition. The scope is the
job's name; each backfill has a separate scope. A transaction never marks an offset twice: if the
ranges of two running jobs of a scope overlap, the second runs again for the rest.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_async.errors import DecodeError, IllegalStateError
from kafka_async.spark.orchestrator.ranges import (
    OffsetSet,
    Ranges,
    partition_of,
    ranges_from_json,
    ranges_to_json,
    remaining,
)
from kafka_async.types import ProducerRecord, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HISTORY: Final = 1_000
"""Number of ended jobs that the ledger keeps; older jobs are deleted by tombstones."""


class JobState(enum.Enum):
    """State of a job in the ledger."""

    ACCEPTED = "accepted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if no driver will run the job again."""
        return self is not JobState.ACCEPTED


class RangeAlreadyProcessedError(IllegalStateError):
    """Another job of the same scope has processed a part of the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """Holds a job as the ledger stores it.

    Attributes:
        job_id: Id of the job, from a control message or derived from scope and ranges.
        job: Name of the function.
        scope: Name under which processed offsets are stored; the job's name except for backfills.
        state: The state.
        number: Position in the order of acceptance.
        ranges: The offset ranges to process; empty for a job without ranges.
        params: Parameters of a control message.
        tag: Tag for cancelling the job; None: only the id cancels it.
        pool: Spark's scheduler pool; None for the default pool.
        timeout: Maximum time in seconds; None for no limit.
        reply_topic: Topic for replies; None for no replies.
        value: The function's result, if JSON can represent it.
        error: The error of a failed job, as "ClassName: message".
        dead_letters: Number of records written to the dead-letter topic.
    """

    job_id: str
    job: str
    scope: str
    state: JobState = JobState.ACCEPTED
    number: int = 0
    ranges: Ranges = ()
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tag: str | None = None
    pool: str | None = None
    timeout: float | None = None
    reply_topic: str | None = None
    value: object = None
    error: str | None = None
    dead_letters: int = 0


class ProgressKey(NamedTuple):
    """A partition in a scope."""

    scope: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class Progress:
    """Processed offsets of a partition in a scope.

    Attributes:
        start: First offset that belongs to the scope.
        processed: The processed offsets.
    """

    start: int
    processed: OffsetSet = field(default_factory=OffsetSet)

    @property
    def position(self) -> int:
        """First unprocessed offset from `start` on."""
        return self.processed.contiguous_end(self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerChange:
    """Changes that one transaction commits atomically.

    Attributes:
        jobs: New job records; a number of 0 is replaced when the change joins a transaction.
        scope: Scope of `processed` and `starts`.
        processed: Ranges to mark as processed; an offset must not be marked before.
        starts: First offsets of a scope without progress.
        paused: Whether jobs may not start from now on; None for no change.
        driver: Name of the driver that has become active.
        control_offset: Position in the control topic after the handled messages.
        output: Output events, dead letters and replies.
    """

    jobs: tuple[JobRecord, ...] = ()
    scope: str = ""
    processed: Ranges = ()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    paused: bool | None = None
    driver: str | None = None
    control_offset: int | None = None
    output: tuple[ProducerRecord, ...] = ()


# -- state ----------------------------------------------------------------------------------------


class LedgerState:
    """Content of the ledger: the records read, plus this driver's committed transactions.

    Attributes:
        jobs: Jobs by id.
        progress: Progress by scope and partition.
        paused: True while no job may start.
        driver: Name of the last active driver.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.progress: dict[ProgressKey, Progress] = {}
        self.paused = False
        self.driver: str | None = None

    def load(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the ledger; raise DecodeError if it is malformed."""
        try:
            kind, *names = json.loads(key or b"")
            document = None if value is None else json.loads(value)
            if kind == "job":
                self._set_job(names[0], None if document is None else _job(names[0], document))
            elif kind == "progress":
                scope, topic, partition = names
                self._set_progress(
                    ProgressKey(scope, TopicPartition(topic, int(partition))), document
                )
            elif kind == "paused":
                self.paused = bool(document)
            elif kind == "driver":
                self.driver = document
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise DecodeError(
                f"the ledger has a record that no orchestrator wrote ({error!r}), with the key "
                f"{key!r:.200}: use a topic that nothing else writes to"
            ) from error

    def _set_job(self, job_id: str, record: JobRecord | None) -> None:
        self.jobs.pop(job_id, None)
        if record is not None:
            self.jobs[job_id] = record

    def _set_progress(self, key: ProgressKey, document: Any) -> None:
        if document is None:
            self.progress.pop(key, None)
        else:
            intervals = tuple((int(low), int(high)) for low, high in document["processed"])
            self.progress[key] = Progress(int(document["start"]), OffsetSet(intervals))

    def update(
        self,
        jobs: Mapping[str, JobRecord | None],
        progress: Mapping[ProgressKey, Progress],
        paused: bool | None,
        driver: str | None,
    ) -> None:
        """Apply a committed transaction."""
        for job_id, record in jobs.items():
            self._set_job(job_id, record)
        self.progress.update(progress)
        self.paused = self.paused if paused is None else paused
        self.driver = driver or self.driver

    def next_number(self) -> int:
        """Return the number of the next job."""
        return max((record.number for record in self.jobs.values()), default=0) + 1

    def accepted(self) -> list[JobRecord]:
        """Return the jobs that have not ended, in the order of acceptance."""
        jobs = [record for record in self.jobs.values() if not record.state.ended]
        return sorted(jobs, key=lambda record: record.number)

    def processed(self, scope: str) -> dict[TopicPartition, OffsetSet]:
        """Return the processed offsets of a scope by partition."""
        return {
            key.partition: progress.processed
            for key, progress in self.progress.items()
            if key.scope == scope
        }

    def remaining(self, scope: str, ranges: Ranges) -> list[Ranges]:
        """Return the parts of ranges that a scope has not processed."""
        return remaining(ranges, self.processed(scope))

    def position(self, scope: str, partition: TopicPartition) -> int | None:
        """Return the first unprocessed offset of a scope, or None without progress."""
        progress = self.progress.get(ProgressKey(scope, partition))
        return None if progress is None else progress.position


# -- transactions ---------------------------------------------------------------------------------


class LedgerTransaction:
    """Collects changes for one transaction; `commit` then applies them to the state.

    Args:
        state: The state on which the changes are based.
        topic: The ledger's topic.
    """

    def __init__(self, state: LedgerState, topic: str) -> None:
        self._state = state
        self._topic = topic
        self._jobs: dict[str, JobRecord | None] = {}
        self._progress: dict[ProgressKey, Progress] = {}
        self._paused: bool | None = None
        self._driver: str | None = None
        self._output: list[ProducerRecord] = []
        self._number = state.next_number()
        self.control_offset: int | None = None

    def add(self, change: LedgerChange) -> None:
        """Add a change; if this raises, the transaction is unchanged.

        Raises:
            RangeAlreadyProcessedError: The change marks an offset that is already processed.
        """
        progress = dict(self._updated(change))
        self._progress.update(progress)
        for record in change.jobs:
            if record.state.ended or self._known(record.job_id) is None:
                self._jobs[record.job_id] = self._numbered(record)
        self._output += change.output
        if change.paused is not None:
            self._paused = change.paused
        self._driver = change.driver or self._driver
        if change.control_offset is not None:
            self.control_offset = max(change.control_offset, self.control_offset or 0)

    def _updated(self, change: LedgerChange) -> Iterator[tuple[ProgressKey, Progress]]:
        for partition, start in change.starts.items():
            key = ProgressKey(change.scope, partition)
            if self._current(key) is None:
                yield key, Progress(start)
        for part in change.processed:
            key = ProgressKey(change.scope, partition_of(part))
            current = self._current(key) or Progress(part.start)
            if current.processed.overlaps(part.start, part.end):
                raise RangeAlreadyProcessedError(
                    f"{change.scope} has processed offsets from {part.start} to {part.end} already",
                    topic=part.topic,
                    partition=part.partition,
                )
            start = min(current.start, part.start)
            yield key, Progress(start, current.processed.add(part.start, part.end))

    def _current(self, key: ProgressKey) -> Progress | None:
        return self._progress.get(key) or self._state.progress.get(key)

    def _known(self, job_id: str) -> JobRecord | None:
        return self._jobs.get(job_id) or self._state.jobs.get(job_id)

    def _numbered(self, record: JobRecord) -> JobRecord:
        known = self._known(record.job_id)
        number = self._number if known is None else known.number
        self._number += known is None
        return replace(record, number=number)

    def close(self, history: int = HISTORY) -> list[ProducerRecord]:
        """Return the transaction's ledger records and output.

        Ended jobs beyond the last `history` are deleted with this transaction.
        """
        jobs = {**self._state.jobs, **self._jobs}
        ended = sorted(
            (record.number, job_id)
            for job_id, record in jobs.items()
            if record is not None and record.state.ended and job_id not in self._jobs
        )
        for _, job_id in ended[: max(0, len(ended) - history)]:
            self._jobs[job_id] = None
        records = [
            self._record(
                ["progress", key.scope, key.partition.topic, key.partition.partition],
                {"start": progress.start, "processed": progress.processed.intervals},
            )
            for key, progress in self._progress.items()
        ]
        records += [
            self._record(["job", job_id], None if job is None else job_to_json(job))
            for job_id, job in self._jobs.items()
        ]
        if self._paused is not None:
            records.append(self._record(["paused"], self._paused))
        if self._driver is not None:
            records.append(self._record(["driver"], self._driver))
        return records + self._output

    def _record(self, key: list[object], document: object) -> ProducerRecord:
        value = None if document is None else json.dumps(document).encode()
        return ProducerRecord(self._topic, value, json.dumps(key).encode(), partition=0)

    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        """Return the offsets to commit by scope: the first unprocessed offset of each partition."""
        offsets: dict[str, dict[TopicPartition, int]] = {}
        for key, progress in self._progress.items():
            offsets.setdefault(key.scope, {})[key.partition] = progress.position
        return offsets

    def commit(self) -> None:
        """Apply the changes to the state, once the transaction is committed."""
        self._state.update(self._jobs, self._progress, self._paused, self._driver)


# -- JSON -----------------------------------------------------------------------------------------


def job_to_json(record: JobRecord) -> dict[str, Any]:
    """Return a job record for a JSON document, without its id."""
    return {
        "job": record.job,
        "scope": record.scope,
        "state": record.state.value,
        "number": record.number,
        "ranges": ranges_to_json(record.ranges),
        "params": dict(record.params),
        "tag": record.tag,
        "pool": record.pool,
        "timeout": record.timeout,
        "reply_topic": record.reply_topic,
        "value": record.value,
        "error": record.error,
        "dead_letters": record.dead_letters,
    }


def _job(job_id: str, document: dict[str, Any]) -> JobRecord:
    state, ranges = JobState(document["state"]), ranges_from_json(document["ranges"])
    fields = {name: document[name] for name in document if name not in ("state", "ranges")}
    return JobRecord(job_id=job_id, state=state, ranges=ranges, **fields)
