"""One broker's fetching: a request at a time on a lane of its own, in a fetch session.

While a partition's buffer is full the others of the broker are looked at only now and then: a
request that parks for the idle ones would keep the busy one waiting, once it has room again.
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
from kafka_async.consumer.fetch_session import CLOSE, FetchSession, Round, Wanted
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

_BY_ID: Final = 13
"""The first version of Fetch that names topics by id (KIP-516)."""
_CLOSING_TIME: Final = 1.0
_MIB: Final = 1024 * 1024
MAX_REQUESTED: Final = 99 * _MIB
"""Most bytes that a fetch asks for: its whole response then fits into the largest frame."""
LARGEST_BATCH: Final = 16 * _MIB
"""Bytes of a batch that a response may hold above fetch_max_bytes, whatever the options say."""


def max_frame_size(config: ConsumerConfig) -> int:
    """Return the largest response to a fetch that is accepted, in bytes.

    A broker adds at most one batch to what it is asked for, so that a consumer makes progress
    (KIP-74). Only its topic limits that batch: the client accepts LARGEST_BATCH, or
    max_partition_fetch_bytes where that is more. The lane's limit of 100 MiB applies as well.
    """
    return config.fetch_max_bytes + max(config.max_partition_fetch_bytes, LARGEST_BATCH)


class Asked(NamedTuple):
    """What was asked of a partition; an answer counts only if it still stands there."""

    state: PartitionState
    version: int
    offset: int

    @property
    def stands(self) -> bool:
        """Whether the answer is still wanted."""
        return self.state.version == self.version and self.state.fetch_offset == self.offset


class Answers(Protocol):
    """Who takes what a source has fetched."""

    def share(self, node_id: int) -> Sequence[PartitionState]:
        """The partitions that this broker is to be asked for now."""
        ...

    async def took(
        self,
        node_id: int,
        asked: Mapping[TopicPartition, Asked],
        answer: FetchResponse,
        rows: Collection[tuple[TopicPartition, PartitionData]],
    ) -> None:
        """An answer without an error of its own."""
        ...

    def refused(self, asked: Mapping[TopicPartition, Asked], error: KafkaError) -> None:
        """There is no answer, and asking again will not help before somebody does something."""
        ...

    def has_room(self, state: PartitionState) -> bool:
        """Whether more of a partition is to be fetched."""
        ...

    def retire(self, source: Source) -> bool:
        """Whether a source that has nothing to do may end: its broker is gone."""
        ...

    def budget(self) -> int:
        """Bytes that one broker's partitions may hold."""
        ...


