"""Fetch sessions (KIP-227): a broker remembers what is fetched, so requests name changes. Pure.

The client opens a session with a full request (epoch 0); the broker answers with an id, or with 0
if it keeps none. Each further request has the next epoch and only the partitions that are new,
moved or no longer wanted. Whenever it is unclear what the broker knows, the next request is a full
one again, which replaces the session.
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


class Wanted(NamedTuple):
    """What is to be fetched of a partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    max_bytes: int


class Forgotten(NamedTuple):
    """A partition that a session is to drop, under the id that it was asked for with."""

    partition: TopicPartition
    topic_id: UUID


class Round(NamedTuple):
    """One request: its session, and what it has to name."""

    session_id: int
    epoch: int
    named: Mapping[TopicPartition, Wanted]
    forgotten: tuple[Forgotten, ...]


class FetchSession:
    """The session of one consumer with one broker. Owned by the source of that broker."""

    def __init__(self) -> None:
        self._id: int = NO_SESSION
        self._epoch: int = FULL
        self._known: dict[TopicPartition, Wanted] = {}

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """What the broker fetches at the last request's epoch."""
        return self._known.keys()

    def next(self, wanted: Mapping[TopicPartition, Wanted]) -> Round:
        """The request that makes the broker fetch just `wanted`."""
        if self._epoch == FULL:
            self._known = dict(wanted)
            return Round(self._id, FULL, self._known, ())
        known = self._known
        named = {
            partition: want for partition, want in wanted.items() if known.get(partition) != want
        }
        forgotten = tuple(
            Forgotten(partition, want.topic_id)
            for partition, want in known.items()
            if partition not in wanted or wanted[partition].topic_id != want.topic_id
        )
        self._known = dict(wanted)
        return Round(self._id, self._epoch, named, forgotten)

    def answered(self, session_id: int) -> None:
        """The broker took the request, and calls the session so."""
        if session_id == NO_SESSION or (self._epoch != FULL and session_id != self._id):
            self._id, self._epoch = session_id, FULL
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def forgotten(self) -> None:
        """The broker does not know the session, or has closed it."""
        self._id, self._epoch = NO_SESSION, FULL

    def unclear(self) -> None:
        """Nobody knows whether the last request was taken: replace the session."""
        self._epoch = FULL

    def close(self) -> Round | None:
        """The request that ends the session; None if there is none."""
        session_id = self._id
        self.forgotten()
        return None if session_id == NO_SESSION else Round(session_id, CLOSE, {}, ())
