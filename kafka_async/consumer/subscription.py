"""A consumer's subscription and the state of its partitions. Pure; used in the event loop only.

Three offsets of a partition are in ascending order. The application has processed the records below
`processed`, so that auto-commit may commit it. `position` is the next offset to return; the records
between `processed` and `position` are being processed. `fetch_offset` is the next offset to fetch;
the records between `position` and `fetch_offset` were fetched and not returned yet: they are in the
partition's `FetchBuffer`, which owns the position.

While handlers run (`Consumer.process`, `partition_streams`), `in_progress` has the offsets of the
records that are not done, and `processed` is the lowest of them.

Two more are independent of these. `committed` is the offset that this consumer committed last, or
the group's committed offset at which it started. `commit_base` is the offset of the last commit,
seek or reset: while `position` differs from it, returned records are not committed.

A state belongs to one topic id. Once the topic was deleted and created again, `replace` gives the
partition a new state, which starts by auto_offset_reset.

A seek, a loss of the partition or a new leader invalidates pending lookups and fetches and gives
the partition a new `version`; a response to a request of an older version is dropped. A seek or a
loss also drops fetched records, including those that a stream has not returned.
"""

from __future__ import annotations

import enum
import itertools
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.client.metadata.metadata import NO_ID
from kafka_async.consumer.buffer.fetch_buffer import FetchBuffer
from kafka_async.consumer.offsets import EARLIEST, UNKNOWN
from kafka_async.errors import IllegalStateError, KafkaError
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
    from uuid import UUID

    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.consumer.buffer.completed_fetch import CompletedFetch
    from kafka_async.consumer.buffer.fetch_buffer import AnyRecord
    from kafka_async.kernel import NextRecord


class FetchState(enum.Enum):
    """States of a partition, as in Java's `SubscriptionState`, with AWAIT_CALLBACK and FAILED."""

    AWAIT_CALLBACK = "waits for the listener's on_assigned"
    INITIALIZING = "waits for the committed offset"
    AWAIT_RESET = "waits for an offset by time or at an end of the log"
    AWAIT_VALIDATION = "waits for a comparison with the new leader's log (KIP-320)"
    FETCHING = "can be fetched"
    FAILED = "failed; continues after a seek, or once its error was raised if a retry follows"


class OffsetsInProgress:
    """Offsets of a partition whose handlers have not ended, in ascending order.

    A seek neither handles nor skips the records below its target that wait for their handlers, so
    their offsets stay. Offsets from the target on are read again.

    Attributes:
        seeks: Number of seeks by the application.
    """

    __slots__ = ("_offsets", "_running", "seeks")

    def __init__(self) -> None:
        self.seeks = 0
        # Unlike a dict, an OrderedDict finds its first key in constant time after others were
        # removed.
        self._offsets: OrderedDict[int, AnyRecord | None] = OrderedDict()
        self._running: OrderedDict[int, float] = OrderedDict()  # start times by id of the record

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def lowest(self) -> int | None:
        """Lowest offset, or None if no handler is in progress."""
        return next(iter(self._offsets), None)

    @property
    def oldest_start(self) -> float | None:
        """Event loop time at which the oldest running handler began, or None."""
        return next(iter(self._running.values()), None)

    def begin(self, record: AnyRecord) -> None:
        """Add the offset of a record, which is higher than all others."""
        self._offsets[record.offset] = record

    def start(self, record: AnyRecord, now: float) -> None:
        """Note that the handler of a record begins."""
        # By identity: after a seek the same offset may be read again, as another record.
        self._running[id(record)] = now

    def end(self, record: AnyRecord) -> None:
        """Remove the offset of a record, unless it has been read again since."""
        self._running.pop(id(record), None)
        if self._offsets.get(record.offset) is record:
            del self._offsets[record.offset]

    def abandon(self, record: AnyRecord) -> None:
        """Keep the offset of a record that will not be handled, until it is read again."""
        self._running.pop(id(record), None)
        if self._offsets.get(record.offset) is record:
            self._offsets[record.offset] = None

    def on_seek(self) -> None:
        """Count a seek by the application."""
        self.seeks += 1

    def keep_below(self, target: int) -> None:
        """Remove the offsets from `target` on."""
        # A copy, since entries are removed during the iteration.
        for offset in [offset for offset in self._offsets if offset >= target]:
            del self._offsets[offset]


