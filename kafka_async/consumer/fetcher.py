"""From the brokers to the application's hands: sources fill buffers, the ring empties them.

A partition is fetched from its leader (or the replica that the leader recommends, KIP-392) by the
source of that broker. Partitions with something to hand out stand in a ring; whoever takes records
begins at its head, and a partition that gave some goes to the tail, so that none starves another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from kafka_async import hooks
from kafka_async.backoff import Backoff
from kafka_async.config import seconds
from kafka_async.consumer.broker_fetcher import Asked, Source
from kafka_async.consumer.decompress_ahead import Ahead, in_turn
from kafka_async.consumer.fetch_buffer import ENOUGH, RECORDS, AnyRecord, Buffer, CompletedFetch
from kafka_async.consumer.fetch_errors import FetchReaction, fetch_reaction
from kafka_async.consumer.isolation import AbortedRange
from kafka_async.consumer.subscription import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    PartitionState,
    Phase,
    Subscription,
)
from kafka_async.errors import KafkaError, NoOffsetForPartitionError, error_for
from kafka_async.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from kafka_async.cluster.client import Client
    from kafka_async.cluster.metadata import ClusterMetadata
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.delivery_gate import Gate
    from kafka_async.protocol.messages.fetch import FetchResponse, PartitionData
    from kafka_async.records.batch import BatchView
    from kafka_async.supervisor import Supervisor

READ_COMMITTED: Final = "read_committed"
WALKING: Final = 0.0025
"""Seconds for which batches are looked for in an answer before others get the event loop."""
BATCHES: Final = 100
"""How many are looked for between two looks at the clock."""
RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Fetcher:
    """Keeps the buffers of a subscription filled, and hands out of them in turn."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        gate: Gate,
    ) -> None:
        self.fetches = self.bytes = self.records = self.decompressed_bytes = 0
        self.throttle_total = self.throttle_max = 0
        self.handed: set[PartitionState] = set()
        """Partitions of which something was handed out since the application last asked."""
        self.on_reset: Callable[[], None] = _nothing
        """Called when a partition needs another offset."""
        self._client = client
        self._supervisor = supervisor
        self._config = config
        self._subscription = subscription
        self._gate = gate
        self._committed_only = config.isolation_level == READ_COMMITTED
        self._loop = asyncio.get_running_loop()
        self._sources: dict[int, Source] = {}
        self._ring: deque[PartitionState] = deque()
        self._ahead = Ahead(supervisor, lambda: in_turn(self._upcoming()))
        self._taken_from: Buffer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        )

    @property
    def in_flight(self) -> int:
        """Fetch requests that have no response yet."""
        return sum(source.in_flight for source in self._sources.values())

    @property
    def buffered(self) -> int:
        """Bytes fetched and not returned yet."""
        return sum(state.buffer.size for state in self._subscription)

    def lags(self) -> dict[TopicPartition, int]:
        """Records between each position and the end that may be read, where both are known."""
        lags = {s.partition: s.lag(committed=self._committed_only) for s in self._subscription}
        return {partition: lag for partition, lag in lags.items() if lag is not None}

    # -- what is to be fetched --------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be fetchable that was not before: tell the sources, make those missing."""
        metadata, now = self._client.metadata, self._loop.time()
        for state in self._subscription:
            node_id = self._node(state, metadata, now)
            if node_id is not None and node_id not in self._sources:
                self._spawn(node_id)
        for source in self._sources.values():
            source.wanted.set()

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Leaders may have changed: positions are compared with the logs of new ones."""
        for state in self._subscription:
            state.led_by(metadata.leader_epoch(state.partition))
        self.on_reset()
        self.wake()

    def share(self, node_id: int) -> Sequence[PartitionState]:
        """The partitions that a broker is to be asked for now."""
        metadata, now = self._client.metadata, self._loop.time()
        return [s for s in self._subscription if self._node(s, metadata, now) == node_id]

    def retire(self, source: Source) -> bool:
        """Whether a source that has nothing to do may end: its broker is gone."""
        if source.node_id in self._client.metadata.brokers:
            return False
        del self._sources[source.node_id]
        return True

    def has_room(self, state: PartitionState) -> bool:
        """Whether more of a partition is to be fetched: what is read next is under way by then."""
        return state.buffer.unread < self._config.max_partition_fetch_bytes

    def budget(self) -> int:
        """Bytes that one broker's partitions may hold: an equal part for each broker."""
        return self._config.fetch_buffer_memory // max(1, len(self._sources))

    def _node(self, state: PartitionState, metadata: ClusterMetadata, now: float) -> int | None:
        """Which broker to ask for a partition; None while it cannot or must not be fetched."""
        if state.phase is not Phase.READY or state.paused or state.retry_at > now:
            return None
        if state.replica is not None and state.replica_until > now:
            if state.replica in metadata.brokers:
                return state.replica
            state.replica = None
        leader = metadata.leader(state.partition)
        if leader is None:
            self._client.request_metadata_update()
            return None
        if state.leader_epoch == UNKNOWN:
            state.leader_epoch = leader.epoch
        return leader.leader_id

    def _spawn(self, node_id: int) -> None:
        source = self._sources[node_id] = Source(self._client, self._config, node_id, self)
        self._supervisor.spawn(source.run, name=f"fetches from broker {node_id}")

    # -- what has been fetched --------------------------------------------------------------------

    async def took(
        self,
        node_id: int,
        asked: Mapping[TopicPartition, Asked],
        answer: FetchResponse,
        rows: Collection[tuple[TopicPartition, PartitionData]],
    ) -> None:
        """Put an answer into the buffers, and react to its errors; lets go of the loop in time."""
        endpoints = {
            n.node_id: Node(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints
        }
        size = 0
        until = self._loop.time() + WALKING
        for partition, row in rows:
            question = asked.get(partition)
            if question is None or not question.stands:
                continue
            found = self._slice(question.state, row) if row.records and not row.error_code else None
            while not (found is None or found.walk(BATCHES)):
                if self._loop.time() >= until:
                    await asyncio.sleep(0)
                    until = self._loop.time() + WALKING
            if not question.stands:
                continue
            if row.error_code:
                self._failed(question.state, row, node_id, endpoints)
            else:
                size += self._succeeded(question.state, row, found)
        self.fetches += 1
        self.bytes += size
        self.throttle_total += answer.throttle_time_ms
        self.throttle_max = max(self.throttle_max, answer.throttle_time_ms)
        if size and self._client.hooks.active:
            client_id = self._client.config.client_id
            self._client.hooks.emit(hooks.Fetched(client_id, node_id, len(rows), size))

    def refused(self, asked: Mapping[TopicPartition, Asked], error: KafkaError) -> None:
        """Have the application hear why there is no answer; then ask again."""
        for question in asked.values():
            if question.stands:
                self.broken(question.state, error)

    def _slice(self, state: PartitionState, row: PartitionData) -> CompletedFetch:
        aborted = [
            AbortedRange(each.first_offset, each.producer_id)
            for each in row.aborted_transactions or ()
        ]
        data = memoryview(row.records or b"")
        return CompletedFetch(
            state.partition, data, state.fetch_offset, aborted if self._committed_only else None
        )

    def _succeeded(
        self, state: PartitionState, row: PartitionData, found: CompletedFetch | None
    ) -> int:
        state.failures = 0
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start_offset = row.log_start_offset
        if row.preferred_read_replica >= 0:
            state.replica = row.preferred_read_replica
            age = seconds(self._config.metadata_max_age_ms)
            state.replica_until = self._loop.time() + age
            self.wake()
        if found is None:
            return 0
        state.fetched(found)
        if found.error is not None:
            state.phase = Phase.BROKEN
        self._has_something(state)
        return found.size

    def _failed(
        self, state: PartitionState, row: PartitionData, node_id: int, endpoints: Mapping[int, Node]
    ) -> None:
        error = error_for(
            row.error_code, topic=state.partition.topic, partition=state.partition.partition
        )
        reaction = fetch_reaction(error)
        if state.replica == node_id:
            # A follower may lag or be gone: only the leader's word counts (KIP-392).
            state.replica = None
            if reaction is FetchReaction.RESET:
                self.wake()
                return
        if reaction is FetchReaction.RESET and state.buffer:
            self.retry(state)  # the application gets the records before that offset first
        elif reaction is FetchReaction.RESET:
            self.reset(state, error)
        elif reaction in (FetchReaction.RAISE, FetchReaction.RAISE_ONCE):
            state.broken(error)
            self._has_something(state)
        else:
            leader = row.current_leader
            if leader.leader_id >= 0:
                self._client.update_leader(
                    state.partition,
                    leader.leader_id,
                    leader.leader_epoch,
                    endpoints.get(leader.leader_id),
                )
            elif reaction is FetchReaction.REFRESH:
                self._client.request_metadata_update()
            self.retry(state)

    @property
    def may_reset(self) -> bool:
        """Whether auto_offset_reset lets a partition go on elsewhere than it stood."""
        return self._config.auto_offset_reset in RESETS

    def reset(self, state: PartitionState, cause: KafkaError | None) -> None:
        """There is nothing to read where the partition stands: follow auto_offset_reset."""
        timestamp = RESETS.get(self._config.auto_offset_reset)
        if timestamp is not None:
            state.reset(timestamp, out_of_range=None if cause is None else state.fetch_offset)
            self.on_reset()
            return
        if cause is None:
            cause = NoOffsetForPartitionError(
                'the group has committed no offset and auto_offset_reset is "none": seek to begin',
                topic=state.partition.topic,
                partition=state.partition.partition,
            )
        self.broken(state, cause)

    def broken(self, state: PartitionState, error: KafkaError) -> None:
        """Raise an error to the application when the partition's turn comes."""
        state.broken(error)
        self._has_something(state)

    def retry(self, state: PartitionState) -> None:
        """Ask for the partition again after a pause, longer after each failure in a row."""
        delay = self._backoff.after(state.failures)
        state.failures += 1
        state.retry_at = at = self._loop.time() + delay
        self._loop.call_at(at, self._retry, state, at)

    def _retry(self, state: PartitionState, at: float) -> None:
        # uvloop's timers may run up to a millisecond early: the clock may not be there yet.
        if state.retry_at == at:
            state.retry_at = 0.0
        if self._supervisor.running:
            self.on_reset()
            self.wake()

    # -- handing out ------------------------------------------------------------------------------

    def _has_something(self, state: PartitionState) -> None:
        if state not in self._ring:
            self._ring.append(state)
        self._ahead.look()
        self._gate.arrived.set()

    def resumed(self, state: PartitionState) -> None:
        """A partition may be handed out again."""
        if state.buffer or state.error is not None:
            self._has_something(state)
        self.wake()

    def packed(self) -> BatchView | None:
        """The batch that is to be unpacked, elsewhere, before anything is taken."""
        state = self._head()
        return None if state is None else state.buffer.packed

    def unpacking(self) -> Awaitable[object] | None:
        """What to wait for before anything is taken; what comes later is begun with."""
        self._ahead.go_on(self.decompressed_bytes)
        state = self._head()
        view = None if state is None else state.buffer.packed
        if state is None or view is None:
            return None
        if view.awaited and (call := self._ahead.until(view)) is not None:
            return asyncio.wait({call})
        return self._supervisor.offload(_unpack, state, view)

    def _upcoming(self) -> Iterator[Iterator[BatchView]]:
        states = self._subscription.states
        for state in self._ring:
            if not state.paused and states.get(state.partition) is state:
                yield state.buffer.upcoming()

    def take(self, limit: int, deadline: float) -> list[AnyRecord]:
        """At most so many records, from as many partitions as it takes, in turn.

        It stops before what is `packed`, so that one call holds the loop for one such batch, once
        it has decompressed ENOUGH, and at the deadline (the loop's time).

        Raises the error that stands before the next record of the first partition.
        """
        taken: list[AnyRecord] = []
        most = self.decompressed_bytes + ENOUGH

        def enough() -> bool:
            return (
                self.decompressed_bytes + buffer.decompressed_bytes >= most
                or self._loop.time() >= deadline
            )

        while len(taken) < limit and (state := self._head()):
            buffer = state.buffer
            if taken and (buffer.packed is not None or enough()):
                break
            try:
                records = buffer.take(limit - len(taken), enough)
            except KafkaError:
                if taken:
                    break
                self._spoil(state)
                raise
            if not self._rotate(state, records) and state.error is not None:
                if taken:
                    break
                self._raise(state)
            taken = taken + records if taken else records
        return taken

    def take_some(self, limit: int = RECORDS) -> tuple[PartitionState, list[AnyRecord]] | None:
        """Records of the next partition's next batch, as many as are parsed at a time."""
        while state := self._head():
            try:
                records = state.buffer.take_some(limit)
            except KafkaError:
                self._spoil(state)
                raise
            if self._rotate(state, records):
                return state, records
            if state.error is not None:
                self._raise(state)
        return None

    def take_views(self) -> list[tuple[PartitionState, list[BatchView], int, int]]:
        """All batches of all partitions: the first offset to read and the one after the last."""
        taken: list[tuple[PartitionState, list[BatchView], int, int]] = []
        for _ in range(len(self._ring)):
            state = self._head()
            if state is None:
                break
            try:
                views, start = state.buffer.take_views()
            except KafkaError:
                if taken:
                    break
                self._spoil(state)
                raise
            if views:
                taken.append((state, views, start, state.buffer.position))
            state.handed_out(state.buffer.position, state.fetch_epoch)
            self.handed.add(state)
            self._ring.popleft()
            if state.error is not None and not taken:
                self._raise(state)
            if state.buffer or state.error is not None:
                self._ring.append(state)
        if taken:
            self.wake()
        return taken

    def put_back(self, state: PartitionState, records: list[AnyRecord]) -> None:
        """Records of a batch that were taken and not handed out after all."""
        if records:
            self.records -= len(records)
            state.buffer.put_back(records)
            state.position = state.buffer.position
            if state not in self._ring:
                self._ring.appendleft(state)

    def _head(self) -> PartitionState | None:
        """The first partition of the ring that may be handed out; what may not leaves the ring."""
        while self._ring:
            state = self._ring[0]
            current = self._subscription.states.get(state.partition) is state
            if current and not state.paused and (state.buffer or state.error is not None):
                return state
            self._ring.popleft()
        return None

    def _rotate(self, state: PartitionState, records: list[AnyRecord]) -> bool:
        """Note what was taken of the ring's head, and let the next one be the head."""
        position = state.buffer.position
        if self._taken_from is not state.buffer:
            if self._taken_from is not None:
                self._taken_from.let_go()
            self._taken_from = state.buffer
        self.decompressed_bytes += state.buffer.decompressed_bytes
        state.buffer.decompressed_bytes = 0
        if records:
            epoch = records[-1].leader_epoch
            state.handed_out(position, -1 if epoch is None else epoch)
            self.records += len(records)
            self.handed.add(state)
        elif position > state.position:
            state.handed_out(position)
            self.handed.add(state)
        self._ring.popleft()
        if state.buffer or state.error is not None:
            self._ring.append(state)
        if state.buffer.full and self.has_room(state):
            state.buffer.full = False
            self._wake_source(state)
        return bool(records)

    def _wake_source(self, state: PartitionState) -> None:
        node_id = self._node(state, self._client.metadata, self._loop.time())
        source = self._sources.get(-1 if node_id is None else node_id)
        if source is not None:
            source.wanted.set()

    def _spoil(self, state: PartitionState) -> None:
        """The buffer cannot be read on; the error is met again until somebody seeks."""
        state.phase = Phase.BROKEN
        self._ring.rotate(-1)
        self.wake()  # what it holds was counted against the others

    def _raise(self, state: PartitionState) -> None:
        error = state.error
        assert error is not None
        if fetch_reaction(error) not in (FetchReaction.RAISE, FetchReaction.RESET):
            state.error = None
            state.phase = Phase.READY if state.fetch_offset >= 0 else Phase.NEW
            self.retry(state)
        raise error


def _unpack(state: PartitionState, view: BatchView) -> None:
    """In a thread: a partition that was paused meanwhile keeps nothing decompressed."""
    view.unpack()
    if state.paused:
        view.pack()


def _nothing() -> None:
    pass
