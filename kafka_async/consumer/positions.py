"""Where to go on: finds the position of each partition that has none, or whose leader is another.

A partition is NEW until the group's committed offset is known; then, or if there is none, it is
fetched from there, or RESETTING by policy. It is VALIDATING when its leader is not the one that its
position came from (KIP-320): the new leader may lack what the old one had. Each look-up is a task
of its own, so a broker that hangs keeps nobody else waiting; an answer counts only if the
partition still asks that question.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from kafka_async.config import seconds
from kafka_async.consumer.list_offsets import EpochEnd, Found, Lookups, settle
from kafka_async.consumer.notifier import Pulse
from kafka_async.consumer.subscription import EARLIEST, UNKNOWN, PartitionState, Phase, Subscription
from kafka_async.errors import KafkaError, OffsetOutOfRangeError, RetriableError
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async.cluster.client import Client
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.fetcher import Fetcher
    from kafka_async.consumer.offset_committer import Commits
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import OffsetAndMetadata

logger = logging.getLogger("kafka_async.consumer")


class Positions:
    """The task that finds positions."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        fetcher: Fetcher,
        lookups: Lookups,
        commits: Commits | None,
    ) -> None:
        self.resets = 0
        """Offsets that were out of range and reset."""
        self._client = client
        self._supervisor = supervisor
        self._subscription = subscription
        self._fetcher = fetcher
        self._lookups = lookups
        self._commits = commits
        self._timeout = seconds(config.request_timeout_ms)
        self._policy = config.auto_offset_reset
        self._earliest_if_newer = (
            config.auto_offset_reset == "latest"
            and config.auto_offset_reset_new_partitions == "earliest"
        )
        self._wanted = asyncio.Event()
        self.found = Pulse()
        """Beats when positions may have become known."""

    def wake(self) -> None:
        """A partition may need a position, or have one."""
        self._wanted.set()
        self.found.beat()

    async def run(self) -> None:
        """Start a look-up for each partition that needs one."""
        while True:
            self._look()
            await self._wanted.wait()
            self._wanted.clear()

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [s for s in self._subscription if not s.asking and s.retry_at <= now]
        new = [s for s in due if s.phase is Phase.NEW]
        if new and self._commits is None:
            for state in new:
                self.reset_uncommitted(state, newer=self._may_be_newer(state.partition))
            self._wanted.set()
        elif new:
            self._start(new, self._committed, "looks up committed offsets")
        self._start_by_leader(due, Phase.RESETTING, self._reset)
        self._start_by_leader(due, Phase.VALIDATING, self._validate)

    def _start_by_leader(
        self,
        due: list[PartitionState],
        phase: Phase,
        look_up: Callable[[int, Mapping[PartitionState, int]], Awaitable[None]],
    ) -> None:
        states = {state.partition: state for state in due if state.phase is phase}
        leaders = self._lookups.by_leader(states)
        found = [partition for partitions in leaders.values() for partition in partitions]
        for node_id, partitions in leaders.items():
            self._start(
                [states[p] for p in partitions],
                partial(look_up, node_id),
                f"looks up offsets at broker {node_id}",
            )
        if len(found) < len(states):
            self._client.request_metadata_update()  # its answer wakes us

    def _start(
        self,
        states: list[PartitionState],
        look_up: Callable[[Mapping[PartitionState, int]], Awaitable[None]],
        name: str,
    ) -> None:
        for state in states:
            state.asking = True
        asked = {state: state.version for state in states}
        self._supervisor.spawn(self._guarded, look_up, asked, name=name)

    async def _guarded(
        self,
        look_up: Callable[[Mapping[PartitionState, int]], Awaitable[None]],
        asked: Mapping[PartitionState, int],
    ) -> None:
        """Run a look-up; what it leaves unanswered is asked again after a pause."""
        try:
            await look_up(asked)
        except RetriableError as error:
            logger.debug("looking up offsets: %s", error)
            self._client.request_metadata_update()
        except KafkaError as error:
            for state, version in asked.items():
                if state.version == version:
                    self._fetcher.broken(state, error)
        for state, version in asked.items():
            if state.version == version and state.asking:
                state.asking = False
                self._fetcher.retry(state)
        self._fetcher.wake()
        self.wake()

    async def _committed(self, asked: Mapping[PartitionState, int]) -> None:
        assert self._commits is not None
        partitions = [state.partition for state in asked]
        offsets = await self._commits.fetch(partitions, self._timeout, known_only=True)
        newer = await self.newer_than_group(offsets)
        for state, version in asked.items():
            if state.version != version or state.partition not in offsets:
                continue
            state.asking = False
            self._go_on(state, offsets[state.partition], newer=state.partition in newer)

    def _may_be_newer(self, partition: TopicPartition) -> bool:
        return self._earliest_if_newer and self._subscription.is_newer(partition)

    async def newer_than_group(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> frozenset[TopicPartition]:
        """Return those of some partitions that auto_offset_reset_new_partitions applies to.

        They have no committed offset, and either their topic grew while this consumer was
        subscribed, or they are the group's and it has committed another partition of the topic.
        """
        absent = {p for p, offset in offsets.items() if offset is None}
        if not self._earliest_if_newer or not absent or self._commits is None:
            return frozenset()
        newer = {p for p in absent if self._subscription.is_newer(p)}
        unclear = {p for p in absent - newer if p in self._subscription.owned}
        started = {p.topic for p, offset in offsets.items() if offset is not None}
        metadata = self._client.metadata
        others = [
            TopicPartition(topic, number)
            for topic in {p.topic for p in unclear} - started
            for number in range(metadata.partitions(topic) or 0)
            if TopicPartition(topic, number) not in absent
        ]
        if others:
            found = await self._commits.fetch(others, self._timeout, known_only=True)
            started |= {p.topic for p, offset in found.items() if offset is not None}
        return frozenset(newer | {p for p in unclear if p.topic in started})

    def reset_uncommitted(self, state: PartitionState, *, newer: bool) -> None:
        """Begin in a partition without a committed offset."""
        if newer:
            logger.info("%s is new: starting at its first record", state.partition)
            state.reset(EARLIEST)
            self.wake()
        else:
            self._fetcher.reset(state, None)

    def _go_on(
        self, state: PartitionState, offset: OffsetAndMetadata | None, *, newer: bool
    ) -> None:
        if offset is None:
            self.reset_uncommitted(state, newer=newer)
            return
        epoch = UNKNOWN if offset.leader_epoch is None else offset.leader_epoch
        state.found_committed(offset.offset, epoch)

    async def _reset(self, node_id: int, asked: Mapping[PartitionState, int]) -> None:
        wanted = {state.partition: state.reset_to for state in asked}
        rows = await self._lookups.list(node_id, wanted, self._timeout)
        for state, version in asked.items():
            if state.version != version:
                continue
            found = settle(
                rows, state.partition, Found, refresh=self._client.request_metadata_update
            )
            if isinstance(found, KafkaError):
                self._fetcher.broken(state, found)
            elif found is not None and found.offset < 0:
                # Nothing is as young as that: go on at the end.
                state.reset(-1, out_of_range=state.out_of_range)
            elif found is not None:
                self._begin_at(state, found.offset)

    def _begin_at(self, state: PartitionState, offset: int) -> None:
        before = state.out_of_range
        state.seek(offset)
        if before is None:
            logger.info("%s: starting at offset %d", state.partition, offset)
            return
        self.resets += 1
        logger.warning(
            "%s: offset %d is out of range: reading on at offset %d (auto_offset_reset=%s)%s",
            state.partition,
            before,
            offset,
            self._policy,
            f": {offset - before} offsets are skipped" if offset > before else "",
        )

    async def _validate(self, node_id: int, asked: Mapping[PartitionState, int]) -> None:
        metadata = self._client.metadata
        leader_epochs = {state: metadata.leader_epoch(state.partition) for state in asked}
        wanted = {
            state.partition: state.fetch_epoch for state in asked if leader_epochs[state] >= 0
        }
        rows: Mapping[TopicPartition, EpochEnd | KafkaError] = {}
        if wanted:
            rows = await self._lookups.epoch_ends(node_id, wanted, self._timeout)
        for state, version in asked.items():
            if state.version != version:
                continue
            if state.partition not in wanted:
                state.validated(UNKNOWN)
                continue
            end = settle(
                rows, state.partition, EpochEnd, refresh=self._client.request_metadata_update
            )
            if isinstance(end, KafkaError):
                self._fetcher.broken(state, end)
            elif end is not None:
                self._compare(state, end, leader_epochs[state])

    def _compare(self, state: PartitionState, end: EpochEnd, leader_epoch: int) -> None:
        state.asking = False
        if end.offset >= state.fetch_offset:
            state.validated(leader_epoch)
            return
        error = OffsetOutOfRangeError(
            f"the new leader's log ends at {end.offset} where ours had {state.fetch_offset}: "
            "records were lost in an unclean election; seek to go on",
            topic=state.partition.topic,
            partition=state.partition.partition,
            offset=state.fetch_offset,
        )
        logger.warning("%s", error)
        if end.offset < 0:
            self._fetcher.reset(state, error)
        elif self._fetcher.may_reset:
            state.truncated(end.offset, end.epoch, leader_epoch)
        else:
            self._fetcher.broken(state, error)