@dataclass(slots=True)
class Denial:
    """A topic's missing permission that a poll has raised.

    It ends once one of the partitions that have failed with it can be read. Brokers apply ACL
    changes at different times, so other partitions may still be readable.
    """

    error: KafkaError
    partitions: set[TopicPartition] = field(default_factory=set[TopicPartition])


class PartitionState:
    """State of one partition of a consumer."""

    __slots__ = (
        "_committing",
        "_preferred_replica_until",
        "_processed",
        "buffer",
        "commit_base",
        "committed",
        "consecutive_failures",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "fetch_state",
        "full",
        "high_watermark",
        "in_progress",
        "last_stable_offset",
        "leader_epoch",
        "leader_until",
        "lookup_pending",
        "out_of_range",
        "partition",
        "paused",
        "preferred_replica",
        "reset_timestamp",
        "retry_at",
        "topic_id",
        "unsubscribed",
        "version",
    )

    # Unique over all states, so that a response for a former state of the same partition is not
    # applied.
    _versions = itertools.count(1)

    def __init__(
        self, partition: TopicPartition, fetch_state: FetchState = FetchState.INITIALIZING
    ) -> None:
        # Identity. A response to a request of an older version is dropped.
        self.partition = partition
        self.topic_id = NO_ID  # until it is known
        self.fetch_state = fetch_state
        self.version = next(self._versions)
        # Reasons to return or fetch no records.
        self.paused = self.full = self.unsubscribed = False
        # Lookups and errors.
        self.lookup_pending = False
        self.retry_at = 0.0
        self.consecutive_failures = 0
        self.error: KafkaError | None = None
        self.reset_timestamp: int = EARLIEST
        self.out_of_range: int | None = None  # offset that caused the pending reset
        # Offsets; the module's docstring explains how they relate.
        self.committed = self.commit_base = self._processed = self._committing = UNKNOWN
        self.fetch_offset = self.fetch_epoch = UNKNOWN
        self.leader_epoch = UNKNOWN  # of the leader that has validated the position
        self.high_watermark = self.last_stable_offset = UNKNOWN
        self.preferred_replica: int | None = None  # follower to fetch from (KIP-392)
        self._preferred_replica_until = self.leader_until = 0.0
        self.buffer = FetchBuffer(partition)
        self.in_progress = OffsetsInProgress()

    @property
    def position(self) -> int:
        """Offset of the next record to return."""
        return self.buffer.position

    @property
    def processed(self) -> int:
        """Offset below which the application has processed all records."""
        if (in_progress := self.in_progress.lowest) is not None:
            return in_progress
        # The record that a stream returned last is being processed until it returns the next one.
        streamed = self.buffer.last_streamed
        return self._processed if streamed is None else max(self._processed, streamed.offset)

    @property
    def has_delivery(self) -> bool:
        """True if there are records to take, or an error to raise."""
        return bool(self.buffer) or self.error is not None

    @property
    def has_unprocessed(self) -> bool:
        """True if returned records are neither committed nor followed by another poll."""
        return self.position > self.processed and self.position > self.committed

    @property
    def has_uncommitted(self) -> bool:
        """True if records were returned that are not committed."""
        return self.position != self.commit_base

    def belongs_to(self, topic_id: UUID) -> bool:
        """Return False if the topic was created again; records the id if none was known."""
        if not self.topic_id.int:
            self.topic_id = topic_id
        # Metadata without ids, of old brokers, matches any topic.
        return topic_id in (self.topic_id, NO_ID)

    @property
    def has_begun(self) -> bool:
        """True once a position was looked up in the log or by auto_offset_reset."""
        return self.fetch_state not in (FetchState.AWAIT_CALLBACK, FetchState.INITIALIZING)

    def lag(self, *, committed: bool) -> int | None:
        """Return the number of records up to the high watermark or last stable offset, or None.

        While handlers run, it counts from the first record that is not done.
        """
        end = self.last_stable_offset if committed else self.high_watermark
        if UNKNOWN in (end, self.position):
            return None
        unfinished = self.in_progress.lowest
        return max(0, end - (self.position if unfinished is None else unfinished))

    def to_commit(self, *, include_unprocessed: bool) -> OffsetAndMetadata | None:
        """Return the position, or only what was processed; None if that is committed already.

        Records whose handlers are in progress are never included.
        """
        handled = self.in_progress.lowest is None
        offset = self.position if include_unprocessed and handled else self.processed
        if handled:
            # An explicit commit in progress is not overtaken by a lower automatic one.
            offset = max(offset, self._committing)
        if offset in (UNKNOWN, self.committed):
            return None
        epoch = self.buffer.epoch
        return OffsetAndMetadata(offset, None if epoch == UNKNOWN else epoch)

    def invalidate_lookups(self) -> None:
        """Invalidate the pending lookups and fetches."""
        self.version = next(self._versions)
        self.lookup_pending = False
        self.retry_at = 0.0

    def invalidate(self) -> None:
        """Invalidate the pending lookups and fetches, and errors."""
        self.invalidate_lookups()
        self.error = None
        self.out_of_range = None

    def seek(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Set the position, by decision of the application."""
        # Handlers that run compare this count: their records are not put back before the seek's
        # target.
        self.in_progress.on_seek()
        self.complete_reset(offset, epoch)

    def complete_reset(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Set the position that a reset has found."""
        self.invalidate()
        self.buffer.clear(offset, epoch)
        # They will be read again from the new position.
        self.in_progress.keep_below(offset)
        self._processed = self.commit_base = self.fetch_offset = offset
        self._committing = UNKNOWN
        self.fetch_epoch = epoch
        self._on_position_found()

    def rewind(self, offset: int) -> None:
        """Set the position after all handlers have ended, even past unhandled records."""
        self.in_progress.keep_below(0)
        self.seek(offset)

    def seek_to_unfinished(self) -> None:
        """Seek to the first record whose handler has not ended, if there is one."""
        lowest = self.in_progress.lowest
        if lowest is not None:
            self.rewind(lowest)

    def request_reset(self, timestamp: int, *, out_of_range: int | None = None) -> None:
        """Request a lookup of the position by time in milliseconds, LATEST or EARLIEST.

        `out_of_range` is the offset that the broker does not have, if that is the cause.
        """
        self.invalidate()
        # Only a lookup that the application or the group asked for counts as a seek.
        if out_of_range is None:
            self.in_progress.on_seek()
        self.out_of_range = out_of_range
        self.buffer.clear(UNKNOWN)
        self.reset_timestamp = timestamp
        self._processed = self.commit_base = self.fetch_offset = self._committing = UNKNOWN
        # A preferred replica was chosen for the former position.
        self.prefer_leader()
        self.fetch_state = FetchState.AWAIT_RESET

    def forget_position(self) -> None:
        """Look up the first position again: the client follows another cluster."""
        # The listener's callback still comes first.
        waits = self.fetch_state is FetchState.AWAIT_CALLBACK
        self.request_reset(EARLIEST)
        self.topic_id = NO_ID
        self.in_progress.keep_below(0)
        self.committed = self.fetch_epoch = self.leader_epoch = UNKNOWN
        self.high_watermark = self.last_stable_offset = UNKNOWN
        self.fetch_state = FetchState.AWAIT_CALLBACK if waits else FetchState.INITIALIZING

    def start_at_committed(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Set the position to the committed offset."""
        self.seek(offset, epoch)
        self.committed = offset

    def mark_processed(self) -> None:
        """Mark all returned records as processed: the application polled again."""
        self._processed = self.position

    def begin_commit(self, offset: int) -> None:
        """Record that the application commits an offset: no automatic commit may be lower."""
        # Beyond the position it would mark records as committed that were not returned.
        if offset <= self.position:
            self._committing = offset

    def lend(self, records: list[AnyRecord], stream: NextRecord) -> None:
        """Let a stream return the records that were taken last; those before are processed."""
        self.buffer.lend(records, stream)
        self.mark_processed()

    def take_back(self) -> int:
        """Put the records back that a stream has not returned; return their number.

        The position then passes offsets without a record, such as those removed by compaction.
        """
        # Read before the buffer changes: both properties depend on the lent records.
        self._processed, all_committed = self.processed, not self.has_uncommitted
        count = self.buffer.take_back()
        # The position may pass removed offsets; without this they would look uncommitted.
        if all_committed:
            self._processed = self.commit_base = self.position
        return count

    def on_committed(self, offset: int) -> None:
        """Record a commit; returned records before the offset count as processed."""
        self.committed = self.commit_base = offset
        # A commit may also be lower than what is processed, or of an offset elsewhere in the log.
        if self.processed < offset <= self.position:
            self._processed = offset

    def add_fetch(self, found: CompletedFetch) -> None:
        """Add a completed fetch to the buffer."""
        self.fetch_offset = found.end
        if found.epoch != UNKNOWN:
            self.fetch_epoch = found.epoch
        self.buffer.add(found)
        # The records before the error are returned first; `take_chunk` raises it after them.
        if found.error is not None:
            self.stop_fetching()

    def on_fetch_response(self, high_watermark: int, last_stable_offset: int) -> None:
        """Record a fetch response without an error."""
        self.consecutive_failures = 0
        self.high_watermark, self.last_stable_offset = high_watermark, last_stable_offset

    def replica_to_fetch(self, now: float, brokers: Container[int]) -> int | None:
        """Return the preferred replica; None, from then on, once it expires or has left."""
        replica = self.preferred_replica
        if replica is None or self._preferred_replica_until <= now or replica not in brokers:
            self.prefer_leader()
        return self.preferred_replica

    def prefer_replica(self, node_id: int, until: float) -> None:
        """Fetch from a follower for some time (KIP-392)."""
        self.preferred_replica, self._preferred_replica_until = node_id, until

    def prefer_leader(self, until: float = 0.0) -> None:
        """Fetch from the leader; until a time even if another replica is closer."""
        self.preferred_replica, self.leader_until = None, until

    def on_leader_known(self, leader_epoch: int) -> None:
        """Record the leader that is fetched from first; it needs no validation."""
        self.leader_epoch = leader_epoch

    def back_off(self, until: float) -> None:
        """Request nothing until a time, after one more failure in a row."""
        self.consecutive_failures += 1
        self.retry_at = until

    def end_back_off(self, until: float) -> None:
        """End a backoff, unless another has followed."""
        # The timer of an earlier backoff may fire later than the one that replaced it.
        if self.retry_at == until:
            self.retry_at = 0.0

    def stop_fetching(self) -> None:
        """Fetch nothing until a seek: the next record cannot be read."""
        self.fetch_state = FetchState.FAILED

    def on_error_raised(self) -> None:
        """Continue after an error that was raised."""
        self.error = None
        self.fetch_state = (
            # Fetching continues where it was, and a partition without a position looks it up.
            FetchState.FETCHING if self.fetch_offset >= 0 else FetchState.INITIALIZING
        )

    def pause(self) -> None:
        """Return no records until `resume`."""
        self.paused = True
        # A paused partition may stay so for long, and its data would count against the others.
        self.buffer.drop_decompressed()

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False

    def set_full(self, full: bool) -> None:
        """Return no records while the stream of the partition has enough of them."""
        self.full = full

    @property
    def held_back(self) -> bool:
        """True while no records may be returned: it is paused, full, or no longer subscribed to."""
        return self.paused or self.full or self.unsubscribed

    def begin_lookup(self) -> int:
        """Begin a lookup; return the version for which its result counts."""
        self.lookup_pending = True
        return self.version

    def end_lookup(self) -> None:
        """Let another lookup begin."""
        self.lookup_pending = False

    def maybe_validate_position(self, leader_epoch: int) -> None:
        """Request a comparison with the leader's log if the leader is new (KIP-320).

        The new leader decides again which replica to fetch from (KIP-392). If brokers have no topic
        ids, a lower epoch means that the topic was created again.
        """
        if leader_epoch in (UNKNOWN, self.leader_epoch):
            return
        # An older response of another broker.
        if leader_epoch < self.leader_epoch and self.topic_id.int:
            return
        self.prefer_leader()
        if self.fetch_state is not FetchState.FETCHING or self.fetch_epoch == UNKNOWN:
            # No position to compare, or no epoch of it: the leader is accepted as it is.
            if self.fetch_state is not FetchState.AWAIT_VALIDATION:
                self.leader_epoch = leader_epoch
            return
        self.invalidate_lookups()
        self.fetch_state = FetchState.AWAIT_VALIDATION

    def complete_validation(self, leader_epoch: int) -> None:
        """Fetch from the leader of this epoch: its log contains the position."""
        self.leader_epoch = leader_epoch
        self.fetch_state = FetchState.FETCHING

    def truncate(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """Seek to `offset`, where the new leader's log ends, or to the position if it is lower."""
        position, processed, commit_base = self.position, self.processed, self.commit_base
        # Records that were returned may have been lost, but those before the end are not read
        # again.
        self.complete_reset(min(offset, position), epoch)
        self._processed = min(processed, self.position)
        self.commit_base = min(commit_base, self.position)
        self.complete_validation(leader_epoch)

    def fail(self, error: KafkaError) -> None:
        """Raise this error at a poll.

        Fetching continues after a seek, or once the error was raised if a retry follows.
        """
        self.error = error
        self.fetch_state = FetchState.FAILED

    def on_callback_done(self) -> None:
        """Look up the position, unless the listener has sought to one."""
        if self.fetch_state is FetchState.AWAIT_CALLBACK:
            self.fetch_state = FetchState.INITIALIZING

    def _on_position_found(self) -> None:
        # A known epoch can be compared with the leader's log (KIP-320).
        known = self.fetch_epoch != UNKNOWN
        self.leader_epoch = UNKNOWN
        self.fetch_state = FetchState.AWAIT_VALIDATION if known else FetchState.FETCHING


class Subscription:
    """The subscribed topics and the partitions, assigned by the group or manually.

    Attributes:
        lost_uncommitted: Partitions revoked or lost while returned records were not committed. A
            transaction with such records must not commit.
    """

    def __init__(self) -> None:
        # What is subscribed to: topics, a pattern of the client, or one of the broker (KIP-848).
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern = ""
        # Partitions: `owned` are assigned by the group, `manual` by the application; some may be
        # both.
        self.states: dict[TopicPartition, PartitionState] = {}
        self.owned: frozenset[TopicPartition] = frozenset()
        # Returns False for partitions that another member commits; set by the assignor.
        self._commits: Callable[[TopicPartition], bool] | None = None
        self.manual: frozenset[TopicPartition] = frozenset()
        self.lost_uncommitted: set[TopicPartition] = set()
        # Per topic: id and number of partitions when it was first seen, and a missing permission.
        self._partition_counts: dict[str, tuple[UUID, int]] = {}
        self._denials: dict[str, Denial] = {}

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self.states.values())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """All partitions that the consumer reads."""
        return self.owned | self.manual

    @property
    def reads_anything(self) -> bool:
        """True if there is a subscription, a pattern or a partition."""
        return bool(self.subscribes or self.states)

    @property
    def subscribes(self) -> bool:
        """True if there is a subscription or a pattern."""
        return bool(self.topics or self.broker_pattern or self.pattern is not None)

    def _subscribes_to(self, topic: str) -> bool:
        return self.pattern is not None or bool(self.broker_pattern) or topic in self.topics

    def may_have(self, topic: str) -> bool:
        """Return False if a topic is neither assigned nor subscribed to.

        Any topic may match a pattern now or later.
        """
        if self._subscribes_to(topic):
            return True
        return any(partition.topic == topic for partition in self.states)

    def states_of(self, topic: str) -> list[PartitionState]:
        """Return the states of a topic's partitions."""
        return [state for state in self if state.partition.topic == topic]

    @property
    def denial_errors(self) -> list[KafkaError]:
        """The error of each topic that is denied."""
        return [denial.error for denial in self._denials.values()]

    def denial_error(self, topic: str) -> KafkaError | None:
        """Return the last error of a topic that is denied, or None."""
        denial = self._denials.get(topic)
        return None if denial is None else denial.error

    def is_denied(self, topic: str) -> bool:
        """Return True if a poll has raised a missing permission that is still missing."""
        return topic in self._denials

    def is_denied_partition(self, partition: TopicPartition) -> bool:
        """Return True if the topic is denied and this partition has failed with that error."""
        denial = self._denials.get(partition.topic)
        return denial is not None and partition in denial.partitions

    def deny(self, topic: str, error: KafkaError, partitions: Collection[TopicPartition]) -> None:
        """Record a missing permission that a poll has raised; these partitions failed with it."""
        if partitions:
            denial = self._denials.setdefault(topic, Denial(error))
            denial.error = error
            denial.partitions.update(partitions)

    def end_denial(self, topic: str) -> None:
        """Record that a topic can be read."""
        self._denials.pop(topic, None)

    def end_denials(self) -> None:
        """Record that other credentials are used."""
        self._denials.clear()

    def subscribe(
        self,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None = None,
        broker_pattern: str = "",
    ) -> None:
        """Replace the subscribed topics and the pattern; `match_pattern` finds its topics.

        The coordinator finds the topics of `broker_pattern`, a regular expression of RE2/J. Until
        the group has revoked the partitions of other topics, their records are held back.
        """
        self.topics, self.pattern, self.broker_pattern = topics, pattern, broker_pattern
        # Manual partitions are read whatever the subscription is. With a pattern `topics` is empty
        # until it was matched, so nothing is held back yet.
        for partition in self.owned - self.manual:
            self.states[partition].unsubscribed = bool(topics) and partition.topic not in topics

    def unsubscribe(self) -> None:
        """Remove the subscribed topics and the pattern."""
        self.subscribe(frozenset())

    def of_former_topics(self, metadata: ClusterMetadata) -> list[PartitionState]:
        """Return the states of partitions whose topic was deleted and created again."""
        topic_id = metadata.topic_id
        return [s for s in self if not s.belongs_to(topic_id(s.partition.topic))]

    def replace(self, former: PartitionState) -> PartitionState:
        """Return a new state for a partition whose topic was deleted and created again."""
        partition = former.partition
        begins = FetchState.INITIALIZING if former.has_begun else former.fetch_state
        state = self.states[partition] = PartitionState(partition, begins)
        state.unsubscribed = former.unsubscribed
        self._end(former)
        return state

    def match_pattern(self, metadata: ClusterMetadata) -> bool:
        """Subscribe to the topics that match the pattern; return True if they have changed."""
        pattern, before = self.pattern, self.topics
        if pattern is None:
            return False
        # As in Java: a pattern never matches internal topics such as __consumer_offsets.
        self.topics = frozenset(
            name
            for name, topic in metadata.topics.items()
            if not topic.is_internal and pattern.fullmatch(name)
        )
        return self.topics != before

    def state(self, partition: TopicPartition) -> PartitionState:
        """Return a partition's state. Raises IllegalStateError if it is not assigned."""
        state = self.states.get(partition)
        if state is None:
            advice = (
                "the group assigns each partition to one member, some time after start(): make "
                "this call in a callback of on_assigned, or once assignment() contains it; another "
                "member may have it"
                if self._subscribes_to(partition.topic)
                else "call assign() with it, or subscribe() to its topic"
            )
            raise IllegalStateError(f"{partition} is not assigned to this consumer: {advice}")
        return state

    def select(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Return the states of these partitions, or of all if none is named."""
        chosen = list(partitions)
        return [self.state(p) for p in chosen] if chosen else list(self)

    def add_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions assigned by the group; `start_fetching` follows their callback."""
        self.owned |= frozenset(partitions)
        for partition in partitions:
            self.states.setdefault(partition, PartitionState(partition, FetchState.AWAIT_CALLBACK))

    def start_fetching(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the position lookups of these partitions start: their callback has returned."""
        for partition in partitions:
            if partition in self.states:
                self.states[partition].on_callback_done()

    def remove_owned(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that the group revoked."""
        gone = frozenset(partitions)
        self.owned -= gone
        self._remove(gone - self.manual)
        for partition in gone & self.manual:  # still read, from the first unhandled record on
            self.states[partition].seek_to_unfinished()

    def own_all_partitions(self, counts: Mapping[str, int | None]) -> bool:
        """Own all partitions of the subscribed topics, as a consumer without a group does.

        Partitions of a topic whose count is None stay. Return True if any were added or removed.
        """
        wanted = {
            TopicPartition(topic, number)
            for topic, count in counts.items()
            for number in range(count or 0)
        }
        # None: metadata of the topic is missing at the moment, which does not remove its
        # partitions.
        wanted |= {partition for partition in self.owned if counts.get(partition.topic, 0) is None}
        came, gone = wanted - self.owned, self.owned - wanted
        self.remove_owned(gone)
        self.add_owned(came)
        self.start_fetching(came)
        return bool(came or gone)

    def record_partition_counts(self, metadata: ClusterMetadata) -> None:
        """Record the number of partitions that each subscribed topic had when it was first seen."""
        for topic in self._partition_counts.keys() - self.topics:
            del self._partition_counts[topic]
        for topic in self.topics:
            found = metadata.topic(topic)
            if found is None or not found.partitions:
                continue
            known = self._partition_counts.get(topic)
            if known is None or known[0] != found.topic_id:  # a new id: the topic was re-created
                self._partition_counts[topic] = found.topic_id, len(found.partitions)

    def is_new_partition(self, partition: TopicPartition) -> bool:
        """Return True if the partition was created after this consumer had subscribed."""
        known = self._partition_counts.get(partition.topic)
        return known is not None and partition.partition >= known[1]

    def assign_manually(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the manually assigned partitions."""
        wanted = frozenset(partitions)
        self._remove(self.manual - wanted - self.owned)
        for partition in wanted - self.manual:
            # Setting `unsubscribed` also ends a hold of a partition that was the group's.
            self.states.setdefault(partition, PartitionState(partition)).unsubscribed = False
        self.manual = wanted

    def _remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            state = self.states.pop(partition, None)
            # The denial ends with the last partition that has failed with it.
            if (denial := self._denials.get(partition.topic)) is not None:
                denial.partitions.discard(partition)
                if not denial.partitions:
                    self.end_denial(partition.topic)
            if state is not None:
                self._end(state)

    def _end(self, state: PartitionState) -> None:
        # A transaction that contains records of this partition must not commit any more.
        if state.has_uncommitted and self.commits(state.partition):
            self.lost_uncommitted.add(state.partition)
        state.invalidate()
        state.buffer.clear(UNKNOWN)

    def commit_only(self, commits: Callable[[TopicPartition], bool]) -> None:
        """Commit partitions of the group only if `commits` returns True for them."""
        self._commits = commits

    def commits(self, partition: TopicPartition) -> bool:
        """Return False if another member commits the offset, or if it is not the group's."""
        if self.is_outside_group(partition):
            return False
        return self._commits is None or self._commits(partition)

    def is_outside_group(self, partition: TopicPartition) -> bool:
        """Return True if a manually assigned partition has no offset in the group.

        A consumer that subscribes to nothing uses the offsets of its group for such partitions.
        """
        return self.subscribes and partition in self.manual and partition not in self.owned

    def begin_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that the application commits offsets, which `to_commit` takes into account."""
        for partition, offset in offsets.items():
            if (state := self.states.get(partition)) is not None:
                state.begin_commit(offset.offset)

    def to_commit(self, *, include_unprocessed: bool) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit; see `PartitionState.to_commit`."""
        found = {
            state.partition: state.to_commit(include_unprocessed=include_unprocessed)
            for state in self
            if self.commits(state.partition)
        }
        return {partition: offset for partition, offset in found.items() if offset is not None}
