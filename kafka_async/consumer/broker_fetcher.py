"""Fetches from one broker: one request at a time on its own connection, in a fetch session.

While a partition's buffer is full, the broker's other partitions are fetched at most once per
fetch_max_wait_ms, in a request that the broker does not delay: a request that waits for idle
partitions would delay the busy one once it has room again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from anyio import move_on_after

from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_connection import ConnectionKind, is_permanent
from kafka_async.cluster.framing import FrameSizeError
from kafka_async.config import seconds
from kafka_async.consumer.fetch_session import CLOSE, FetchSession, PartitionFetch, SessionRequest
from kafka_async.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    IllegalStateError,
    InvalidFetchSessionEpochError,
    KafkaError,
    ProtocolError,
    error_for,
)
from kafka_async.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kafka_async.protocol.wire import ZERO_UUID
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from kafka_async.cluster.client import Client
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.subscription import PartitionState

logger = logging.getLogger("kafka_async.consumer")

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
"""First version of Fetch that names topics by id (KIP-516)."""
_CLOSE_TIMEOUT: Final = 1.0
_MIB: Final = 1024 * 1024
MAX_FETCH_BYTES: Final = 99 * _MIB
"""Maximum bytes that a fetch requests: the response then fits into the largest frame."""
LARGEST_BATCH: Final = 16 * _MIB
"""Bytes of a batch that a response may hold above fetch_max_bytes, whatever the options are."""


def max_frame_size(config: ConsumerConfig) -> int:
    """Return the maximum size of a fetch response, in bytes.

    To let a consumer make progress, a broker adds one batch at most to the bytes requested
    (KIP-74). Only the topic's configuration limits that batch: the client accepts LARGEST_BATCH, or
    max_partition_fetch_bytes if that is more. The connection's limit of 100 MiB applies as well.
    """
    return config.fetch_max_bytes + max(config.max_partition_fetch_bytes, LARGEST_BATCH)


class PendingFetch(NamedTuple):
    """A partition in a fetch request.

    Its response is dropped if the partition's version or fetch offset has changed.
    """

    state: PartitionState
    version: int
    offset: int

    @property
    def is_current(self) -> bool:
        """True if the response is still wanted."""
        return self.state.version == self.version and self.state.fetch_offset == self.offset


class FetchResponseHandler(Protocol):
    """Selects partitions to fetch and handles the responses."""

    def partitions_to_fetch(self, node_id: int) -> Sequence[PartitionState]:
        """Return the partitions to fetch from this broker now."""
        ...

    async def on_response(
        self,
        node_id: int,
        pending: Mapping[TopicPartition, PendingFetch],
        response: FetchResponse,
        rows: Collection[tuple[TopicPartition, PartitionData]],
    ) -> None:
        """Handle a response without a top-level error."""
        ...

    def on_error(self, pending: Mapping[TopicPartition, PendingFetch], error: KafkaError) -> None:
        """Handle a request that failed with an error that a retry cannot resolve."""
        ...

    def has_room(self, state: PartitionState) -> bool:
        """Return whether more of a partition is to be fetched."""
        ...

    def remove_if_broker_gone(self, broker_fetcher: BrokerFetcher) -> bool:
        """Remove an idle fetcher and return True if its broker is gone."""
        ...

    def memory_budget(self) -> int:
        """Return the bytes that one broker's partitions may hold."""
        ...


