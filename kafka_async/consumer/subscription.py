"""What a consumer reads, and where it stands in each partition. Pure; changed in the loop only.

Four offsets of a partition matter, in this order: `committed`, which the group knows; `done`, below
which everything was asked past, so that auto-commit may have it; `position`, the next record to
hand out, with the records between the two in the application's hands; and `fetch_offset`, the next
to ask a broker for, with what lies between in the buffer.

Whatever makes answers under way worthless (a seek, a loss, another leader) gives the partition a
new `version`; an answer to a question of an older version is dropped. What makes records worthless
that were fetched already (a seek, a loss) gives it a new `place` too.
"""

from __future__ import annotations

import enum
import itertools
from typing import TYPE_CHECKING, Final

from kafka_async.consumer.fetch_buffer import Buffer, CompletedFetch
from kafka_async.errors import IllegalStateError, KafkaError
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    from kafka_async.cluster.metadata import ClusterMetadata

LATEST: Final = -1
EARLIEST: Final = -2
"""Timestamps that ListOffsets takes for the two ends of a log."""
UNKNOWN: Final = -1


class Phase(enum.Enum):
    """How far a partition is from being fetched."""

    HELD = "the listener is being told of it"
    NEW = "its committed offset is to be looked up"
    RESETTING = "an offset is to be looked up by time, or at an end of the log"
    VALIDATING = "its position is to be compared with a new leader's log (KIP-320)"
    READY = "it can be fetched"
    BROKEN = "an error stands in the way until somebody seeks"


