"""Fetch requests and sessions (KIP-227): requests contain only what has changed. Pure.

The client opens a session with a full request (epoch 0); the broker responds with a session id, or
or with 0 if it keeps no session. Each further request has the next epoch and contains only
partitions that are new, moved or no longer fetched. When the broker's state is unknown, the next
request is a full one, which replaces the session.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.consumer.offsets import is_read_committed
from kafka_async.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafka_async.config import ConsumerConfig
    from kafka_async.protocol.messages.fetch import FetchResponse, PartitionData

MAX_FETCH_BYTES: Final = 99 * 1024 * 1024
"""Maximum bytes that a fetch requests: the response then fits into the largest frame."""

# Values of the protocol: no session id, and the epochs of a full and of a closing request.
NO_SESSION: Final = 0
FULL: Final = 0
CLOSE: Final = -1
_LAST_EPOCH: Final = 2**31 - 1


class PartitionFetch(NamedTuple):
    """Fetch parameters of a partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class ForgottenPartition(NamedTuple):
    """A partition to remove from a session, with the topic id under which it was requested."""

    partition: TopicPartition
    topic_id: UUID


class SessionRequest(NamedTuple):
    """Content of a fetch request: partitions that are new or have changed, and those to remove.

    The response must include those that are `new` to the session; others only if they have changed.
    """

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, PartitionFetch]
    to_forget: tuple[ForgottenPartition, ...]
    new: frozenset[TopicPartition]


class FetchSession:
    """State of the fetch session with one broker. Owned by the broker's `BrokerFetcher`."""

    def __init__(self) -> None:
        # `_sent` mirrors what the broker has in the session, so that only differences are sent.
        self._id: int = NO_SESSION
        self._epoch: int = FULL
        self._sent: dict[TopicPartition, PartitionFetch] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the next request: 0 opens a session."""
        return self._epoch

    def next_request(self, wanted: Mapping[TopicPartition, PartitionFetch]) -> SessionRequest:
        """Return the request that makes the broker fetch exactly `wanted`."""
        # The full request includes the old session id, so that the broker frees it at once.
        if self._epoch == FULL:
            self._sent = dict(wanted)
            return SessionRequest(self._id, FULL, self._sent, (), frozenset(wanted))
        sent = self._sent
        to_send = {
            partition: fetch for partition, fetch in wanted.items() if sent.get(partition) != fetch
        }
        to_forget = tuple(
            ForgottenPartition(partition, fetch.topic_id)
            for partition, fetch in sent.items()
            # A topic that was created again has the same name and another id: forget the old, add
            # the new.
            if partition not in wanted or wanted[partition].topic_id != fetch.topic_id
        )
        kept = sent.keys() - {each.partition for each in to_forget}
        new = frozenset(to_send.keys() - kept)
        self._sent = dict(wanted)
        return SessionRequest(self._id, self._epoch, to_send, to_forget, new)

    def on_response(self, session_id: int) -> None:
        """Record a successful response with this session id."""
        # The broker keeps no session, or not this one: each request is a full one until it does.
        if session_id == NO_SESSION or (self._epoch != FULL and session_id != self._id):
            self._id, self._epoch = session_id, FULL
        else:
            self._id = session_id
            # Epoch 0 would open a session, so the numbers start again at 1.
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def on_session_lost(self) -> None:
        """Start a new session: the broker does not know this one."""
        self._id, self._epoch = NO_SESSION, FULL

    def on_no_response(self) -> None:
        """Replace the session: the broker may or may not have handled the last request."""
        # The id stays: the full request replaces the session under it.
        self._epoch = FULL

    def closing_request(self) -> SessionRequest | None:
        """Return the request that closes the session, or None."""
        session_id = self._id
        self.on_session_lost()
        return (
            None
            if session_id == NO_SESSION
            else SessionRequest(session_id, CLOSE, {}, (), frozenset())
        )


def fetch_request(
    config: ConsumerConfig, request: SessionRequest, max_bytes: int, *, wait: bool, rack: str = ""
) -> FetchRequest:
    """Return the message; with `wait` the broker may wait for records.

    A leader may redirect a consumer in a `rack` to a closer replica (KIP-392).
    """
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
        # Without waiting the broker responds at once.
        max_wait_ms=config.fetch_max_wait_ms if wait else 0,
        min_bytes=config.fetch_min_bytes if wait else 0,
        max_bytes=min(config.fetch_max_bytes, MAX_FETCH_BYTES, max(max_bytes, 1)),
        isolation_level=int(is_read_committed(config)),
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
        rack_id=rack,
    )


def response_rows(
    response: FetchResponse, topic_ids: Mapping[TopicPartition, UUID]
) -> list[tuple[TopicPartition, PartitionData]]:
    """Return the partitions of a response; new versions have topic ids in place of names."""
    names = {topic_id: partition.topic for partition, topic_id in topic_ids.items()}
    rows: list[tuple[TopicPartition, PartitionData]] = []
    for topic in response.responses:
        # A topic that was not requested is ignored.
        name = topic.topic or names.get(topic.topic_id)
        if name is not None:
            rows += [(TopicPartition(name, row.partition_index), row) for row in topic.partitions]
    return rows
