"""The share partitions that a broker leads, and the share sessions of its clients (KIP-932).

A share partition is loaded from the share coordinator when a member first fetches it. It is dropped
when the broker no longer leads the partition, or when the last session of its group on this broker
has ended with its connection: its locks then end, and its state is read again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.groups.group_configs import EARLIEST
from kafka_async.embedded.groups.share_partition import SharePartition
from kafka_async.embedded.groups.share_states import UNINITIALIZED, ShareKey
from kafka_async.embedded.state.share_sessions import ShareSessionCache
from kafka_async.errors import (
    GroupIdNotFoundError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from kafka_async.embedded.groups.group_configs import GroupConfigs
    from kafka_async.embedded.groups.share_partition import AcknowledgementBatch, StateBatch
    from kafka_async.embedded.groups.share_states import ShareStates
    from kafka_async.embedded.scheduler import Scheduler
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.partition import Partition
    from kafka_async.embedded.state.share_sessions import ShareSession
    from kafka_async.embedded.state.topics import TopicTable

FENCING_ERRORS: Final = (
    NotLeaderOrFollowerError,
    GroupIdNotFoundError,
    UnknownTopicOrPartitionError,
)
"""Errors of the share coordinator that drop a share partition."""


class _Loaded(NamedTuple):
    """A share partition, and the leader epoch in which it was loaded."""

    partition: Partition
    leader_epoch: int
    share: SharePartition


class SharePartitionManager:
    """Manages the share partitions and share sessions of one broker."""

    def __init__(
        self,
        broker_id: int,
        settings: Settings,
        scheduler: Scheduler,
        topics: TopicTable,
        states: ShareStates,
        configs: GroupConfigs,
    ) -> None:
        self._max_sessions = settings.group_share_max_share_sessions
        self.sessions = ShareSessionCache(self._max_sessions)
        self._broker_id = broker_id
        self._scheduler = scheduler
        self._topics = topics
        self._states = states
        self._configs = configs
        self._loaded: dict[ShareKey, _Loaded] = {}
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Drop sessions and locks without storing states: the broker stops as in a crash."""
        self.sessions = ShareSessionCache(self._max_sessions)
        self._loaded.clear()
        self.set_timer()

    # -- partitions -------------------------------------------------------------------------------

    def load(self, key: ShareKey, partition: Partition) -> SharePartition:
        """Return a share partition, loaded if needed; raises the error of the share coordinator."""
        found = self.find(key)
        if found is not None:
            return found
        state = self._states.read(key, partition.leader_epoch)
        start = state.start_offset
        if start == UNINITIALIZED:
            start = self._initial_offset(key.group_id, partition)

        def write(start_offset: int, done: int, batches: Sequence[StateBatch]) -> None:
            self._states.write(key, loaded.state_epoch, start_offset, done, batches)

        loaded = SharePartition(
            start,
            state.batches(),
            state.state_epoch,
            lambda: self._configs.share_partition(key.group_id),
            write,
        )
        self._loaded[key] = _Loaded(partition, partition.leader_epoch, loaded)
        return loaded

    def find(self, key: ShareKey) -> SharePartition | None:
        """Return a loaded share partition, unless its partition's leader has changed since."""
        loaded = self._loaded.get(key)
        if loaded is None:
            return None
        moved = loaded.partition.leader_epoch != loaded.leader_epoch
        if moved or self._topics.by_id(key.topic_id) is None:
            del self._loaded[key]
            return None
        return loaded.share

    def acknowledge(
        self, key: ShareKey, member_id: str, batches: Sequence[AcknowledgementBatch]
    ) -> None:
        """Acknowledge records; raises the error of the partition."""
        found = self.find(key)
        if found is None:
            raise UnknownTopicOrPartitionError(
                "This server does not host this topic-partition for the share group."
            )
        try:
            found.acknowledge(member_id, batches, self._scheduler.now())
        except FENCING_ERRORS:
            self._loaded.pop(key, None)
            raise
        self.on_changed(key)

    def on_changed(self, key: ShareKey) -> None:
        """Set the timer and wake waiting fetches after a change of a share partition."""
        self.set_timer()
        loaded = self._loaded.get(key)
        if loaded is not None:
            loaded.partition.notify_listeners()

    # -- sessions ---------------------------------------------------------------------------------

    def release_session(self, group_id: str, member_id: str) -> None:
        """End a session and release its member's records."""
        session = self.sessions.remove((group_id, member_id))
        if session is not None:
            self._release(session)

    def on_connection_closed(self, connection: object) -> None:
        """End a connection's session; drop the group's partitions if it was the last session."""
        group_id, session = self.sessions.remove_connection(connection)
        if session is not None:
            self._release(session)
        if group_id is not None and not self.sessions.has_group(group_id):
            for key in [key for key in self._loaded if key.group_id == group_id]:
                self._loaded.pop(key).partition.notify_listeners()
            self.set_timer()

    def _release(self, session: ShareSession) -> None:
        group_id, member_id = session.key
        for topic_id, index in session.partitions:
            key = ShareKey(group_id, topic_id, index)
            found = self.find(key)
            if found is None:
                continue
            try:
                found.release(member_id)
            except FENCING_ERRORS:
                self._loaded.pop(key, None)
            self.on_changed(key)

    # -- time -------------------------------------------------------------------------------------

    def set_timer(self) -> None:
        """Set the timer for the next expiring lock; called after each change."""
        if self._timer is not None:
            self._timer.cancel()
        deadline = min((it.share.deadline for it in self._loaded.values()), default=math.inf)
        if deadline < math.inf:
            delay = max(deadline - self._scheduler.now(), 0.0)
            self._timer = self._scheduler.call_later(delay, self._expire, deadline)

    def _expire(self, deadline: float) -> None:
        # An event loop may call early, by up to its clock's resolution.
        now = max(self._scheduler.now(), deadline)
        for key in list(self._loaded):
            found = self.find(key)
            if found is None:
                continue
            try:
                expired = found.expire(now)
            except FENCING_ERRORS:
                self._loaded.pop(key, None)
                continue
            if expired:
                self.on_changed(key)
        self.set_timer()

    def _initial_offset(self, group_id: str, partition: Partition) -> int:
        """Return the start offset that `share.auto.offset.reset` chooses."""
        strategy = self._configs.auto_offset_reset(group_id)
        if isinstance(strategy, str):
            log = partition.log
            return log.start_offset if strategy == EARLIEST else log.end_offset
        timestamp = self._scheduler.now_ms() - round(strategy * 1000)
        found = partition.log.fetch_offset_by_timestamp(timestamp)
        if found is None:
            raise OffsetNotAvailableError("No record is as new as share.auto.offset.reset demands.")
        return found.offset


class ShareBrokers:
    """Holds the share partition managers of all brokers, a new one at each start of a broker."""

    def __init__(
        self,
        settings: Settings,
        brokers: Brokers,
        scheduler: Scheduler,
        topics: TopicTable,
        states: ShareStates,
        configs: GroupConfigs,
    ) -> None:
        self._brokers = brokers
        self._parts = settings, scheduler, topics, states, configs
        self._managers: dict[int, tuple[int, SharePartitionManager]] = {}

    def manager(self, broker_id: int) -> SharePartitionManager:
        """Return a broker's manager; a restarted broker has no sessions."""
        epoch = self._brokers[broker_id].epoch
        known, manager = self._managers.get(broker_id, (None, None))
        if manager is None or known != epoch:
            if manager is not None:
                manager.close()
            manager = SharePartitionManager(broker_id, *self._parts)
            self._managers[broker_id] = epoch, manager
        return manager

    def on_broker_stopped(self, broker_id: int) -> None:
        """End the sessions and locks of a broker."""
        _, manager = self._managers.pop(broker_id, (None, None))
        if manager is not None:
            manager.close()