class Source:
    """The fetching task of one broker."""

    def __init__(
        self, client: Client, config: ConsumerConfig, node_id: int, fetcher: Answers
    ) -> None:
        self.node_id = node_id
        self.wanted = asyncio.Event()
        """Set when there may be something new to ask for."""
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
        self._peek_at = 0.0
        self._ids: dict[TopicPartition, UUID] = {}
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        )

    @property
    def in_flight(self) -> int:
        """Fetch requests that have no response yet."""
        return self._connection.in_flight

    async def run(self) -> None:
        """Ask, hand over, ask again."""
        try:
            while True:
                self.wanted.clear()
                states = self._fetcher.share(self.node_id)
                if not states and self._fetcher.retire(self):
                    return
                room = [state for state in states if self._fetcher.has_room(state)]
                held = sum(state.buffer.size for state in states)
                budget = self._fetcher.budget()
                left = budget - held
                for state in states:
                    state.buffer.full = left <= 0 or not self._fetcher.has_room(state)
                full = len(room) < len(states)
                if not room or left <= 0:
                    await self._nap(None)
                elif full and self._loop.time() < self._peek_at:
                    await self._nap(self._peek_at - self._loop.time())
                else:
                    # Of half of it, so that one answer is read while the next one comes. And while
                    # the parts of an answer are copied out of it (see Slice) there are two of it.
                    await self._ask(room, min(left, budget // 2), wait=not full)
        finally:
            await self._close()

    async def _nap(self, timeout: float | None) -> None:
        with move_on_after(timeout):
            await self.wanted.wait()

    async def _ask(self, states: Sequence[PartitionState], left: int, *, wait: bool) -> None:
        asked = {s.partition: Asked(s, s.version, s.fetch_offset) for s in states}
        timeout = seconds(self._config.request_timeout_ms)
        try:
            await self._connection.connect(timeout)
            by_id = self._connection.version(FetchRequest.API_KEY) >= _BY_ID
            this = self._session.next({s.partition: self._wanted(s) for s in states})
            ids = {p: want.topic_id for p, want in this.named.items()}
            self._ids = {p: self._client.metadata.topic_id(p.topic) for p in asked}
            version = None
            if by_id and ZERO_UUID in (*ids.values(), *(f.topic_id for f in this.forgotten)):
                version = _BY_ID - 1
            answer = await self._connection.send(
                self._request(this, left, wait=wait),
                timeout=timeout + seconds(self._config.fetch_max_wait_ms),
                version=version,
            )
        except KafkaError as error:
            self._session.unclear()
            logger.debug("fetching from broker %d: %s", self.node_id, error)
            obstacle = _obstacle(error)
            if obstacle is not None:
                self._fetcher.refused(asked, obstacle)
            self._client.request_metadata_update()
            await asyncio.sleep(self._backoff.next())
            return
        self._peek_at = self._loop.time() + seconds(self._config.fetch_max_wait_ms)
        if answer.error_code:
            await self._refused(error_for(answer.error_code))
            return
        self._backoff.reset()
        self._session.answered(answer.session_id)
        await self._fetcher.took(self.node_id, asked, answer, self._rows(answer))

    async def _refused(self, error: KafkaError) -> None:
        logger.debug("fetching from broker %d: %s", self.node_id, error)
        if isinstance(error, _SESSION_ERRORS):
            self._session.forgotten()
        else:
            self._session.unclear()
            self._client.request_metadata_update()
        await asyncio.sleep(self._backoff.next())

    def _wanted(self, state: PartitionState) -> Wanted:
        return Wanted(
            self._client.metadata.topic_id(state.partition.topic),
            state.fetch_offset,
            state.leader_epoch,
            self._config.max_partition_fetch_bytes,
        )

    def _request(self, this: Round, left: int, *, wait: bool) -> FetchRequest:
        config = self._config
        named: defaultdict[tuple[str, UUID], list[FetchPartition]] = defaultdict(list)
        for (topic, partition), want in this.named.items():
            named[topic, want.topic_id].append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=want.leader_epoch,
                    fetch_offset=want.offset,
                    partition_max_bytes=want.max_bytes,
                )
            )
        gone: defaultdict[tuple[str, UUID], list[int]] = defaultdict(list)
        for (topic, partition), topic_id in this.forgotten:
            gone[topic, topic_id].append(partition)
        return FetchRequest(
            max_wait_ms=int(config.fetch_max_wait_ms) if wait else 0,
            min_bytes=config.fetch_min_bytes if wait else 0,
            max_bytes=min(config.fetch_max_bytes, MAX_REQUESTED, max(left, 1)),
            isolation_level=int(config.isolation_level == "read_committed"),
            session_id=this.session_id,
            session_epoch=this.epoch,
            topics=[
                FetchTopic(topic=topic, topic_id=topic_id, partitions=rows)
                for (topic, topic_id), rows in named.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
                for (topic, topic_id), partitions in gone.items()
            ],
            rack_id=config.client_rack,
        )

    def _rows(self, answer: FetchResponse) -> list[tuple[TopicPartition, PartitionData]]:
        names = {topic_id: partition.topic for partition, topic_id in self._ids.items()}
        rows: list[tuple[TopicPartition, PartitionData]] = []
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is not None:
                rows += [
                    (TopicPartition(name, row.partition_index), row) for row in topic.partitions
                ]
        return rows

    async def _close(self) -> None:
        """Tell the broker that it may forget the session, if that takes no time."""
        this = self._session.close()
        if this is not None and self._connection.connected:
            assert this.epoch == CLOSE
            try:
                self._connection.submit(self._request(this, 1, wait=False), timeout=_CLOSING_TIME)
            except KafkaError as error:
                logger.debug("closing a fetch session: %s", error)
        with move_on_after(_CLOSING_TIME, shield=True):
            await self._connection.close()


_SESSION_ERRORS: Final = (
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    FetchSessionTopicIdError,
)


def _obstacle(error: KafkaError) -> KafkaError | None:
    """Return the error that the application must get: a silent retry would stall for ever."""
    cause = error.__cause__
    if isinstance(cause, FrameSizeError) and error.retriable:
        raised = ProtocolError(
            f"{cause}; if a topic has batches as large, raise max_partition_fetch_bytes"
        )
        raised.__cause__ = cause
        return raised
    if isinstance(cause, ProtocolError) and error.retriable:
        return cause  # bytes that are no response
    if isinstance(error, IllegalStateError) or not is_permanent(error):
        return None
    return error
