"""Fetch sessions (KIP-227): requests name only the partitions that have changed. Pure.

The client opens a session with a full request (epoch 0); the broker responds with a session id, or
with 0 if it keeps no session. Each further request has the next epoch and names only partitions
that are new, moved or no longer fetched. When the broker's state is unknown, the next request is a
full one, which replaces the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from kafka_async.types import TopicPartition

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
    """Content of one fetch request.

    Attributes:
        to_send: Partitions that are new or have changed.
        to_forget: Partitions to remove from the session.
    """

    session_id: int
    epoch: int
    to_send: Mapping[TopicPartition, PartitionFetch]
    to_forget: tuple[ForgottenPartition, ...]


class FetchSession:
    """State of the fetch session with one broker. Owned by the broker's `BrokerFetcher`."""

    def __init__(self) -> None:
        self._id: int = NO_SESSION
        self._epoch: int = FULL
        self._sent: dict[TopicPartition, PartitionFetch] = {}

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """Partitions in the session as of the last request."""
        return self._sent.keys()

    def next_request(self, wanted: Mapping[TopicPartition, PartitionFetch]) -> SessionRequest:
        """Return the request that makes the broker fetch exactly `wanted`."""
        if self._epoch == FULL:
            self._sent = dict(wanted)
            return SessionRequest(self._id, FULL, self._sent, ())
        sent = self._sent
        to_send = {
            partition: fetch for partition, fetch in wanted.items() if sent.get(partition) != fetch
        }
        to_forget = tuple(
            ForgottenPartition(partition, fetch.topic_id)
            for partition, fetch in sent.items()
            if partition not in wanted or wanted[partition].topic_id != fetch.topic_id
        )
        self._sent = dict(wanted)
        return SessionRequest(self._id, self._epoch, to_send, to_forget)

    def on_response(self, session_id: int) -> None:
        """Record a successful response with this session id."""
        if session_id == NO_SESSION or (self._epoch != FULL and session_id != self._id):
            self._id, self._epoch = session_id, FULL
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def on_session_lost(self) -> None:
        """Start a new session: the broker does not know this one."""
        self._id, self._epoch = NO_SESSION, FULL

    def on_no_response(self) -> None:
        """Replace the session: the broker may or may not have handled the last request."""
        self._epoch = FULL

    def close(self) -> SessionRequest | None:
        """Return the request that closes the session; None without a session."""
        session_id = self._id
        self.on_session_lost()
        return None if session_id == NO_SESSION else SessionRequest(session_id, CLOSE, {}, ())
