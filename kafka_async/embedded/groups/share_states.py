"""The share coordinator: stored states of all share partitions (KIP-932). Pure.

The states belong to the cluster, as if on disk, and outlive partition leaders. A state has an
epoch, which changes when a group's offsets are altered, and the leader epoch of its last reader: a
leader with older epochs may no longer write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka_async.embedded.groups.share_partition import RecordState, StateBatch
from kafka_async.errors import (
    NotLeaderOrFollowerError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

UNINITIALIZED: Final = -1
"""The start offset before the first leader has chosen one, and the number of done records then."""


class ShareKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class ShareState:
    """Holds the stored state of a share partition.

    Attributes:
        leader_epoch: Leader epoch of the last reader.
        records: State and delivery count by offset.
        done_count: Number of done records from the start offset on.
    """

    start_offset: int
    state_epoch: int
    leader_epoch: int = 0
    done_count: int = UNINITIALIZED
    records: dict[int, tuple[RecordState, int]] = field(
        default_factory=dict[int, tuple[RecordState, int]]
    )

    def batches(self) -> list[StateBatch]:
        """Return the records in flight, with equal neighbouring states joined."""
        batches: list[StateBatch] = []
        for offset, (state, count) in sorted(self.records.items()):
            last = batches[-1] if batches else None
            if last and (last.last + 1, last.state, last.delivery_count) == (offset, state, count):
                batches[-1] = last._replace(last=offset)
            else:
                batches.append(StateBatch(offset, offset, state, count))
        return batches


class ShareStates:
    """Stores the states of the share partitions of all groups."""

    def __init__(self) -> None:
        self._states: dict[ShareKey, ShareState] = {}

    def get(self, key: ShareKey) -> ShareState | None:
        """Return the stored state of a share partition."""
        return self._states.get(key)

    def initialize(self, key: ShareKey, start_offset: int, state_epoch: int) -> None:
        """Begin a new state, without records in flight."""
        done = UNINITIALIZED if start_offset == UNINITIALIZED else 0
        leader_epoch = 0 if (old := self._states.get(key)) is None else old.leader_epoch
        self._states[key] = ShareState(start_offset, state_epoch, leader_epoch, done)

    def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """Return the state for a new leader; raises UnknownServerError without a state."""
        state = self._states.get(key)
        if state is None:
            raise UnknownServerError("The share partition has no state.")
        state.leader_epoch = leader_epoch
        return state

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        done_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Store changed states.

        Raises:
            UnknownTopicOrPartitionError: The state was deleted.
            NotLeaderOrFollowerError: The state has a newer epoch.
        """
        state = self._states.get(key)
        if state is None:
            raise UnknownTopicOrPartitionError("The share partition has no state.")
        if state_epoch < state.state_epoch:
            raise NotLeaderOrFollowerError("The state has a newer epoch.")
        for first, last, record_state, count in batches:
            for offset in range(first, last + 1):
                state.records[offset] = record_state, count
        state.start_offset, state.done_count = start_offset, done_count
        state.records = {it: row for it, row in state.records.items() if it >= start_offset}

    def delete(self, group_id: str, topic_id: UUID | None = None) -> None:
        """Delete the states of a group, of all topics or of one."""
        for key in list(self._states):
            if key.group_id == group_id and topic_id in (None, key.topic_id):
                del self._states[key]

    def delete_topic(self, topic_id: UUID) -> None:
        """Delete the states of a topic in all groups."""
        for key in list(self._states):
            if key.topic_id == topic_id:
                del self._states[key]