class PartitionState:
    """One partition of a consumer's."""

    __slots__ = (
        "asking",
        "base",
        "buffer",
        "committed",
        "done",
        "error",
        "failures",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "out_of_range",
        "partition",
        "paused",
        "phase",
        "place",
        "position",
        "position_epoch",
        "replica",
        "replica_until",
        "reset_to",
        "retry_at",
        "version",
    )

    _numbers = itertools.count(1)

    def __init__(self, partition: TopicPartition, phase: Phase = Phase.NEW) -> None:
        self.partition = partition
        self.phase = phase
        self.version = self.place = next(self._numbers)
        self.paused = False
        self.asking = False  # a look-up is under way
        self.retry_at = 0.0
        self.failures = 0  # in a row, since the last answer that had no error
        self.error: KafkaError | None = None
        self.reset_to: int = EARLIEST
        self.out_of_range: int | None = None  # the offset that is being reset, for the log
        self.committed = self.base = self.done = self.position = UNKNOWN
        self.position_epoch = UNKNOWN
        self.fetch_offset = self.fetch_epoch = UNKNOWN
        self.leader_epoch = UNKNOWN  # the one that the position was compared with
        self.high_watermark = self.last_stable_offset = self.log_start_offset = UNKNOWN
        self.replica: int | None = None  # where to fetch rather than at the leader (KIP-392)
        self.replica_until = 0.0
        self.buffer = Buffer(partition)

    @property
    def in_hand(self) -> bool:
        """Whether the application has records that are neither committed nor asked past."""
        return self.position > self.done and self.position > self.committed

    @property
    def moved(self) -> bool:
        """Whether something was handed out that is not committed."""
        return self.position != self.base

    def lag(self, *, committed: bool) -> int | None:
        """Return the records from the position to the high watermark; None while one is unknown.

        If `committed`, to the last stable offset instead.
        """
        end = self.last_stable_offset if committed else self.high_watermark
        if UNKNOWN in (end, self.position):
            return None
        return max(0, end - self.position)

    def to_commit(self, *, in_hand: bool) -> OffsetAndMetadata | None:
        """What there is to commit, with what is in hand or without; None if nothing is new."""
        offset = self.position if in_hand else self.done
        if offset in (UNKNOWN, self.committed):
            return None
        return OffsetAndMetadata(
            offset, None if self.position_epoch == UNKNOWN else self.position_epoch
        )

    def renew(self) -> None:
        """Make every answer under way worthless."""
        self.version = next(self._numbers)
        self.asking = False
        self.retry_at = 0.0

    def leave(self) -> None:
        """Make what was fetched worthless too."""
        self.renew()
        self.place = self.version
        self.error = None
        self.out_of_range = None

    def seek(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Go on at `offset`."""
        self.leave()
        self.buffer.clear(offset)
        self.position = self.done = self.base = self.fetch_offset = offset
        self.position_epoch = self.fetch_epoch = epoch
        self._found()

    def reset(self, timestamp: int, *, out_of_range: int | None = None) -> None:
        """Look up where to go on: at LATEST, EARLIEST, or the first record not older (ms).

        `out_of_range` is the offset that the broker does not have, if that is the reason.
        """
        self.leave()
        self.out_of_range = out_of_range
        self.buffer.clear(UNKNOWN)
        self.reset_to = timestamp
        self.position = self.done = self.base = self.fetch_offset = UNKNOWN
        self.replica = None
        self.phase = Phase.RESETTING

    def found_committed(self, offset: int, epoch: int = UNKNOWN) -> None:
        """The group's offset is known: go on there."""
        self.seek(offset, epoch)
        self.committed = offset

    def handed_out(self, position: int, epoch: int = UNKNOWN) -> None:
        """Records up to `position` are in the application's hands."""
        self.position = position
        if epoch != UNKNOWN:
            self.position_epoch = epoch

    def asked_past(self) -> None:
        """The application has asked for the next: it is done with what it had."""
        self.done = self.position

    def was_committed(self, offset: int) -> None:
        """Note that the group has taken this offset; records in hand before it are done with."""
        self.committed = self.base = offset
        if self.done < offset <= self.position:
            self.done = offset

    def fetched(self, found: CompletedFetch) -> None:
        """An answer brought more."""
        self.fetch_offset = found.end
        if found.epoch != UNKNOWN:
            self.fetch_epoch = found.epoch
        self.buffer.add(found)

    def led_by(self, leader_epoch: int) -> None:
        """A leader of this epoch serves the partition: if it is new, compare logs first."""
        if leader_epoch == UNKNOWN or leader_epoch <= self.leader_epoch:
            return
        if self.phase is not Phase.READY or self.fetch_epoch == UNKNOWN:
            if self.phase is not Phase.VALIDATING:
                self.leader_epoch = leader_epoch
            return
        self.renew()
        self.phase = Phase.VALIDATING

    def validated(self, leader_epoch: int) -> None:
        """The leader of this epoch has everything up to where the next fetch begins."""
        self.leader_epoch = leader_epoch
        self.phase = Phase.READY

    def truncated(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """The new leader's log ends at `offset`, before what was fetched: go on from there."""
        position, done, base = self.position, self.done, self.base
        self.seek(min(offset, position), epoch)
        self.done, self.base = min(done, self.position), min(base, self.position)
        self.validated(leader_epoch)

    def broken(self, error: KafkaError) -> None:
        """Raise this to the application, and go on only when it has sought elsewhere."""
        self.error = error
        self.phase = Phase.BROKEN

    def release(self) -> None:
        """The listener has been told, and has not sought anywhere."""
        if self.phase is Phase.HELD:
            self.phase = Phase.NEW

    def _found(self) -> None:
        known = self.fetch_epoch != UNKNOWN
        self.leader_epoch = UNKNOWN
        self.phase = Phase.VALIDATING if known else Phase.READY


class Subscription:
    """The topics that a consumer wants, and the partitions it has: its group's and static ones.

    `forfeited` are partitions that were given up while records of theirs were handed out and not
    committed; a transaction that holds those records must not commit.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.states: dict[TopicPartition, PartitionState] = {}
        self.owned: frozenset[TopicPartition] = frozenset()
        self.static: frozenset[TopicPartition] = frozenset()
        self.forfeited: set[TopicPartition] = set()
        self._sizes: dict[str, tuple[UUID, int]] = {}

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self.states.values())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """Every partition that the consumer reads."""
        return self.owned | self.static

    @property
    def reads(self) -> bool:
        """True if there is anything to read: a subscription, a pattern or partitions."""
        return bool(self.topics or self.states) or self.pattern is not None

    def state(self, partition: TopicPartition) -> PartitionState:
        """A partition's state. Raises IllegalStateError if it is not assigned."""
        state = self.states.get(partition)
        if state is None:
            raise IllegalStateError(f"{partition} is not assigned to this consumer")
        return state

    def select(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """The states of some partitions; those of all if none is named."""
        chosen = list(partitions)
        return [self.state(p) for p in chosen] if chosen else list(self)

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """The group has given these; they are held until `release`."""
        self.owned |= frozenset(partitions)
        for partition in partitions:
            self.states.setdefault(partition, PartitionState(partition, Phase.HELD))

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """These may be fetched now."""
        for partition in partitions:
            if partition in self.states:
                self.states[partition].release()

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """The group takes these away."""
        gone = frozenset(partitions)
        self.owned -= gone
        self._drop(gone - self.static)

    def follow(self, counts: Mapping[str, int | None]) -> bool:
        """Own every partition of the subscribed topics, as a consumer without a group does.

        `counts` has the number of partitions of each subscribed topic; what it was is kept while it
        is None. Returns whether partitions came or went.
        """
        wanted = {
            TopicPartition(topic, number)
            for topic, count in counts.items()
            for number in range(count or 0)
        }
        wanted |= {partition for partition in self.owned if counts.get(partition.topic, 0) is None}
        came, gone = wanted - self.owned, self.owned - wanted
        self.disown(gone)
        self.own(came)
        self.release(came)
        return bool(came or gone)

    def note_sizes(self, metadata: ClusterMetadata) -> None:
        """Remember how many partitions each subscribed topic had when it was first seen."""
        for topic in self._sizes.keys() - self.topics:
            del self._sizes[topic]
        for topic in self.topics:
            found = metadata.topic(topic)
            if found is None or not found.partitions:
                continue
            known = self._sizes.get(topic)
            if known is None or known[0] != found.topic_id:  # else: created again under its name
                self._sizes[topic] = found.topic_id, len(found.partitions)

    def is_newer(self, partition: TopicPartition) -> bool:
        """Return whether its topic grew by this partition while this consumer was subscribed."""
        known = self._sizes.get(partition.topic)
        return known is not None and partition.partition >= known[1]

    def set_static(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these besides what the group gives, and no other ones."""
        before, self.static = self.static, frozenset(partitions)
        for partition in self.static - before:
            self.states.setdefault(partition, PartitionState(partition))
        self._drop(before - self.static - self.owned)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            state = self.states.pop(partition, None)
            if state is not None:
                if state.moved:
                    self.forfeited.add(partition)
                state.leave()
                state.buffer.clear(UNKNOWN)

    def to_commit(self, *, in_hand: bool) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What there is to commit, with what is in hand or without."""
        found = {state.partition: state.to_commit(in_hand=in_hand) for state in self}
        return {partition: offset for partition, offset in found.items() if offset is not None}
