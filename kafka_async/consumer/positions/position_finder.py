"""Finds the first position of each partition, resets and validates positions.

A partition is INITIALIZING until the group's committed offset is known. It starts there, or without
a committed offset it is AWAIT_RESET and follows auto_offset_reset. It is AWAIT_VALIDATION when its
position came from another leader (KIP-320): the new leader may lack records that the former one
had. Each lookup is a task, so a broker that does not respond delays no other; a result counts only
if the partition's version has not changed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafka_async.config import seconds
from kafka_async.consumer.offsets import EARLIEST, LATEST, UNKNOWN
from kafka_async.consumer.subscription import FetchState, PartitionState, Subscription
from kafka_async.errors import (
    KafkaError,
    OffsetOutOfRangeError,
    RetriableError,
    UnsupportedVersionError,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.fetch.fetcher import Fetcher
    from kafka_async.consumer.positions.offset_lookup import EpochEndOffset, OffsetLookup
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.types import OffsetAndMetadata

logger = logging.getLogger("kafka_async.consumer")


class CommittedOffsets(Protocol):
    """The offsets that a consumer's group has committed, if it has a group: `GroupSession`."""

    @property
    def commits(self) -> bool:
        """True if the consumer has a group."""
        ...

    async def fetch_committed(
        self, partitions: Collection[TopicPartition], timeout: float, *, known_only: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets; with `known_only`, only of topics with metadata."""
        ...


class PositionFinder:
    """Runs the lookups that positions need."""

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        fetcher: Fetcher,
        offset_lookup: OffsetLookup,
        group: CommittedOffsets,
    ) -> None:
        self.reset_count = 0
        """Number of positions that were out of range and reset."""
        # For `health`.
        self._error: KafkaError | None = None
        # Parts of the consumer.
        self._services = services
        self._supervisor = supervisor
        self._subscription = subscription
        self._fetcher = fetcher
        self._offset_lookup = offset_lookup
        self._group = group
        self._timeout = seconds(config.request_timeout_ms)
        self._reset_policy = config.auto_offset_reset
        # Records may arrive in a new partition before the consumer sees it, so it is read from its
        # first record even with auto_offset_reset=latest.
        self._earliest_if_newer = (
            config.auto_offset_reset == "latest"
            and config.auto_offset_reset_new_partitions == "earliest"
        )
        self._wakeup = asyncio.Event()
        self.position_found = Notifier()
        """Notifies when positions may have become known."""

    @property
    def current_error(self) -> KafkaError | None:
        """Error of the last lookup, if it is retried for a partition that has no position yet."""
        waiting = any(state.fetch_state is not FetchState.FETCHING for state in self._subscription)
        return self._error if waiting else None

    def wakeup(self) -> None:
        """Check for partitions that need a position, and for positions that became known."""
        self._wakeup.set()
        self.position_found.notify_all()

    async def run(self) -> None:
        """Start a lookup for each partition that needs one."""
        while True:
            self._start_lookups()
            await self._wakeup.wait()
            self._wakeup.clear()

    def _start_lookups(self) -> None:
        now = asyncio.get_running_loop().time()
        idle = [s for s in self._subscription if not s.lookup_pending and s.retry_at <= now]
        new = [s for s in idle if s.fetch_state is FetchState.INITIALIZING]
        in_group = [s for s in new if self._has_committed_offset(s.partition)]
        # Partitions outside the group's offsets need no request; the reset that follows does.
        if len(in_group) < len(new):
            for state in new:
                if state not in in_group:
                    self.start_at(state, None, newer=self._may_be_newer(state.partition))
            self._wakeup.set()
        if in_group:
            # One request for all of them, so that the coordinator sees one lookup per assignment.
            self._start_lookup(in_group, self._look_up_committed, "looks up committed offsets")
        # One request per broker and kind.
        self._start_by_leader(idle, FetchState.AWAIT_RESET, self._look_up_reset)
        self._start_by_leader(idle, FetchState.AWAIT_VALIDATION, self._look_up_epoch_ends)

    def _start_by_leader(
        self,
        idle: list[PartitionState],
        fetch_state: FetchState,
        look_up: Callable[[int, Mapping[PartitionState, int]], Awaitable[None]],
    ) -> None:
        states = {state.partition: state for state in idle if state.fetch_state is fetch_state}
        leaders = self._offset_lookup.group_by_leader(states)
        found = [partition for partitions in leaders.values() for partition in partitions]
        for node_id, partitions in leaders.items():
            self._start_lookup(
                [states[p] for p in partitions],
                partial(look_up, node_id),
                f"looks up offsets at broker {node_id}",
            )
        # Partitions without a leader.
        if len(found) < len(states):
            self._services.metadata.request_update()  # the response starts the lookup

    def _start_lookup(
        self,
        states: list[PartitionState],
        look_up: Callable[[Mapping[PartitionState, int]], Awaitable[None]],
        name: str,
    ) -> None:
        # Marks them as pending, so that the next pass leaves them out.
        versions = {state: state.begin_lookup() for state in states}
        self._supervisor.spawn(self._run_lookup, look_up, versions, name=name)

    async def _run_lookup(
        self,
        look_up: Callable[[Mapping[PartitionState, int]], Awaitable[None]],
        versions: Mapping[PartitionState, int],
    ) -> None:
        """Run a lookup, and retry after a backoff for partitions without a result."""
        try:
            await look_up(versions)
            self._error = None
        except RetriableError as error:
            logger.debug("looking up offsets: %s", error)
            self._error = error
            # A stale leader is the usual reason.
            self._services.metadata.request_update()
        except KafkaError as error:
            for state, version in versions.items():
                # An error without a topic concerns all.
                concerned = error.topic in (None, state.partition.topic)
                if state.version == version and concerned:
                    self._fetcher.fail_partition(state, error)
        # No result, or a retriable error of the partition.
        for state, version in versions.items():
            if state.version == version and state.lookup_pending:
                state.end_lookup()
                self._fetcher.retry_later(state)
        self._fetcher.wakeup()
        self.wakeup()

    async def _look_up_committed(self, versions: Mapping[PartitionState, int]) -> None:
        partitions = [state.partition for state in versions]
        offsets = await self._group.fetch_committed(partitions, self._timeout, known_only=True)
        newer = await self.partitions_newer_than_group(offsets)
        for state, version in versions.items():
            # Sought, revoked or given another leader since; or a topic without metadata, which is
            # retried.
            if state.version != version or state.partition not in offsets:
                continue
            state.end_lookup()
            self.start_at(state, offsets[state.partition], newer=state.partition in newer)

    def _has_committed_offset(self, partition: TopicPartition) -> bool:
        """Return True if the group may have a committed offset for the partition."""
        return self._group.commits and not self._subscription.is_outside_group(partition)

    def _may_be_newer(self, partition: TopicPartition) -> bool:
        return self._earliest_if_newer and self._subscription.is_new_partition(partition)

    async def partitions_newer_than_group(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> frozenset[TopicPartition]:
        """Return the partitions that auto_offset_reset_new_partitions applies to.

        They have no committed offset. Either their topic grew while this consumer was subscribed,
        or the group owns them and has committed another partition of the topic.
        """
        absent = {p for p, offset in offsets.items() if offset is None}
        if not self._earliest_if_newer or not absent or not self._group.commits:
            return frozenset()
        newer = {p for p in absent if self._subscription.is_new_partition(p)}
        # Another consumer of the group may have subscribed before the topic grew.
        unclear = {p for p in absent - newer if p in self._subscription.owned}
        started = {p.topic for p, offset in offsets.items() if offset is not None}
        metadata = self._services.metadata.snapshot
        others = [
            TopicPartition(topic, number)
            for topic in {p.topic for p in unclear} - started
            for number in range(metadata.partitions(topic) or 0)
            if TopicPartition(topic, number) not in absent
        ]
        if others:
            found = await self._group.fetch_committed(others, self._timeout, known_only=True)
            started |= {p.topic for p, offset in found.items() if offset is not None}
        return frozenset(newer | {p for p in unclear if p.topic in started})

    def start_at(
        self, state: PartitionState, offset: OffsetAndMetadata | None, *, newer: bool
    ) -> None:
        """Set the position to a committed offset, or by the reset policies if there is none."""
        if offset is not None:
            epoch = UNKNOWN if offset.leader_epoch is None else offset.leader_epoch
            state.start_at_committed(offset.offset, epoch)
        elif newer:
            logger.info("%s is new: starting at its first record", state.partition)
            state.request_reset(EARLIEST)
            self.wakeup()
        else:
            self._fetcher.reset_position(state, None)

    async def _look_up_reset(self, node_id: int, versions: Mapping[PartitionState, int]) -> None:
        wanted = {state.partition: state.reset_timestamp for state in versions}
        rows = await self._offset_lookup.list_offsets(node_id, wanted, self._timeout)
        for state, version in versions.items():
            if state.version != version:
                continue
            found = self._offset_lookup.result_for(state.partition, rows)
            if isinstance(found, KafkaError):
                self._fetcher.fail_partition(state, found)
            elif found is not None and found.offset < 0:
                # No record is as recent as the timestamp: continue at the end of the log.
                state.request_reset(LATEST, out_of_range=state.out_of_range)
            elif found is not None:
                self._reset_to(state, found.offset)

    def _reset_to(self, state: PartitionState, offset: int) -> None:
        before = state.out_of_range
        state.complete_reset(offset)
        # Only a position that was lost is worth a warning.
        if before is None:
            logger.info("%s: starting at offset %d", state.partition, offset)
            return
        self.reset_count += 1
        logger.warning(
            "%s: offset %d is out of range: continuing at offset %d (auto_offset_reset=%s)%s",
            state.partition,
            before,
            offset,
            self._reset_policy,
            f": {offset - before} offsets are skipped" if offset > before else "",
        )

    async def _look_up_epoch_ends(
        self, node_id: int, versions: Mapping[PartitionState, int]
    ) -> None:
        metadata = self._services.metadata.snapshot
        leader_epochs = {state: metadata.leader_epoch(state.partition) for state in versions}
        # The epoch of the last fetched record: where does it end in the leader's log?
        wanted = {
            state.partition: state.fetch_epoch for state in versions if leader_epochs[state] >= 0
        }
        rows: Mapping[TopicPartition, EpochEndOffset | KafkaError] = {}
        if wanted:
            try:
                rows = await self._offset_lookup.epoch_end_offsets(node_id, wanted, self._timeout)
            except UnsupportedVersionError as error:  # as in Java, a position is valid there
                logger.debug("positions are not validated: %s", error)
                wanted = {}
        for state, version in versions.items():
            if state.version != version:
                continue
            if state.partition not in wanted:
                # Without a known leader epoch, or on old brokers, nothing can be compared.
                state.complete_validation(UNKNOWN)
                continue
            end = self._offset_lookup.result_for(state.partition, rows)
            if isinstance(end, KafkaError):
                self._fetcher.fail_partition(state, end)
            elif end is not None:
                self._compare_with_leader(state, end, leader_epochs[state])

    def _compare_with_leader(
        self, state: PartitionState, end: EpochEndOffset, leader_epoch: int
    ) -> None:
        state.end_lookup()
        # The leader's log has that epoch at least up to the position.
        if end.offset >= state.fetch_offset:
            state.complete_validation(leader_epoch)
            return
        if end.offset < 0:
            finding = (
                f"the new leader's log has no leader epoch up to {state.fetch_epoch}, that of the "
                f"record before the fetch offset {state.fetch_offset}: records may have been lost"
            )
        else:
            finding = (
                f"the new leader's log ends at offset {end.offset}, before the fetch offset "
                f"{state.fetch_offset}: records were lost"
            )
        error = OffsetOutOfRangeError(
            f"{finding} in an unclean leader election; seek to continue",
            topic=state.partition.topic,
            partition=state.partition.partition,
            offset=state.fetch_offset,
        )
        # Logged even if it is not raised: records may be missing or differ from those returned.
        logger.warning("%s", error)
        # Without a common epoch there is no offset to truncate to.
        if end.offset < 0:
            self._fetcher.reset_position(state, error)
        elif self._fetcher.may_reset:
            state.truncate(end.offset, end.epoch, leader_epoch)
        else:
            self._fetcher.fail_partition(state, error)


class Notifier:
    """Wakes waiting tasks; a later `wait` does not see an earlier notification."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify_all(self) -> None:
        """Wake all waiting tasks."""
        self._next.set()
        # A new event for later waiters; the old one stays set for those that have not run yet.
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next notification."""
        await self._next.wait()
