"""Fetches partitions from their brokers into their buffers.

A partition is fetched from its leader, or from the replica that the leader prefers (KIP-392), by
the `BrokerFetcher` of that broker: one request at a time on its own connection, in a fetch session.

While a partition's buffer is full, the broker's other partitions are fetched at most once per
fetch_max_wait_ms, in a request that the broker does not delay: a request that waits for idle
partitions would delay the busy one once it has room again.
"""

from __future__ import annotations

import asyncio
import logging
from math import floor
from typing import TYPE_CHECKING, Final, NamedTuple

from anyio import move_on_after

from kafka_async import hooks
from kafka_async.client.connection.broker_connection import ConnectionKind, is_permanent
from kafka_async.client.metadata.metadata import LeaderHint
from kafka_async.client.wire.framing import FrameSizeError
from kafka_async.client.wire.topic_ids import max_version_for
from kafka_async.config import reset_duration, seconds
from kafka_async.consumer.buffer.completed_fetch import AbortedRange, CompletedFetch
from kafka_async.consumer.fetch.fetch_errors import FetchErrorAction, fetch_error_action
from kafka_async.consumer.fetch.fetch_session import (
    FetchSession,
    PartitionFetch,
    fetch_request,
    response_rows,
)
from kafka_async.consumer.offsets import EARLIEST, LATEST, UNKNOWN, is_read_committed
from kafka_async.consumer.subscription import FetchState, PartitionState, Subscription
from kafka_async.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    IllegalStateError,
    InvalidFetchSessionEpochError,
    KafkaError,
    NoOffsetForPartitionError,
    ProtocolError,
    TopicAuthorizationError,
    error_for,
)
from kafka_async.foundation.fairness import BATCHES_PER_TIME_CHECK, MAX_SCAN_SECONDS
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from kafka_async.client.metadata.metadata import ClusterMetadata
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.protocol.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger("kafka_async.consumer")

RESET_TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST}

# Closing a session is a courtesy to the broker, which drops idle sessions by itself.
_CLOSE_TIMEOUT: Final = 1.0
LARGEST_BATCH: Final = 16 * 1024 * 1024
"""Maximum bytes of a batch that a response may contain beyond fetch_max_bytes."""
# The broker has dropped the session, or has another state of it: only a new one helps.
_SESSION_ERRORS: Final = (
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    FetchSessionTopicIdError,
)


def max_frame_size(config: ConsumerConfig) -> int:
    """Return the maximum size of a fetch response, in bytes.

    A broker adds at most one batch to the bytes requested, so that a consumer makes progress
    (KIP-74). Only the topic's configuration limits that batch: the client accepts LARGEST_BATCH, or
    max_partition_fetch_bytes if that is more. The connection's limit of 100 MiB applies too.
    """
    return config.fetch_max_bytes + max(config.max_partition_fetch_bytes, LARGEST_BATCH)


class PendingFetch(NamedTuple):
    """A partition in a fetch request.

    Its response is dropped if the version or fetch offset of the partition has changed.

    Attributes:
        denied: True if the partition was denied when the request was sent: its success shows that
            the topic can be read again.
    """

    state: PartitionState
    version: int
    offset: int
    denied: bool

    @property
    def is_current(self) -> bool:
        """True if the response still applies."""
        return self.state.version == self.version and self.state.fetch_offset == self.offset


