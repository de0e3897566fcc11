"""Fills the buffers of partitions and returns their records in turn.

A partition is fetched from its leader, or from the replica that the leader prefers (KIP-392), by
the `BrokerFetcher` of that broker. Partitions with records are in a queue. A poll takes records of
the first partition, which then moves to the back, so that no partition starves another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from kafka_async import hooks
from kafka_async.backoff import Backoff
from kafka_async.config import seconds
from kafka_async.consumer.broker_fetcher import BrokerFetcher, PendingFetch
from kafka_async.consumer.decompress_ahead import AheadDecompressor, round_robin
from kafka_async.consumer.fetch_buffer import (
    MAX_DECOMPRESSED_BYTES_PER_POLL,
    RECORDS_PER_CHUNK,
    AnyRecord,
    CompletedFetch,
    FetchBuffer,
)
from kafka_async.consumer.fetch_errors import FetchErrorAction, fetch_error_action
from kafka_async.consumer.isolation import AbortedRange
from kafka_async.consumer.subscription import (
    EARLIEST,
    LATEST,
    UNKNOWN,
    FetchState,
    PartitionState,
    Subscription,
)
from kafka_async.errors import KafkaError, NoOffsetForPartitionError, error_for
from kafka_async.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from kafka_async.cluster.client import Client
    from kafka_async.cluster.metadata import ClusterMetadata
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.delivery_gate import DeliveryGate
    from kafka_async.protocol.messages.fetch import FetchResponse, PartitionData
    from kafka_async.records.batch import BatchView
    from kafka_async.supervisor import Supervisor

READ_COMMITTED: Final = "read_committed"
MAX_SCAN_SECONDS: Final = 0.0025
"""Seconds for which batches are searched in a response before other tasks run."""
BATCHES_PER_TIME_CHECK: Final = 100
"""Batches searched between two checks of the clock."""
RESET_TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Fetcher:
    """Fetches a subscription's partitions and returns their records.

    Attributes:
        fetches: Fetch responses.
        bytes: Bytes fetched.
        records: Records taken by polls and streams; `take_batches` is not counted.
        decompressed_bytes: Bytes of decompressed batches that were read.
        throttle_total: Sum of the responses' throttle times, in milliseconds.
        throttle_max: Longest throttle time of a response, in milliseconds.
    """

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        gate: DeliveryGate,
    ) -> None:
        self.fetches = self.bytes = self.records = self.decompressed_bytes = 0
        self.throttle_total = self.throttle_max = 0
        self.unprocessed: set[PartitionState] = set()
        """Partitions of which records were returned since the last poll."""
        self.on_position_needed: Callable[[], None] = _nothing
        """Called when a partition needs a new position."""
        self._client = client
        self._supervisor = supervisor
        self._config = config
        self._subscription = subscription
        self._gate = gate
        self._committed_only = config.isolation_level == READ_COMMITTED
        self._loop = asyncio.get_running_loop()
        self._broker_fetchers: dict[int, BrokerFetcher] = {}
        self._queue: deque[PartitionState] = deque()
        self._decompressor = AheadDecompressor(supervisor, lambda: round_robin(self._upcoming()))
        self._last_buffer: FetchBuffer | None = None
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        )

    @property
    def in_flight(self) -> int:
        """Fetch requests without a response."""
        return sum(broker_fetcher.in_flight for broker_fetcher in self._broker_fetchers.values())

    @property
    def buffered(self) -> int:
        """Bytes fetched and not returned yet."""
        return sum(state.buffer.size for state in self._subscription)

    def lags(self) -> dict[TopicPartition, int]:
        """Return the lag of each partition whose position and end are known."""
        lags = {s.partition: s.lag(committed=self._committed_only) for s in self._subscription}
        return {partition: lag for partition, lag in lags.items() if lag is not None}

    # -- selecting partitions ---------------------------------------------------------------------

    def wakeup(self) -> None:
        """Check again what can be fetched, and start fetchers for new brokers."""
        metadata, now = self._client.metadata, self._loop.time()
        for state in self._subscription:
            node_id = self._select_node(state, metadata, now)
            if node_id is not None and node_id not in self._broker_fetchers:
                self._start_broker_fetcher(node_id)
        for broker_fetcher in self._broker_fetchers.values():
            broker_fetcher.wakeup.set()

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Validate positions against new leaders, and fetch from them."""
        for state in self._subscription:
            state.maybe_validate_position(metadata.leader_epoch(state.partition))
        self.on_position_needed()
        self.wakeup()

    def partitions_to_fetch(self, node_id: int) -> Sequence[PartitionState]:
        """Return the partitions to fetch from a broker now."""
        metadata, now = self._client.metadata, self._loop.time()
        return [s for s in self._subscription if self._select_node(s, metadata, now) == node_id]

    def remove_if_broker_gone(self, broker_fetcher: BrokerFetcher) -> bool:
        """Remove a fetcher and return True if its broker is gone."""
        if broker_fetcher.node_id in self._client.metadata.brokers:
            return False
        del self._broker_fetchers[broker_fetcher.node_id]
        return True

    def has_room(self, state: PartitionState) -> bool:
        """Return whether to fetch more of a partition, in time for its next poll."""
        return state.buffer.unread_bytes < self._config.max_partition_fetch_bytes

    def memory_budget(self) -> int:
        """Return the bytes that one broker's partitions may hold: an equal part for each broker."""
        return self._config.fetch_buffer_memory // max(1, len(self._broker_fetchers))

    def _select_node(
        self, state: PartitionState, metadata: ClusterMetadata, now: float
    ) -> int | None:
        """Return the broker to fetch a partition from; None if it cannot be fetched now."""
        if state.fetch_state is not FetchState.FETCHING or state.paused or state.retry_at > now:
            return None
        if state.preferred_replica is not None and state.preferred_replica_until > now:
            if state.preferred_replica in metadata.brokers:
                return state.preferred_replica
            state.preferred_replica = None
        leader = metadata.leader(state.partition)
        if leader is None:
            self._client.request_metadata_update()
            return None
        if state.leader_epoch == UNKNOWN:
            state.leader_epoch = leader.epoch
        return leader.leader_id

    def _start_broker_fetcher(self, node_id: int) -> None:
        broker_fetcher = self._broker_fetchers[node_id] = BrokerFetcher(
            self._client, self._config, node_id, self
        )
        self._supervisor.spawn(broker_fetcher.run, name=f"fetches from broker {node_id}")

    # -- handling responses -----------------------------------------------------------------------

    async def on_response(
        self,
        node_id: int,
        pending: Mapping[TopicPartition, PendingFetch],
        response: FetchResponse,
        rows: Collection[tuple[TopicPartition, PartitionData]],
    ) -> None:
        """Put a response's data into the buffers and handle errors; lets other tasks run."""
        endpoints = {
            n.node_id: Node(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints
        }
        size = 0
        until = self._loop.time() + MAX_SCAN_SECONDS
        for partition, row in rows:
            pending_fetch = pending.get(partition)
            if pending_fetch is None or not pending_fetch.is_current:
                continue
            found = (
                self._completed_fetch(pending_fetch.state, row)
                if row.records and not row.error_code
                else None
            )
            while not (found is None or found.find_batches(BATCHES_PER_TIME_CHECK)):
                if self._loop.time() >= until:
                    await asyncio.sleep(0)
                    until = self._loop.time() + MAX_SCAN_SECONDS
            if not pending_fetch.is_current:
                continue
            if row.error_code:
                self._on_partition_error(pending_fetch.state, row, node_id, endpoints)
            else:
                size += self._on_partition_data(pending_fetch.state, row, found)
        self.fetches += 1
        self.bytes += size
        self.throttle_total += response.throttle_time_ms
        self.throttle_max = max(self.throttle_max, response.throttle_time_ms)
        if size and self._client.hooks.active:
            client_id = self._client.config.client_id
            self._client.hooks.emit(hooks.Fetched(client_id, node_id, len(rows), size))

    def on_error(self, pending: Mapping[TopicPartition, PendingFetch], error: KafkaError) -> None:
        """Raise an error at the next poll, then retry."""
        for pending_fetch in pending.values():
            if pending_fetch.is_current:
                self.fail_partition(pending_fetch.state, error)

    def _completed_fetch(self, state: PartitionState, row: PartitionData) -> CompletedFetch:
        aborted = [
            AbortedRange(each.first_offset, each.producer_id)
            for each in row.aborted_transactions or ()
        ]
        data = memoryview(row.records or b"")
        return CompletedFetch(
            state.partition, data, state.fetch_offset, aborted if self._committed_only else None
        )

    def _on_partition_data(
        self, state: PartitionState, row: PartitionData, found: CompletedFetch | None
    ) -> int:
        state.consecutive_failures = 0
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start_offset = row.log_start_offset
        if row.preferred_read_replica >= 0:
            state.preferred_replica = row.preferred_read_replica
            age = seconds(self._config.metadata_max_age_ms)
            state.preferred_replica_until = self._loop.time() + age
            self.wakeup()
        if found is None:
            return 0
        state.add_fetch(found)
        if found.error is not None:
            state.fetch_state = FetchState.FAILED
        self._enqueue(state)
        return found.size

    def _on_partition_error(
        self, state: PartitionState, row: PartitionData, node_id: int, endpoints: Mapping[int, Node]
    ) -> None:
        error = error_for(
            row.error_code, topic=state.partition.topic, partition=state.partition.partition
        )
        action = fetch_error_action(error)
        if state.preferred_replica == node_id:
            # A follower may lag or be gone: the leader decides (KIP-392).
            state.preferred_replica = None
            if action is FetchErrorAction.RESET_OFFSET:
                self.wakeup()
                return
        if action is FetchErrorAction.RESET_OFFSET and state.buffer:
            self.retry_later(state)  # the records before that offset are returned first
        elif action is FetchErrorAction.RESET_OFFSET:
            self.reset_position(state, error)
        elif action in (FetchErrorAction.RAISE, FetchErrorAction.RAISE_AND_RETRY):
            state.fail(error)
            self._enqueue(state)
        else:
            leader = row.current_leader
            if leader.leader_id >= 0:
                self._client.update_leader(
                    state.partition,
                    leader.leader_id,
                    leader.leader_epoch,
                    endpoints.get(leader.leader_id),
                )
            elif action is FetchErrorAction.REFRESH_METADATA:
                self._client.request_metadata_update()
            self.retry_later(state)

    @property
    def may_reset(self) -> bool:
        """True if auto_offset_reset allows a position to be reset."""
        return self._config.auto_offset_reset in RESET_TIMESTAMPS

    def reset_position(self, state: PartitionState, cause: KafkaError | None) -> None:
        """Reset a position that is out of range or not committed, by auto_offset_reset."""
        timestamp = RESET_TIMESTAMPS.get(self._config.auto_offset_reset)
        if timestamp is not None:
            state.request_reset(
                timestamp, out_of_range=None if cause is None else state.fetch_offset
            )
            self.on_position_needed()
            return
        if cause is None:
            cause = NoOffsetForPartitionError(
                'the group has committed no offset and auto_offset_reset is "none": seek to begin',
                topic=state.partition.topic,
                partition=state.partition.partition,
            )
        self.fail_partition(state, cause)

    def fail_partition(self, state: PartitionState, error: KafkaError) -> None:
        """Raise an error when a poll reaches the partition."""
        state.fail(error)
        self._enqueue(state)

    def retry_later(self, state: PartitionState) -> None:
        """Fetch the partition again after a backoff, which grows with each failure in a row."""
        delay = self._backoff.after(state.consecutive_failures)
        state.consecutive_failures += 1
        state.retry_at = at = self._loop.time() + delay
        self._loop.call_at(at, self._retry, state, at)

    def _retry(self, state: PartitionState, at: float) -> None:
        # uvloop's timers may run up to a millisecond before their time.
        if state.retry_at == at:
            state.retry_at = 0.0
        if self._supervisor.running:
            self.on_position_needed()
            self.wakeup()

    # -- returning records ------------------------------------------------------------------------

    def _enqueue(self, state: PartitionState) -> None:
        if state not in self._queue:
            self._queue.append(state)
        self._decompressor.on_new_batches()
        self._gate.data_ready.set()

    def on_resumed(self, state: PartitionState) -> None:
        """Return the partition's records again."""
        if state.buffer or state.error is not None:
            self._enqueue(state)
        self.wakeup()

    def next_compressed(self) -> BatchView | None:
        """Return the batch that must be decompressed before records are taken; None if none."""
        state = self._next_partition()
        return None if state is None else state.buffer.next_compressed

    def decompression(self) -> Awaitable[object] | None:
        """Return the decompression to wait for before records are taken; None if none.

        Starts to decompress later batches too.
        """
        self._decompressor.start_calls(self.decompressed_bytes)
        state = self._next_partition()
        view = None if state is None else state.buffer.next_compressed
        if state is None or view is None:
            return None
        if view.decompressing and (call := self._decompressor.call_for(view)) is not None:
            return asyncio.wait({call})
        return self._supervisor.offload(_decompress, state, view)

    def _upcoming(self) -> Iterator[Iterator[BatchView]]:
        states = self._subscription.states
        for state in self._queue:
            if not state.paused and states.get(state.partition) is state:
                yield state.buffer.upcoming()

    def take_records(self, limit: int, deadline: float) -> list[AnyRecord]:
        """Take at most `limit` records, of as many partitions as needed, in turn.

        It stops before a batch that is `next_compressed`, so that one call decompresses only one
        such batch; after MAX_DECOMPRESSED_BYTES_PER_POLL; and at the deadline (event loop time).

        Raises:
            KafkaError: The error of the first partition, if it has no record before the error.
        """
        taken: list[AnyRecord] = []
        most = self.decompressed_bytes + MAX_DECOMPRESSED_BYTES_PER_POLL

        def enough() -> bool:
            return (
                self.decompressed_bytes + buffer.decompressed_bytes >= most
                or self._loop.time() >= deadline
            )

        while len(taken) < limit and (state := self._next_partition()):
            buffer = state.buffer
            if taken and (buffer.next_compressed is not None or enough()):
                break
            try:
                records = buffer.take_records(limit - len(taken), enough)
            except KafkaError:
                if taken:
                    break
                self._fail_at_corrupt_record(state)
                raise
            if not self._advance_and_rotate(state, records) and state.error is not None:
                if taken:
                    break
                self._raise_partition_error(state)
            taken = taken + records if taken else records
        return taken

    def take_chunk(
        self, limit: int = RECORDS_PER_CHUNK
    ) -> tuple[PartitionState, list[AnyRecord]] | None:
        """Take records of the next partition's next batch, as many as are parsed at a time."""
        while state := self._next_partition():
            try:
                records = state.buffer.take_chunk(limit)
            except KafkaError:
                self._fail_at_corrupt_record(state)
                raise
            if self._advance_and_rotate(state, records):
                return state, records
            if state.error is not None:
                self._raise_partition_error(state)
        return None

    def take_batches(self) -> list[tuple[PartitionState, list[BatchView], int, int]]:
        """Take all batches by partition, with the first offset to read and the next position."""
        taken: list[tuple[PartitionState, list[BatchView], int, int]] = []
        for _ in range(len(self._queue)):
            state = self._next_partition()
            if state is None:
                break
            try:
                views, start = state.buffer.take_batches()
            except KafkaError:
                if taken:
                    break
                self._fail_at_corrupt_record(state)
                raise
            if views:
                taken.append((state, views, start, state.buffer.position))
            state.advance_position(state.buffer.position, state.fetch_epoch)
            self.unprocessed.add(state)
            self._queue.popleft()
            if state.error is not None and not taken:
                self._raise_partition_error(state)
            if state.buffer or state.error is not None:
                self._queue.append(state)
        if taken:
            self.wakeup()
        return taken

    def put_back(self, state: PartitionState, records: list[AnyRecord]) -> None:
        """Put back records of one batch that were taken but not returned."""
        if records:
            self.records -= len(records)
            state.buffer.put_back(records)
            state.position = state.buffer.position
            if state not in self._queue:
                self._queue.appendleft(state)

    def _next_partition(self) -> PartitionState | None:
        """Return the first partition with records or an error; removes others from the queue."""
        while self._queue:
            state = self._queue[0]
            current = self._subscription.states.get(state.partition) is state
            if current and not state.paused and (state.buffer or state.error is not None):
                return state
            self._queue.popleft()
        return None

    def _advance_and_rotate(self, state: PartitionState, records: list[AnyRecord]) -> bool:
        """Advance the first partition's position and move the partition to the back.

        Returns:
            True if it had records.
        """
        position = state.buffer.position
        if self._last_buffer is not state.buffer:
            if self._last_buffer is not None:
                self._last_buffer.release_batch()
            self._last_buffer = state.buffer
        self.decompressed_bytes += state.buffer.decompressed_bytes
        state.buffer.decompressed_bytes = 0
        if records:
            epoch = records[-1].leader_epoch
            state.advance_position(position, -1 if epoch is None else epoch)
            self.records += len(records)
            self.unprocessed.add(state)
        elif position > state.position:
            state.advance_position(position)
            self.unprocessed.add(state)
        self._queue.popleft()
        if state.buffer or state.error is not None:
            self._queue.append(state)
        if state.buffer.full and self.has_room(state):
            state.buffer.full = False
            self._wakeup_broker_fetcher(state)
        return bool(records)

    def _wakeup_broker_fetcher(self, state: PartitionState) -> None:
        node_id = self._select_node(state, self._client.metadata, self._loop.time())
        broker_fetcher = self._broker_fetchers.get(-1 if node_id is None else node_id)
        if broker_fetcher is not None:
            broker_fetcher.wakeup.set()

    def _fail_at_corrupt_record(self, state: PartitionState) -> None:
        """Fail a partition whose next record cannot be read, until the application seeks."""
        state.fetch_state = FetchState.FAILED
        self._queue.rotate(-1)
        self.wakeup()  # its buffered bytes counted against the other partitions

    def _raise_partition_error(self, state: PartitionState) -> None:
        error = state.error
        assert error is not None
        if fetch_error_action(error) not in (FetchErrorAction.RAISE, FetchErrorAction.RESET_OFFSET):
            state.error = None
            state.fetch_state = (
                FetchState.FETCHING if state.fetch_offset >= 0 else FetchState.INITIALIZING
            )
            self.retry_later(state)
        raise error


def _decompress(state: PartitionState, view: BatchView) -> None:
    """Decompress in a thread; drop the result if the partition was paused meanwhile."""
    view.decompress()
    if state.paused:
        view.discard_decompressed()


def _nothing() -> None:
    pass
