"""The records of one partition that a share group has in flight (KIP-932, KIP-1206). Pure.

A share partition covers the offsets from its start offset (SPSO) to its end offset (SPEO). Records
below the start offset are done, records above the end offset have not been delivered yet, and
records in between are in flight, in batches as they were acquired. A batch is split into single
records once their states differ. Each record has a state, a delivery count and, while it is
acquired, a lock.

state           meaning
-------------   ------------------------------------------------------------------
AVAILABLE       can be acquired, again
ACQUIRED        locked by a member, until it acknowledges or the lock expires
ACKNOWLEDGED    processed
ARCHIVED        rejected, delivered too often, aborted, a gap or deleted
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from kafka_async.errors import InvalidRecordStateError, InvalidRequestError

NO_OFFSET: Final = -1
MIN_THROTTLED_DELIVERIES: Final = 2
"""Number of deliveries from which on fewer records are delivered together, to isolate a poison
record.
"""


class RecordState(enum.IntEnum):
    """States of a record, with their numbers in Kafka's state topic."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class RecordEvent(enum.Enum):
    """Events that change the state of a record."""

    ACQUIRE = enum.auto()
    ACCEPT = enum.auto()
    RELEASE = enum.auto()
    REJECT = enum.auto()
    RENEW = enum.auto()
    EXPIRE = enum.auto()
    ARCHIVE = enum.auto()


TRANSITIONS: Final[Mapping[tuple[RecordState, RecordEvent], RecordState]] = {
    (RecordState.AVAILABLE, RecordEvent.ACQUIRE): RecordState.ACQUIRED,
    (RecordState.AVAILABLE, RecordEvent.ARCHIVE): RecordState.ARCHIVED,
    (RecordState.ACQUIRED, RecordEvent.ACCEPT): RecordState.ACKNOWLEDGED,
    (RecordState.ACQUIRED, RecordEvent.RELEASE): RecordState.AVAILABLE,
    (RecordState.ACQUIRED, RecordEvent.REJECT): RecordState.ARCHIVED,
    (RecordState.ACQUIRED, RecordEvent.RENEW): RecordState.ACQUIRED,
    (RecordState.ACQUIRED, RecordEvent.EXPIRE): RecordState.AVAILABLE,
    (RecordState.ACQUIRED, RecordEvent.ARCHIVE): RecordState.ARCHIVED,
}
"""The next state by state and event; other events are errors.

A record that would become AVAILABLE after its last delivery, or below the start offset, becomes
ARCHIVED.
"""

TERMINAL_STATES: Final = {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}