class Fetcher:
    """Fetches a subscription's partitions.

    Attributes:
        fetches: Fetch responses.
        throttle_total: Sum of the responses' throttle times, in milliseconds.
        throttle_max: Longest throttle time of a response, in milliseconds.
        throttle_wait: Seconds for which fetches waited for the end of throttle times.
    """

    def __init__(
        self,
        services: ClientServices,
        supervisor: Supervisor,
        config: ConsumerConfig,
        subscription: Subscription,
        deliver: Callable[[PartitionState], None],
        on_position_needed: Callable[[], None],
    ) -> None:
        # For statistics.
        self.fetches = self.bytes = 0
        self.throttle_total = self.throttle_max = 0
        self.throttle_wait = 0.0
        self._on_position_needed = on_position_needed
        # Parts of the consumer and its client.
        self._services = services
        self._supervisor = supervisor
        self._config = config
        self._subscription = subscription
        self._deliver = deliver
        # Options, and the fetchers, one per broker with partitions to fetch.
        self._committed_only = is_read_committed(config)
        self._preference_lifetime = seconds(config.metadata_max_age_ms)
        self._loop = asyncio.get_running_loop()
        self._broker_fetchers: dict[int, BrokerFetcher] = {}
        self._backoff = services.retry_backoff()

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
        metadata, now = self._services.metadata.snapshot, self._loop.time()
        for state in self._subscription:
            node_id = self._select_node(state, metadata, now)
            # Fetchers are never started ahead: each opens another connection.
            if node_id is not None and node_id not in self._broker_fetchers:
                self._start_broker_fetcher(node_id)
        for broker_fetcher in self._broker_fetchers.values():
            broker_fetcher.wakeup.set()

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Validate positions against new leaders, and fetch from them."""
        for state in self._subscription:
            # A changed leader epoch may mean a truncated log (KIP-320).
            state.maybe_validate_position(metadata.leader_epoch(state.partition))
        self._on_position_needed()
        self.wakeup()

    def partitions_to_fetch(self, node_id: int) -> Sequence[PartitionState]:
        """Return the partitions to fetch from a broker now."""
        # Selected anew for each request, so that nothing must be updated when a partition moves.
        metadata, now = self._services.metadata.snapshot, self._loop.time()
        return [s for s in self._subscription if self._select_node(s, metadata, now) == node_id]

    def remove_if_broker_gone(self, broker_fetcher: BrokerFetcher) -> bool:
        """Remove a fetcher and return True if its broker is gone."""
        if broker_fetcher.node_id in self._services.metadata.snapshot.brokers:
            return False
        del self._broker_fetchers[broker_fetcher.node_id]
        return True

    def pending_fetch(self, state: PartitionState) -> PendingFetch:
        """Return the entry of a partition in a fetch request that is sent now."""
        denied = self._subscription.is_denied_partition(state.partition)
        return PendingFetch(state, state.version, state.fetch_offset, denied)

    def has_room(self, state: PartitionState) -> bool:
        """Return True if more of a partition should be fetched, in time for its next poll."""
        return state.buffer.unread_bytes < self._config.max_partition_fetch_bytes

    def memory_budget(self) -> int:
        """Return the bytes that one broker's partitions may hold: an equal part for each broker."""
        return self._config.fetch_buffer_memory // max(1, len(self._broker_fetchers))

    def _select_node(
        self, state: PartitionState, metadata: ClusterMetadata, now: float
    ) -> int | None:
        """Return the broker to fetch a partition from; None if it cannot be fetched now."""
        # From the cheap conditions that often apply to the rare ones.
        if state.fetch_state is not FetchState.FETCHING or state.held_back or state.retry_at > now:
            return None
        if not state.belongs_to(metadata.topic_id(state.partition.topic)):
            return None  # another topic of this name: `Subscription.replace` follows
        leader = metadata.leader(state.partition)
        # Assignments have no leader epochs: the first leader that is known is the one to fetch
        # from.
        if leader is not None and state.leader_epoch == UNKNOWN:
            state.on_leader_known(leader.epoch)
        if state.preferred_replica is not None:
            replica = state.replica_to_fetch(now, metadata.brokers)
            if replica is not None:
                return replica
            # Called later, since `wakeup` calls this method.
            self._loop.call_soon(self._fetch_from_leaders)
        if leader is None:
            self._services.metadata.request_update()
            return None
        return leader.leader_id

    def _fetch_from_leaders(self) -> None:
        """Wake the fetchers of leaders, which wait if all their partitions were read elsewhere."""
        if self._supervisor.running:
            self.wakeup()

    def _start_broker_fetcher(self, node_id: int) -> None:
        broker_fetcher = self._broker_fetchers[node_id] = BrokerFetcher(
            self._services, self._config, node_id, self
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
        # KIP-951: addresses of leaders in this response that metadata may not have yet.
        endpoints = {
            n.node_id: Node(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints
        }
        size = 0
        # A request that waited for records and got none at all reveals a broker that withholds
        # them.
        without_records = not any(row.records for _, row in rows)
        until = self._loop.time() + MAX_SCAN_SECONDS
        # Each partition is handled alone: a stale row is skipped, an error does not affect the
        # others. Scanning many small batches yields to the event loop, after which the partition
        # may have changed.
        for partition, row in rows:
            pending_fetch = pending.get(partition)
            if pending_fetch is None or not pending_fetch.is_current:
                continue
            if without_records and self._must_have_records(pending_fetch.state, row):
                self.retry_later(pending_fetch.state)  # at once would be a busy loop
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
            # Sought, revoked or paused while this task yielded.
            if not pending_fetch.is_current:
                continue
            if row.error_code:
                self._on_partition_error(pending_fetch.state, row, node_id, endpoints)
            else:
                if pending_fetch.denied:
                    self._subscription.end_denial(partition.topic)
                size += self._on_partition_data(pending_fetch.state, row, found)
        self.fetches += 1
        self.bytes += size
        self.throttle_total += response.throttle_time_ms
        self.throttle_max = max(self.throttle_max, response.throttle_time_ms)
        if size and self._services.hooks.active:
            client_id = self._services.config.client_id
            self._services.hooks.emit(hooks.Fetched(client_id, node_id, len(rows), size))

    def _must_have_records(self, state: PartitionState, row: PartitionData) -> bool:
        """Return True if the broker has records at the offset, and no reason to leave them out.

        Other partitions of the response have none that could have filled it.
        """
        # Transactions in progress hold the last stable offset back.
        end = row.last_stable_offset if self._committed_only else row.high_watermark
        return not row.error_code and row.preferred_read_replica < 0 and end > state.fetch_offset

    def on_missing(self, missing: Iterable[PendingFetch]) -> None:
        """Back off from partitions that a response lacks although it must include them."""
        for pending_fetch in missing:
            if pending_fetch.is_current:
                self.retry_later(pending_fetch.state)

    def on_unreachable(self, node_id: int, pending: Mapping[TopicPartition, PendingFetch]) -> None:
        """Fall back to the leader when a follower does not respond.

        Preferred replicas are ignored for metadata_max_age_ms; otherwise the leader, which still
        counts the follower as in sync, would redirect the consumer to it.
        """
        followed = [p.state for p in pending.values() if p.state.preferred_replica == node_id]
        for state in followed:
            state.prefer_leader(self._loop.time() + self._preference_lifetime)
        if followed:
            self.wakeup()

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
        # None: with read_uncommitted the aborted records are returned too.
        data = memoryview(row.records or b"")
        return CompletedFetch(
            state.partition, data, state.fetch_offset, aborted if self._committed_only else None
        )

    def _on_partition_data(
        self, state: PartitionState, row: PartitionData, found: CompletedFetch | None
    ) -> int:
        state.on_fetch_response(row.high_watermark, row.last_stable_offset)
        replica = row.preferred_read_replica
        if replica in self._services.metadata.snapshot.brokers:
            state.prefer_replica(replica, self._loop.time() + self._preference_lifetime)
            # The other broker's fetcher takes over.
            self.wakeup()
        elif replica >= 0:  # unknown: the leader would redirect to it again
            self._services.metadata.request_update()
            self.retry_later(state)
        if found is None:
            return 0
        state.add_fetch(found)
        self._deliver(state)
        return found.size

    def _on_partition_error(
        self, state: PartitionState, row: PartitionData, node_id: int, endpoints: Mapping[int, Node]
    ) -> None:
        error = error_for(
            row.error_code,
            topic=state.partition.topic,
            partition=state.partition.partition,
            needs="READ",
        )
        action = fetch_error_action(error)
        leader = self._services.metadata.snapshot.leader(state.partition)
        # Only the leader decides whether an offset is out of range.
        from_follower = leader is None or leader.leader_id != node_id
        if state.preferred_replica == node_id:
            from_follower = True
            state.prefer_leader()
        # Four groups: retry without a reset, reset, raise at a poll, or refresh the metadata and
        # retry.
        if action is FetchErrorAction.RESET_OFFSET and from_follower:
            self.retry_later(state)  # the follower may lag: the leader decides (KIP-392)
        elif action is FetchErrorAction.RESET_OFFSET and state.buffer.has_unreturned:
            self.retry_later(state)  # the records before that offset are returned first
        elif action is FetchErrorAction.RESET_OFFSET:
            self.reset_position(state, error)
        elif action in (FetchErrorAction.RAISE, FetchErrorAction.RAISE_AND_RETRY):
            self.fail_partition(state, error)
        else:
            current = row.current_leader
            # KIP-951: the response has the new leader, so no metadata request is needed.
            if current.leader_id >= 0:
                hint = LeaderHint(
                    state.partition,
                    current.leader_id,
                    current.leader_epoch,
                    endpoints.get(current.leader_id),
                    state.topic_id,
                )
                self._services.metadata.update_leaders([hint])
            elif action is FetchErrorAction.REFRESH_METADATA:
                self._services.metadata.request_update()
            self.retry_later(state)

    @property
    def may_reset(self) -> bool:
        """True if auto_offset_reset allows a position to be reset."""
        return self._config.auto_offset_reset != "none"

    def reset_position(self, state: PartitionState, cause: KafkaError | None) -> None:
        """Reset a position that is out of range or not committed, by auto_offset_reset."""
        out_of_range = None if cause is None else state.fetch_offset
        if not self._request_reset(state, out_of_range):
            reason = "the group has committed no offset"
            self.fail_partition(state, cause or _no_offset(state, reason))

    def start_again(self, state: PartitionState) -> None:
        """Start by auto_offset_reset: the topic was deleted and created again."""
        if not self._request_reset(state, None):
            self.fail_partition(state, _no_offset(state, "the topic was deleted and created again"))

    def _request_reset(self, state: PartitionState, out_of_range: int | None) -> bool:
        """Reset a position by auto_offset_reset; return False if it is "none"."""
        timestamp = self._reset_timestamp()
        if timestamp is None:
            return False
        state.request_reset(timestamp, out_of_range=out_of_range)
        self._on_position_needed()
        return True

    def _reset_timestamp(self) -> int | None:
        """Return the timestamp to look a position up by; None if positions are not reset."""
        policy = self._config.auto_offset_reset
        duration = reset_duration(policy)
        if duration is None:
            return RESET_TIMESTAMPS.get(policy)
        # Negative timestamps stand for the ends of a log.
        return floor(max(0.0, self._services.clock.wall() - duration) * 1000)

    def fail_partition(self, state: PartitionState, error: KafkaError) -> None:
        """Raise an error when a poll reaches the partition; a missing permission once per topic."""
        state.end_lookup()
        topic = state.partition.topic
        # Raised before: a topic that may not be read must not hide the records of others.
        if isinstance(error, TopicAuthorizationError) and self._subscription.is_denied(topic):
            self._subscription.deny(topic, error, [state.partition])
            self.retry_later(state)
            return
        state.fail(error)
        self._deliver(state)

    def retry_later(self, state: PartitionState) -> None:
        """Fetch the partition again after a backoff, which grows with each failure in a row."""
        at = self._loop.time() + self._backoff.after(state.consecutive_failures)
        # A timer, since no other event makes the fetcher check the partition again.
        state.back_off(at)
        self._loop.call_at(at, self._retry, state, at)

    def _retry(self, state: PartitionState, at: float) -> None:
        # uvloop's timers may run up to a millisecond before their time.
        state.end_back_off(at)
        if self._supervisor.running:
            self._on_position_needed()
            self.wakeup()

    # -- returned records and errors --------------------------------------------------------------

    def on_taken(self, state: PartitionState) -> None:
        """Fetch more of a partition whose buffer was full and has room now."""
        # Only a partition for which the fetcher waits needs the wakeup.
        if state.buffer.full and self.has_room(state):
            state.buffer.mark_full(full=False)
            node_id = self._select_node(state, self._services.metadata.snapshot, self._loop.time())
            broker_fetcher = self._broker_fetchers.get(-1 if node_id is None else node_id)
            if broker_fetcher is not None:
                broker_fetcher.wakeup.set()

    def on_raised(self, state: PartitionState, error: KafkaError) -> None:
        """Retry after a partition's error was raised, unless it continues after a seek only.

        All partitions that failed with the same request retry, since its error is raised once.
        """
        if isinstance(error, TopicAuthorizationError):
            self.on_denial_raised(state.partition.topic, error)
        # These need the application: a seek, or another configuration.
        if fetch_error_action(error) in (FetchErrorAction.RAISE, FetchErrorAction.RESET_OFFSET):
            return
        # `state` may have been revoked since.
        for each in [state, *self._subscription]:
            if each.error is error:
                self._retry_failed(each)

    def on_denial_raised(self, topic: str, error: KafkaError) -> None:
        """Retry the partitions of a topic without raising its missing permission again."""
        states = self._subscription.states_of(topic)
        failed = [it for it in states if isinstance(it.error, TopicAuthorizationError)]
        self._subscription.deny(topic, error, [it.partition for it in failed or states])
        for state in failed:
            # `on_raised` retries those with this error.
            if state.error is not error:
                self._retry_failed(state)

    def retry_outdated(self) -> None:
        """Retry the partitions that failed because of credentials that were replaced."""
        self._subscription.end_denials()
        for each in self._subscription:
            if self._services.is_outdated(each.error):
                self._retry_failed(each)

    def _retry_failed(self, state: PartitionState) -> None:
        state.on_error_raised()
        self.retry_later(state)


class BrokerFetcher:
    """Fetches from one broker."""

    def __init__(
        self, services: ClientServices, config: ConsumerConfig, node_id: int, fetcher: Fetcher
    ) -> None:
        self.node_id = node_id
        self.wakeup = asyncio.Event()
        """Set when there may be something new to fetch."""
        # Parts of the consumer, and the state of this broker: its session and connection.
        self._services = services
        self._config = config
        self._fetcher = fetcher
        self._session = FetchSession()
        self._connection = services.brokers.connection(
            node_id,
            ConnectionKind.FETCH,
            self,
            max_frame_size=max_frame_size(config),
            fetch_max_wait=seconds(config.fetch_max_wait_ms),
        )
        self._loop = asyncio.get_running_loop()
        # Earliest time of a request while a partition's buffer is full; ids of the topics in the
        # session.
        self._poll_idle_at = 0.0
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._backoff = services.retry_backoff()

    @property
    def in_flight(self) -> int:
        """Fetch requests without a response."""
        return self._connection.in_flight

    async def run(self) -> None:
        """Fetch in a loop."""
        try:
            # Each pass ends with a request, or waits: without a limit if nothing can be fetched,
            # and for up to fetch_max_wait_ms if a full buffer makes long waits at the broker
            # undesirable. The task ends when its broker has left the cluster.
            while True:
                # Cleared before partitions are selected, so that no wakeup in between is lost.
                self.wakeup.clear()
                states = self._fetcher.partitions_to_fetch(self.node_id)
                if not states and self._fetcher.remove_if_broker_gone(self):
                    return
                fetchable = [state for state in states if self._fetcher.has_room(state)]
                buffered = sum(state.buffer.size for state in states)
                memory_budget = self._fetcher.memory_budget()
                left = memory_budget - buffered
                for state in states:
                    # `on_taken` wakes this task for a partition that is marked.
                    state.buffer.mark_full(full=left <= 0 or not self._fetcher.has_room(state))
                full = len(fetchable) < len(states)
                if not fetchable or left <= 0:
                    await self._wait_for_wakeup(None)
                elif full and self._loop.time() < self._poll_idle_at:
                    await self._wait_for_wakeup(self._poll_idle_at - self._loop.time())
                else:
                    # Half of the budget, so that one response is read while the next one arrives.
                    # While a response's parts are copied out of it, memory holds both.
                    await self._fetch(fetchable, min(left, memory_budget // 2), wait=not full)
        finally:
            await self._close_session()

    async def _wait_for_wakeup(self, timeout: float | None) -> None:
        with move_on_after(timeout):
            await self.wakeup.wait()

    async def _fetch(self, states: Sequence[PartitionState], left: int, *, wait: bool) -> None:
        pending = {s.partition: self._fetcher.pending_fetch(s) for s in states}
        timeout = seconds(self._config.request_timeout_ms)
        try:
            # Connecting may take long; partitions that change until the response are dropped by
            # `PendingFetch.is_current`.
            await self._connection.connect(timeout)
            request = self._session.next_request(
                {s.partition: self._partition_fetch(s) for s in states}
            )
            # Kept for the response, which has ids only.
            self._topic_ids = {s.partition: s.topic_id for s in states}
            # All topics of the session: one that names topics cannot be continued with ids.
            ids = (*self._topic_ids.values(), *(f.topic_id for f in request.to_forget))
            version = self._connection.version(
                FetchRequest.API_KEY, max_version_for(FetchRequest.API_KEY, ids)
            )
            waited = self._connection.throttle_wait
            response = await self._connection.send(
                fetch_request(self._config, request, left, wait=wait, rack=self._rack(states)),
                # The broker may use all of fetch_max_wait_ms before it responds.
                timeout=timeout + seconds(self._config.fetch_max_wait_ms),
                version=version,
            )
        except KafkaError as error:
            # The broker may or may not have advanced the session.
            self._session.on_no_response()
            logger.debug("fetching from broker %d: %s", self.node_id, error)
            raised = _error_to_raise(error)
            # A poll raises what waiting does not cure.
            if raised is not None:
                self._fetcher.on_error(pending, raised)
            self._fetcher.on_unreachable(self.node_id, pending)
            self._services.metadata.request_update()
            await asyncio.sleep(self._backoff.next())
            return
        self._fetcher.throttle_wait += self._connection.throttle_wait - waited
        # Idle partitions were checked just now.
        self._poll_idle_at = self._loop.time() + seconds(self._config.fetch_max_wait_ms)
        if response.error_code:
            await self._on_error_response(error_for(response.error_code))
            return
        self._backoff.reset()
        self._session.on_response(response.session_id)
        rows = response_rows(response, self._topic_ids)
        if not response.throttle_time_ms:  # else the broker may leave all partitions out
            missing = request.new - {partition for partition, _ in rows}
            if missing:
                self._session.on_no_response()  # only a full response shows that they are back
                self._fetcher.on_missing([pending[partition] for partition in missing])
        await self._fetcher.on_response(self.node_id, pending, response, rows)

    def _rack(self, states: Sequence[PartitionState]) -> str:
        """Return the rack to send, or "" if a partition must be read from its leader."""
        rack, now = self._config.client_rack, self._loop.time()
        return "" if rack and any(state.leader_until > now for state in states) else rack

    async def _on_error_response(self, error: KafkaError) -> None:
        logger.debug("fetching from broker %d: %s", self.node_id, error)
        # A lost session is no reason to refresh the metadata.
        if isinstance(error, _SESSION_ERRORS):
            self._session.on_session_lost()
        else:
            self._session.on_no_response()
            self._services.metadata.request_update()
        await asyncio.sleep(self._backoff.next())

    def _partition_fetch(self, state: PartitionState) -> PartitionFetch:
        return PartitionFetch(
            state.topic_id,
            state.fetch_offset,
            state.leader_epoch,
            self._config.max_partition_fetch_bytes,
        )

    async def _close_session(self) -> None:
        """Close the session at the broker, without waiting for the response, and the connection.

        A broker that throttles the client does not read the request, and drops the session later.
        """
        request = self._session.closing_request()
        muted = self._connection.muted_until > self._loop.time()
        if request is not None and self._connection.connected and not muted:
            try:
                self._connection.submit(
                    fetch_request(self._config, request, 1, wait=False), timeout=_CLOSE_TIMEOUT
                )
            except KafkaError as error:
                logger.debug("closing a fetch session: %s", error)
        # Shielded: this runs when the task is cancelled.
        with move_on_after(_CLOSE_TIMEOUT, shield=True):
            await self._connection.close()


def _error_to_raise(error: KafkaError) -> KafkaError | None:
    """Return the error to raise, or None if a retry may succeed."""
    cause = error.__cause__
    if isinstance(cause, FrameSizeError) and error.retriable:
        raised = ProtocolError(
            f"{cause}; if a topic has batches as large, raise max_partition_fetch_bytes"
        )
        raised.__cause__ = cause
        return raised
    if isinstance(cause, ProtocolError) and error.retriable:
        return cause  # the broker sent bytes that are not a response
    if isinstance(error, IllegalStateError) or not is_permanent(error):
        return None
    return error


def _no_offset(state: PartitionState, reason: str) -> NoOffsetForPartitionError:
    return NoOffsetForPartitionError(
        f'{reason} and auto_offset_reset is "none": seek to begin',
        topic=state.partition.topic,
        partition=state.partition.partition,
    )
