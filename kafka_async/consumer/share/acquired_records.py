"""The records that a share consumer has acquired: a state table. Pure.

    ACQUIRED ── returned ──▶ DELIVERED ── acknowledged ──▶ ACKNOWLEDGED ── sent ──▶ IN_FLIGHT
        ▲                                                                              │
        └───────────────────────────────── renewed ◀───────────────────────────────────┤
                                                                 completed: removed ◀──┘

A broker locks an acquired record for its member until the record is acknowledged, or until the
acquisition lock's timeout; after that it delivers the record again. A renewal prolongs the lock
(KIP-1222): the next poll returns the record again, to be acknowledged for good.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_async.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from uuid import UUID

    from kafka_async.consumer.share.share_record import ShareRecord
    from kafka_async.types import TopicPartition


class AcknowledgeType(enum.IntEnum):
    """Types of acknowledgement, with their numbers in requests."""

    GAP = 0
    """There is no record at the offset, for example because it has a transaction marker."""
    ACCEPT = 1
    """The record was processed."""
    RELEASE = 2
    """The record was not processed: the broker delivers it again."""
    REJECT = 3
    """The record cannot be processed: the broker does not deliver it again."""
    RENEW = 4
    """The record is being processed: the broker prolongs the acquisition lock."""


class RecordState(enum.Enum):
    """States of an acquired record."""

    ACQUIRED = "acquired"
    """Locked for this member, and not returned by a poll yet."""
    DELIVERED = "delivered"
    """Returned by a poll, and not acknowledged."""
    ACKNOWLEDGED = "acknowledged"
    """Acknowledged by the application; the acknowledgement waits for the next request."""
    IN_FLIGHT = "in flight"
    """The acknowledgement was sent, and has no response yet."""
    DONE = "done"
    """The lock was released or has expired."""


class RecordEvent(enum.Enum):
    """Events that end a state."""

    RETURNED = "returned"
    ACKNOWLEDGED = "acknowledged"
    SENT = "sent"
    RENEWED = "renewed"
    COMPLETED = "completed"
    EXPIRED = "expired"


S, E = RecordState, RecordEvent

TRANSITIONS: Final[Mapping[tuple[RecordState, RecordEvent], RecordState]] = {
    (S.ACQUIRED, E.RETURNED): S.DELIVERED,
    (S.ACQUIRED, E.ACKNOWLEDGED): S.ACKNOWLEDGED,  # gaps, and releases without delivery
    (S.ACQUIRED, E.EXPIRED): S.DONE,
    (S.DELIVERED, E.ACKNOWLEDGED): S.ACKNOWLEDGED,
    (S.ACKNOWLEDGED, E.ACKNOWLEDGED): S.ACKNOWLEDGED,  # replaced before it was sent
    (S.ACKNOWLEDGED, E.SENT): S.IN_FLIGHT,
    (S.IN_FLIGHT, E.RENEWED): S.ACQUIRED,
    (S.IN_FLIGHT, E.COMPLETED): S.DONE,
}


class AcquiredRecord:
    """One acquired offset of a partition; `record` is None if it has no record to return.

    Attributes:
        node_id: Broker that has acquired the record for this member.
        topic_id: Id of the topic: its name may belong to another topic when it is acknowledged.
        locked_until: Event loop time at which the acquisition lock ends.
        type: Last acknowledgement.
    """

    __slots__ = (
        "locked_until",
        "node_id",
        "offset",
        "partition",
        "record",
        "state",
        "topic_id",
        "type",
    )

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        node_id: int,
        locked_until: float,
        topic_id: UUID,
        record: ShareRecord[Any, Any] | None = None,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.offset = offset
        self.node_id = node_id
        self.locked_until = locked_until
        self.record = record
        self.state = S.ACQUIRED
        self.type = AcknowledgeType.GAP


class OffsetRange(NamedTuple):
    """Consecutive offsets with their acknowledgements; a single type applies to all of them."""

    first: int
    last: int
    types: list[int]


class AcquiredRecords:
    """Holds all acquired records of a share consumer by their state."""

    def __init__(self) -> None:
        # Three indexes of the same records; `_pending` has those of ACKNOWLEDGED by broker.
        self._by_offset: dict[tuple[TopicPartition, int], AcquiredRecord] = {}
        self._by_state: Mapping[RecordState, OrderedDict[AcquiredRecord, None]] = {
            state: OrderedDict() for state in S
        }
        self._pending: defaultdict[int, dict[AcquiredRecord, None]] = defaultdict(dict)

    def __getitem__(self, state: RecordState) -> Collection[AcquiredRecord]:
        """Return the records in a state, in the order in which they reached it."""
        return self._by_state[state]

    def add(self, records: Iterable[AcquiredRecord]) -> list[AcquiredRecord]:
        """Add newly acquired records; one that is delivered again replaces its earlier delivery.

        Returns:
            The replaced records whose acknowledgement was not sent. It never will be.
        """
        unsent: list[AcquiredRecord] = []
        for each in records:
            former = self._by_offset.get((each.partition, each.offset))
            if former is not None:
                # Sending it would acknowledge the new delivery.
                if former.state is S.ACKNOWLEDGED:
                    unsent.append(former)
                self._leave_state(former)
                former.state = S.DONE
            self._by_offset[each.partition, each.offset] = each
            self._by_state[S.ACQUIRED][each] = None
        return unsent

    def take(self, limit: int, now: float) -> list[AcquiredRecord]:
        """Return the next records and mark them as returned; drop records whose lock has ended."""
        taken: list[AcquiredRecord] = []
        acquired = self._by_state[S.ACQUIRED]
        while acquired and len(taken) < limit:
            each = next(iter(acquired))
            # The broker has delivered it again, to any member.
            if each.locked_until <= now:
                self._move(each, E.EXPIRED)
            else:
                self._move(each, E.RETURNED)
                taken.append(each)
        return taken

    def acknowledge(self, partition: TopicPartition, offset: int, type: AcknowledgeType) -> None:
        """Acknowledge a returned record; raise IllegalStateError for any other."""
        found = self._by_offset.get((partition, offset))
        if found is None or found.state not in (S.DELIVERED, S.ACKNOWLEDGED) or not found.record:
            raise IllegalStateError(
                f"{partition} offset {offset} is not a record that the last poll returned, or its "
                "acknowledgement was sent already"
            )
        self._acknowledge(found, type)

    def acknowledge_all(self, state: RecordState, type: AcknowledgeType) -> None:
        """Acknowledge all records in a state."""
        for each in list(self._by_state[state]):
            self._acknowledge(each, type)

    def acknowledge_row(self, record: AcquiredRecord, type: AcknowledgeType) -> None:
        """Acknowledge a record that is not to be returned."""
        self._acknowledge(record, type)

    def release_unreturned(self, *, renewed: bool) -> None:
        """Release the acquired records; with `renewed`, even records that were returned before."""
        for each in list(self._by_state[S.ACQUIRED]):
            if renewed or each.type is not AcknowledgeType.RENEW:
                self._acknowledge(each, AcknowledgeType.RELEASE)

    @property
    def pending_nodes(self) -> list[int]:
        """Brokers to which acknowledgements have to be sent."""
        return [node_id for node_id, rows in self._pending.items() if rows]

    def pending(self, node_id: int) -> list[AcquiredRecord]:
        """Return the records whose acknowledgement must be sent to a broker."""
        return list(self._pending[node_id])

    def mark_sent(self, rows: Iterable[AcquiredRecord]) -> None:
        """Mark the acknowledgements of records as sent."""
        for each in rows:
            self._move(each, E.SENT)

    def complete(
        self, rows: Iterable[AcquiredRecord], locked_until: float, *, accepted: bool
    ) -> None:
        """End the acknowledgement of records; accepted renewals are returned again, first."""
        acquired = self._by_state[S.ACQUIRED]
        for each in rows:
            if each.state is not S.IN_FLIGHT:
                continue  # acquired again in the meantime
            if accepted and each.type is AcknowledgeType.RENEW:
                each.locked_until = locked_until
                self._move(each, E.RENEWED)
                # In front: the application is processing it already.
                acquired.move_to_end(each, last=False)
            else:
                self._move(each, E.COMPLETED)

    def _acknowledge(self, record: AcquiredRecord, type: AcknowledgeType) -> None:
        record.type = type
        self._move(record, E.ACKNOWLEDGED)

    def _move(self, record: AcquiredRecord, event: RecordEvent) -> None:
        # A missing pair is a bug, and raises KeyError.
        state = TRANSITIONS[record.state, event]
        self._leave_state(record)
        record.state = state
        if state is S.DONE:
            del self._by_offset[record.partition, record.offset]
            return
        self._by_state[state][record] = None
        if state is S.ACKNOWLEDGED:
            self._pending[record.node_id][record] = None

    def _leave_state(self, record: AcquiredRecord) -> None:
        del self._by_state[record.state][record]
        if record.state is S.ACKNOWLEDGED:
            del self._pending[record.node_id][record]


def by_topic_id(
    rows: Iterable[AcquiredRecord],
) -> dict[tuple[UUID, int], list[AcquiredRecord]]:
    """Return records by topic id and partition number."""
    found: defaultdict[tuple[UUID, int], list[AcquiredRecord]] = defaultdict(list)
    for each in rows:
        found[each.topic_id, each.partition.partition].append(each)
    return dict(found)


def by_partition(rows: Iterable[AcquiredRecord]) -> dict[TopicPartition, list[AcquiredRecord]]:
    """Return records by partition."""
    found: defaultdict[TopicPartition, list[AcquiredRecord]] = defaultdict(list)
    for each in rows:
        found[each.partition].append(each)
    return dict(found)


def offset_ranges(rows: Iterable[AcquiredRecord]) -> Iterator[OffsetRange]:
    """Yield the acknowledgements of a partition's records as ranges of consecutive offsets."""
    current: OffsetRange | None = None
    for each in sorted(rows, key=lambda row: row.offset):
        if current is not None and each.offset == current.last + 1:
            current.types.append(each.type)
            current = current._replace(last=each.offset)
            continue
        if current is not None:
            yield _short(current)
        current = OffsetRange(each.offset, each.offset, [each.type])
    if current is not None:
        yield _short(current)


def _short(offsets: OffsetRange) -> OffsetRange:
    # One type for the whole range makes the request shorter.
    one = offsets.types[:1]
    return offsets._replace(types=one) if len(set(offsets.types)) == 1 else offsets