class AcknowledgeType(enum.IntEnum):
    """Types of acknowledgements, with their numbers in requests."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


ACKNOWLEDGE_EVENTS: Final[Mapping[AcknowledgeType, RecordEvent]] = {
    AcknowledgeType.GAP: RecordEvent.REJECT,
    AcknowledgeType.ACCEPT: RecordEvent.ACCEPT,
    AcknowledgeType.RELEASE: RecordEvent.RELEASE,
    AcknowledgeType.REJECT: RecordEvent.REJECT,
    AcknowledgeType.RENEW: RecordEvent.RENEW,
}


class AcquireMode(enum.IntEnum):
    """Modes of acquiring records, with their numbers in requests (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class SharePartitionConfig:
    """Holds the configurations of a group for its share partitions; times in seconds."""

    lock_duration: float = 30.0
    max_delivery_count: int = 5
    max_record_locks: int = 2_000
    renew_enabled: bool = True


class StateBatch(NamedTuple):
    """Describes records with the same state, as the share coordinator stores them."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class AcquiredRecords(NamedTuple):
    """Describes acquired records with the same delivery count."""

    first: int
    last: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """Acknowledges the records from `first` to `last`, with one type for all or one per record."""

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        """Return the type of acknowledgement of one record."""
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


class LogBatch(NamedTuple):
    """Describes a record batch read from the log; `aborted` if its transaction was aborted."""

    first: int
    last: int
    size: int
    aborted: bool = False


class Acquire(NamedTuple):
    """Describes a request to acquire records."""

    member_id: str
    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED

    @property
    def is_limited(self) -> bool:
        """True if no more than `max_records` records may be acquired."""
        return self.mode is AcquireMode.RECORD_LIMIT


@dataclass(slots=True)
class InFlightRecords:
    """Holds the state of one record, or of all records of a batch."""

    state: RecordState
    delivery_count: int = 0
    member_id: str = ""
    lock_deadline: float = math.inf

    @property
    def is_terminal(self) -> bool:
        """True if the records are done."""
        return self.state in TERMINAL_STATES

    def apply(self, event: RecordEvent, *, keeps: bool = True) -> bool:
        """Change the state; return False if the event is an error.

        With `keeps=False`, records that would become available are archived.
        """
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            return False
        if following is RecordState.AVAILABLE and not keeps:
            following = RecordState.ARCHIVED
        self.state = following
        if following is not RecordState.ACQUIRED:
            self.member_id, self.lock_deadline = "", math.inf
        return True


Part: TypeAlias = tuple[int, int, InFlightRecords]
"""First offset, last offset and the records' shared state."""


@dataclass(slots=True)
class InFlightBatch:
    """Holds the records from `first` to `last`; `single` are their states once they differ."""

    first: int
    last: int
    whole: InFlightRecords | None
    single: dict[int, InFlightRecords] = field(default_factory=dict[int, InFlightRecords])

    def split(self) -> None:
        """Give each record its own state."""
        if self.whole is not None:
            self.single = {it: replace(self.whole) for it in range(self.first, self.last + 1)}
            self.whole = None

    def parts(self) -> Iterator[Part]:
        """Return the records that share a state, in the order of their offsets."""
        if self.whole is not None:
            yield self.first, self.last, self.whole
        else:
            for offset, records in self.single.items():
                yield offset, offset, records

    def at(self, offset: int) -> InFlightRecords | None:
        """Return the state of one record, or None if it is outside the batch."""
        return self.whole or self.single.get(offset)


class _GapWindow(NamedTuple):
    """Locates offsets below `end` that had no state when the stored state was loaded."""

    end: int
    start: int


class SharePartition:
    """Implements the state of one share partition. Times are seconds.

    Args:
        start_offset: The start offset.
        batches: Stored states of records above the start offset.
        state_epoch: Epoch of the stored state.
        config: Returns the group's configurations, which may change.
        write: Stores the start offset, the number of done records above it, and changed states. If
            it raises the share coordinator's error, all changes are undone.

    Attributes:
        end_offset: The last offset in flight, or the start offset.
    """

    def __init__(
        self,
        start_offset: int,
        batches: Iterable[StateBatch],
        state_epoch: int,
        config: Callable[[], SharePartitionConfig],
        write: Callable[[int, int, Sequence[StateBatch]], None],
    ) -> None:
        self.start_offset = self.end_offset = start_offset
        self.state_epoch = state_epoch
        self._config = config
        self._write = write
        self._batches: dict[int, InFlightBatch] = {}
        self._gap: _GapWindow | None = None
        # The stored state may have gaps, offsets without a state. The first gap is remembered,
        # because a fetch must begin there.
        gap_start, following = NO_OFFSET, start_offset
        for first, last, state, count in batches:
            if gap_start == NO_OFFSET and first > following:
                gap_start = following
            following = last + 1
            self._batches[first] = InFlightBatch(first, last, InFlightRecords(state, count))
        if self._batches:
            self.end_offset = following - 1
            if gap_start != NO_OFFSET:
                self._gap = _GapWindow(self.end_offset, gap_start)
            self._advance_start()

    # -- offsets ----------------------------------------------------------------------------------

    @property
    def done_count(self) -> int:
        """Number of done records from the start offset on."""
        return sum(
            max(last - max(first, self.start_offset) + 1, 0)
            for batch in self._batches.values()
            for first, last, records in batch.parts()
            if records.is_terminal
        )

    @property
    def in_flight_count(self) -> int:
        """Number of records from the start offset to the end offset."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    @property
    def can_acquire(self) -> bool:
        """True if records can be acquired again, or more records can be in flight."""
        if self.next_fetch_offset != self.end_offset + 1:
            return True
        return self.in_flight_count < self._config().max_record_locks

    @property
    def next_fetch_offset(self) -> int:
        """The offset for the next fetch: the first available record, or the first new one."""
        if not self._batches or self.start_offset > self._last_batch.last:
            return self.end_offset
        gap_start = self._active_gap_start
        for batch in self._batches.values():
            if gap_start is not None:
                if batch.first > gap_start:
                    return gap_start
                gap_start = max(batch.last + 1, gap_start)
            for first, _, records in batch.parts():
                if records.state is RecordState.AVAILABLE:
                    return first
        return self.end_offset + 1

    def on_log_start(self, offset: int) -> None:
        """Move the start offset to the log's start after records were deleted."""
        if offset <= self.start_offset:
            return
        if not self._batches:
            self.start_offset = self.end_offset = offset
            return
        self._archive(self.start_offset, offset, RecordState.AVAILABLE)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)

    # -- acquire ----------------------------------------------------------------------------------

    def acquire(
        self, request: Acquire, fetch_offset: int, log: Sequence[LogBatch], now: float
    ) -> list[AcquiredRecords]:
        """Acquire records read from `fetch_offset` on; `log` contains their batches."""
        if request.max_records <= 0 or not log or log[-1].last < self.start_offset:
            return []
        limit, last = self._limit(request, fetch_offset, log[-1].last)
        if limit <= 0:
            return []
        first = log[0].first
        self._archive_missing(fetch_offset, first)
        base = first
        floor = self._floor(first)
        if floor is None:
            base = max(base, self.start_offset)
        elif floor.last >= first:
            base = floor.first
        in_range = [it for it in self._batches.values() if min(first, base) <= it.first <= last]
        if in_range:
            rows = self._acquire_again(request, in_range, (first, base, last), limit, log, now)
        else:
            rows = self._acquire_new(request, base, last, limit, log, now)
        return self._drop_aborted(rows, log)

    def _limit(self, request: Acquire, fetch_offset: int, last: int) -> tuple[int, int]:
        """Return the maximum number of records to acquire, and the last offset."""
        limit = min(request.max_records, self._config().max_record_locks - self.in_flight_count)
        if limit > 0 or fetch_offset > self.end_offset:
            return limit, last
        # All locks are in use, but records in flight may be acquired again.
        remaining = self.end_offset - fetch_offset + 1
        return min(request.max_records, remaining), min(last, self.end_offset)

    def _acquire_again(
        self,
        request: Acquire,
        batches: Sequence[InFlightBatch],
        offsets: tuple[int, int, int],
        limit: int,
        log: Sequence[LogBatch],
        now: float,
    ) -> list[AcquiredRecords]:
        """Acquire available records of batches in flight, gaps between them, and new records."""
        first, gap_start, last = offsets
        rows: list[AcquiredRecords] = []
        for batch in batches:
            # Three sources, in offset order: gaps between batches, available records of batches,
            # and new records after the last batch. Stop at the limit, or after a throttled batch:
            # its records are delivered apart from other batches.
            if self._active_gap_start is not None:
                if gap_start < batch.first and _count(rows) < limit:
                    left = limit - _count(rows)
                    rows += self._acquire_new(request, gap_start, batch.first - 1, left, log, now)
                gap_start = batch.last + 1
            left = limit - _count(rows)
            if left <= 0:
                break
            throttles = self._throttles(batch, first, last)
            # A throttled batch must come first in a response.
            found: list[AcquiredRecords] = []
            if not throttles or not rows:
                found = self._acquire_batch(
                    request, batch, (first, last), left, now, splits=throttles
                )
            rows += found
            if throttles and rows:
                limit = 0
                break
        after = batches[-1].last
        if _count(rows) < limit and after < last:
            rows += self._acquire_new(request, after + 1, last, limit - _count(rows), log, now)
        if rows:
            self._move_gap(rows[-1].last + 1)
        return rows

    def _acquire_batch(
        self,
        request: Acquire,
        batch: InFlightBatch,
        offsets: tuple[int, int],
        limit: int,
        now: float,
        *,
        splits: bool,
    ) -> list[AcquiredRecords]:
        """Acquire the available records of one batch, together if they share a state."""
        first, last = offsets
        if batch.whole is not None:
            complete = batch.first >= first and batch.last <= last
            fits = not request.is_limited or batch.last - batch.first < limit
            if batch.whole.state is not RecordState.AVAILABLE:
                return []
            if complete and fits and not splits:
                self._lock(batch.whole, request.member_id, now)
                return [AcquiredRecords(batch.first, batch.last, batch.whole.delivery_count)]
            batch.split()
        return self._acquire_single(request, batch, first, last, limit, now)

    def _acquire_single(
        self,
        request: Acquire,
        batch: InFlightBatch,
        first: int,
        last: int,
        limit: int,
        now: float,
    ) -> list[AcquiredRecords]:
        """Acquire the available records of a split batch; fewer after failed deliveries."""
        maximum = self._config().max_delivery_count
        throttled_from = _throttled_from(maximum)
        isolates = maximum > MIN_THROTTLED_DELIVERIES
        rows: list[AcquiredRecords] = []
        throttled_limit: int | None = None
        for offset, records in batch.single.items():
            if offset < first or records.state is not RecordState.AVAILABLE:
                continue
            deliveries = records.delivery_count
            # A record is delivered alone in its last delivery.
            if offset > last or (isolates and deliveries == maximum - 1 and rows):
                break
            if deliveries >= throttled_from and throttled_limit is None:
                # Halve the number with each further delivery, from half of the batch down to one
                # record.
                throttled_limit = max(1, len(batch.single) >> (deliveries - throttled_from + 1))
            self._lock(records, request.member_id, now)
            rows.append(AcquiredRecords(offset, offset, records.delivery_count))
            if (
                (isolates and records.delivery_count == maximum)
                or (request.is_limited and len(rows) == limit)
                or len(rows) == throttled_limit
            ):
                break
        return _merged(rows)

    def _acquire_new(
        self,
        request: Acquire,
        first: int,
        last: int,
        limit: int,
        log: Sequence[LogBatch],
        now: float,
    ) -> list[AcquiredRecords]:
        """Acquire new records, up to the end of the log batch at the limit."""
        if not self._batches and self.end_offset > first:
            first = self.end_offset
        if limit < last - first + 1:
            end = _batch_end(log, first + limit - 1)
            last = end if self._active_gap_start is None else min(end, last)
        rows = self._add_batches(request, first, last, limit, log, now)
        if next(iter(self._batches)) == first:
            self.start_offset = first
        self.end_offset = max(self.end_offset, last)
        self._move_gap((rows[0].last if request.is_limited else last) + 1)
        return rows

    def _add_batches(
        self,
        request: Acquire,
        first: int,
        last: int,
        limit: int,
        log: Sequence[LogBatch],
        now: float,
    ) -> list[AcquiredRecords]:
        deadline = now + self._config().lock_duration
        locked = InFlightRecords(RecordState.ACQUIRED, 1, request.member_id, deadline)
        if request.is_limited and last - first + 1 > limit:
            batch = InFlightBatch(first, last, locked)
            batch.split()
            for offset in range(first + limit, last + 1):
                batch.single[offset] = InFlightRecords(RecordState.AVAILABLE)
            self._insert(batch)
            return [AcquiredRecords(first, first + limit - 1, 1)]
        starts = [first]
        if not request.is_limited and last - first + 1 > request.batch_size:
            for one in log:
                if one.first > last:
                    break
                if one.first - starts[-1] >= request.batch_size:
                    starts.append(one.first)
        rows = [
            AcquiredRecords(start, end, 1)
            for start, end in zip(starts, [*(it - 1 for it in starts[1:]), last], strict=True)
        ]
        for row in rows:
            self._insert(InFlightBatch(row.first, row.last, replace(locked)))
        return rows

    def _lock(self, records: InFlightRecords, member_id: str, now: float) -> None:
        """Deliver available records to a member."""
        records.apply(RecordEvent.ACQUIRE)
        records.delivery_count += 1
        records.member_id = member_id
        records.lock_deadline = now + self._config().lock_duration

    def _throttles(self, batch: InFlightBatch, first: int, last: int) -> bool:
        """Return True if failed deliveries require delivering fewer of a batch's records."""
        counts = [
            records.delivery_count
            for start, end, records in batch.parts()
            if records.state is RecordState.AVAILABLE
            and (batch.whole is not None or first <= start <= end <= last)
        ]
        return max(counts, default=0) >= _throttled_from(self._config().max_delivery_count)

    def _archive_missing(self, fetch_offset: int, first: int) -> None:
        """Archive available records that the log no longer has."""
        if fetch_offset < first:
            self._archive(fetch_offset, first, RecordState.AVAILABLE)

    def _drop_aborted(
        self, rows: Sequence[AcquiredRecords], log: Sequence[LogBatch]
    ) -> list[AcquiredRecords]:
        """Archive acquired records of aborted transactions, and return the others."""
        kept = list(rows)
        for aborted in log:
            if aborted.aborted:
                self._archive(aborted.first, aborted.last + 1, RecordState.ACQUIRED)
                kept = [
                    AcquiredRecords(first, last, row.delivery_count)
                    for row in kept
                    for first, last in (
                        (row.first, min(row.last, aborted.first - 1)),
                        (max(row.first, aborted.last + 1), row.last),
                    )
                    if first <= last
                ]
        return kept

    # -- acknowledge ------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now: float
    ) -> None:
        """Acknowledge records that a member has acquired, all or none.

        Raises:
            InvalidRecordStateError: The member has not acquired one of the records.
            InvalidRequestError: A batch is beyond the records in flight.
        """
        parts: dict[int, tuple[Part, RecordEvent]] = {}
        for batch in batches:
            if batch.last < self.start_offset:
                continue
            for part in self._acknowledged_parts(member_id, batch):
                event = ACKNOWLEDGE_EVENTS[
                    AcknowledgeType(batch.type_of(max(part[0], batch.first)))
                ]
                # Two acknowledgements of one record: refuse the whole request.
                if id(part[2]) in parts:
                    raise InvalidRecordStateError(
                        "The record state is invalid. The acknowledgement of delivery could not be "
                        "completed."
                    )
                if event is not RecordEvent.RENEW:
                    parts[id(part[2])] = part, event
                elif not self._config().renew_enabled:
                    raise InvalidRecordStateError(
                        "Renewing acquisition locks is not enabled for the group."
                    )
                else:
                    part[2].lock_deadline = now + self._config().lock_duration
        self._apply(parts.values())

    def _acknowledged_parts(self, member_id: str, batch: AcknowledgementBatch) -> Iterator[Part]:
        for one in self._batches_of(batch):
            if one.last < self.start_offset:
                continue
            if one.whole is not None:
                self._check_owner(one.whole, member_id)
                # Keep one state for the batch only if one type covers all of it.
                complete = batch.first <= one.first and one.last <= batch.last
                if not complete or len(batch.types) > 1 or one.first < self.start_offset:
                    one.split()
            for part in one.parts():
                first, last, records = part
                if last < batch.first or last < self.start_offset:
                    continue
                if first > batch.last:
                    break
                self._check_owner(records, member_id)
                yield part

    def _check_owner(self, records: InFlightRecords, member_id: str) -> None:
        if records.state is not RecordState.ACQUIRED:
            raise InvalidRecordStateError(
                "The batch cannot be acknowledged. The batch is not in the acquired state."
            )
        if records.member_id != member_id:
            raise InvalidRecordStateError("Member is not the owner of batch record")

    def _batches_of(self, batch: AcknowledgementBatch) -> list[InFlightBatch]:
        """Return the batches in flight that an acknowledgement covers."""
        floor = self._floor(batch.first)
        if floor is None and batch.first < self.start_offset <= batch.last:
            floor = self._floor(self.start_offset)
        if floor is None:
            raise InvalidRecordStateError(
                "Batch record not found. The request batch offsets are not found in the cache."
            )
        found = [it for it in self._batches.values() if floor.first <= it.first <= batch.last]
        if found[-1].last < batch.first or batch.last > found[-1].last:
            raise InvalidRequestError(
                "Batch record not found. The request is past acquired records."
            )
        return found

    def release(self, member_id: str) -> bool:
        """Release all records that a member has acquired; return True if any were released."""
        return self._end_locks(RecordEvent.RELEASE, lambda it: it.member_id == member_id)

    # -- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float:
        """The time at which the next lock expires; infinity without locks."""
        return min(
            (
                records.lock_deadline
                for batch in self._batches.values()
                for _, _, records in batch.parts()
            ),
            default=math.inf,
        )

    def expire(self, now: float) -> bool:
        """Release the records whose locks have expired; return True if any were released."""
        return self._end_locks(RecordEvent.EXPIRE, lambda it: it.lock_deadline <= now)

    def _end_locks(self, event: RecordEvent, selects: Callable[[InFlightRecords], bool]) -> bool:
        parts: list[tuple[Part, RecordEvent]] = []
        for batch in self._batches.values():
            if batch.whole is not None and batch.first < self.start_offset <= batch.last:
                batch.split()
            parts += [
                (part, event)
                for part in batch.parts()
                if part[2].state is RecordState.ACQUIRED and selects(part[2])
            ]
        self._apply(parts)
        return bool(parts)

    # -- states -----------------------------------------------------------------------------------

    def _apply(self, changes: Iterable[tuple[Part, RecordEvent]]) -> None:
        """Apply events, store the states and move the start offset; undo all if storing fails."""
        maximum = self._config().max_delivery_count
        before: list[tuple[InFlightRecords, InFlightRecords]] = []
        written: list[StateBatch] = []
        for (first, last, records), event in changes:
            before.append((records, replace(records)))
            keeps = last >= self.start_offset and records.delivery_count < maximum
            records.apply(event, keeps=keeps)
            written.append(StateBatch(first, last, records.state, records.delivery_count))
        if not written:
            return
        try:
            self._write(self.start_offset, self.done_count, written)
        except BaseException:
            for records, old in before:
                records.state, records.member_id = old.state, old.member_id
                records.lock_deadline = old.lock_deadline
            raise
        self._advance_start()

    def _archive(self, first: int, end: int, state: RecordState) -> None:
        """Archive the records in a state from `first` to below `end`."""
        for batch in self._batches.values():
            if batch.first >= end:
                break
            if batch.last < first:
                continue
            # A batch partly in the range needs single states, but only if its state matches.
            if batch.whole is not None and not (batch.first >= first and batch.last < end):
                if batch.whole.state is not state:
                    continue
                batch.split()
            for start, last, records in batch.parts():
                if records.state is state and first <= start and last < end:
                    records.apply(RecordEvent.ARCHIVE)

    def _advance_start(self) -> None:
        """Move the start offset past the done records, and drop them."""
        floor = self._floor(self.start_offset)
        at_start = None if floor is None else floor.at(self.start_offset)
        if at_start is None or not at_start.is_terminal:
            return
        done = self._last_done()
        if done == self._last_batch.last:
            self.start_offset = self.end_offset = done + 1
            self._batches.clear()
            return
        following = next(it for it in self._batches.values() if it.last > done)
        start = following.first if following.first > done else done + 1
        self.start_offset = max(self.start_offset, start)
        gap_start = self._active_gap_start
        # Records in a gap are not done: do not move the start past them.
        if gap_start is not None and following.first > done:
            self.start_offset = min(self.start_offset, gap_start)
        self._batches = {key: it for key, it in self._batches.items() if it.last > done}

    def _last_done(self) -> int:
        """Return the last offset up to which all records in flight are done."""
        done, gap_start = NO_OFFSET, self._active_gap_start
        for batch in self._batches.values():
            if gap_start is not None and batch.last >= gap_start:
                break
            for _, last, records in batch.parts():
                if not records.is_terminal:
                    return done
                done = last
        return done

    # -- batches ----------------------------------------------------------------------------------

    @property
    def _last_batch(self) -> InFlightBatch:
        return self._batches[next(reversed(self._batches))]

    def _floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at an offset or below."""
        keys = list(self._batches)
        index = bisect_right(keys, offset)
        return self._batches[keys[index - 1]] if index else None

    def _insert(self, batch: InFlightBatch) -> None:
        appends = not self._batches or batch.first > next(reversed(self._batches))
        self._batches[batch.first] = batch
        if not appends:
            self._batches = dict(sorted(self._batches.items()))

    @property
    def _active_gap_start(self) -> int | None:
        if self._gap is None or self._gap.end != self.end_offset:
            return None
        return self._gap.start

    def _move_gap(self, offset: int) -> None:
        """Mark the offsets below this one as acquired."""
        if self._gap is not None:
            active = self._gap.end == self.end_offset and offset <= self._gap.end
            self._gap = self._gap._replace(start=offset) if active else None


def _throttled_from(max_delivery_count: int) -> int:
    return max(MIN_THROTTLED_DELIVERIES, math.ceil(max_delivery_count / 2))


def _count(rows: Iterable[AcquiredRecords]) -> int:
    return sum(row.last - row.first + 1 for row in rows)


def _batch_end(log: Sequence[LogBatch], offset: int) -> int:
    """Return the last offset of the log batch that contains an offset, or the offset."""
    return next((it.last for it in log if it.first <= offset <= it.last), offset)


def _merged(rows: Iterable[AcquiredRecords]) -> list[AcquiredRecords]:
    """Join consecutive records with the same delivery count."""
    merged: list[AcquiredRecords] = []
    for row in rows:
        if (
            merged
            and merged[-1].last + 1 == row.first
            and merged[-1].delivery_count == row.delivery_count
        ):
            merged[-1] = merged[-1]._replace(last=row.last)
        else:
            merged.append(row)
    return merged