class BrokerFetcher:
    """Fetches from one broker."""

    def __init__(
        self, client: Client, config: ConsumerConfig, node_id: int, fetcher: FetchResponseHandler
    ) -> None:
        self.node_id = node_id
        self.wakeup = asyncio.Event()
        """Set when there may be something new to fetch."""
        self._client = client
        self._config = config
        self._fetcher = fetcher
        self._session = FetchSession()
        self._connection = client.connection(
            node_id,
            ConnectionKind.FETCH,
            self,
            max_frame_size=max_frame_size(config),
            fetch_max_wait=seconds(config.fetch_max_wait_ms),
        )
        self._loop = asyncio.get_running_loop()
        self._poll_idle_at = 0.0
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        )

    @property
    def in_flight(self) -> int:
        """Fetch requests without a response."""
        return self._connection.in_flight

    async def run(self) -> None:
        """Fetch in a loop."""
        try:
            while True:
                self.wakeup.clear()
                states = self._fetcher.partitions_to_fetch(self.node_id)
                if not states and self._fetcher.remove_if_broker_gone(self):
                    return
                fetchable = [state for state in states if self._fetcher.has_room(state)]
                buffered = sum(state.buffer.size for state in states)
                memory_budget = self._fetcher.memory_budget()
                left = memory_budget - buffered
                for state in states:
                    state.buffer.full = left <= 0 or not self._fetcher.has_room(state)
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
            await self._close()

    async def _wait_for_wakeup(self, timeout: float | None) -> None:
        with move_on_after(timeout):
            await self.wakeup.wait()

    async def _fetch(self, states: Sequence[PartitionState], left: int, *, wait: bool) -> None:
        pending = {s.partition: PendingFetch(s, s.version, s.fetch_offset) for s in states}
        timeout = seconds(self._config.request_timeout_ms)
        try:
            await self._connection.connect(timeout)
            by_id = self._connection.version(FetchRequest.API_KEY) >= _FIRST_VERSION_WITH_TOPIC_IDS
            request = self._session.next_request(
                {s.partition: self._partition_fetch(s) for s in states}
            )
            ids = {p: fetch.topic_id for p, fetch in request.to_send.items()}
            self._topic_ids = {p: self._client.metadata.topic_id(p.topic) for p in pending}
            version = None
            if by_id and ZERO_UUID in (*ids.values(), *(f.topic_id for f in request.to_forget)):
                version = _FIRST_VERSION_WITH_TOPIC_IDS - 1
            response = await self._connection.send(
                self._fetch_request(request, left, wait=wait),
                timeout=timeout + seconds(self._config.fetch_max_wait_ms),
                version=version,
            )
        except KafkaError as error:
            self._session.on_no_response()
            logger.debug("fetching from broker %d: %s", self.node_id, error)
            raised = _error_to_raise(error)
            if raised is not None:
                self._fetcher.on_error(pending, raised)
            self._client.request_metadata_update()
            await asyncio.sleep(self._backoff.next())
            return
        self._poll_idle_at = self._loop.time() + seconds(self._config.fetch_max_wait_ms)
        if response.error_code:
            await self._on_error_response(error_for(response.error_code))
            return
        self._backoff.reset()
        self._session.on_response(response.session_id)
        await self._fetcher.on_response(
            self.node_id, pending, response, self._partition_rows(response)
        )

    async def _on_error_response(self, error: KafkaError) -> None:
        logger.debug("fetching from broker %d: %s", self.node_id, error)
        if isinstance(error, _SESSION_ERRORS):
            self._session.on_session_lost()
        else:
            self._session.on_no_response()
            self._client.request_metadata_update()
        await asyncio.sleep(self._backoff.next())

    def _partition_fetch(self, state: PartitionState) -> PartitionFetch:
        return PartitionFetch(
            self._client.metadata.topic_id(state.partition.topic),
            state.fetch_offset,
            state.leader_epoch,
            self._config.max_partition_fetch_bytes,
        )

    def _fetch_request(self, request: SessionRequest, left: int, *, wait: bool) -> FetchRequest:
        config = self._config
        to_send: defaultdict[tuple[str, UUID], list[FetchPartition]] = defaultdict(list)
        for (topic, partition), fetch in request.to_send.items():
            to_send[topic, fetch.topic_id].append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    partition_max_bytes=fetch.max_bytes,
                )
            )
        to_forget: defaultdict[tuple[str, UUID], list[int]] = defaultdict(list)
        for (topic, partition), topic_id in request.to_forget:
            to_forget[topic, topic_id].append(partition)
        return FetchRequest(
            max_wait_ms=int(config.fetch_max_wait_ms) if wait else 0,
            min_bytes=config.fetch_min_bytes if wait else 0,
            max_bytes=min(config.fetch_max_bytes, MAX_FETCH_BYTES, max(left, 1)),
            isolation_level=int(config.isolation_level == "read_committed"),
            session_id=request.session_id,
            session_epoch=request.epoch,
            topics=[
                FetchTopic(topic=topic, topic_id=topic_id, partitions=rows)
                for (topic, topic_id), rows in to_send.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in to_forget.items()
            ],
            rack_id=config.client_rack,
        )

    def _partition_rows(
        self, response: FetchResponse
    ) -> list[tuple[TopicPartition, PartitionData]]:
        names = {topic_id: partition.topic for partition, topic_id in self._topic_ids.items()}
        rows: list[tuple[TopicPartition, PartitionData]] = []
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is not None:
                rows += [
                    (TopicPartition(name, row.partition_index), row) for row in topic.partitions
                ]
        return rows

    async def _close(self) -> None:
        """Close the session at the broker, without waiting for the response, and the connection."""
        request = self._session.close()
        if request is not None and self._connection.connected:
            assert request.epoch == CLOSE
            try:
                self._connection.submit(
                    self._fetch_request(request, 1, wait=False), timeout=_CLOSE_TIMEOUT
                )
            except KafkaError as error:
                logger.debug("closing a fetch session: %s", error)
        with move_on_after(_CLOSE_TIMEOUT, shield=True):
            await self._connection.close()


_SESSION_ERRORS: Final = (
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    FetchSessionTopicIdError,
)


def _error_to_raise(error: KafkaError) -> KafkaError | None:
    """Return the error to raise; None if a retry may succeed."""
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
