"""Fetch sessions of a broker, for incremental fetches (KIP-227). Pure.

A fetch without a session uses a session with id 0, which is not cached.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from kafka_async.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)

if TYPE_CHECKING:
    from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_FETCH_SESSIONS: Final = 1_000
"""Maximum fetch sessions in a broker's cache; a new session replaces the oldest."""

TOPIC_ID_MIN_VERSION: Final = 13
_MAX_EPOCH: Final = 2**31 - 1

Key: TypeAlias = tuple[str, UUID, int]


@dataclass(slots=True)
class CachedPartition:
    """Holds the last request and the last response of a partition in a session."""

    topic: str
    topic_id: UUID
    requested: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    failed: bool = False

    @property
    def key(self) -> Key:
        """The key of the partition in its session."""
        return self.topic, self.topic_id, self.requested.partition

    def update_response_state(self, response: PartitionData) -> bool:
        """Store a response; return True if it differs from the previous one."""
        failed = bool(response.error_code)
        changed = (
            failed
            or self.failed
            or bool(response.records)
            or response.high_watermark != self.high_watermark
            or response.log_start_offset != self.log_start_offset
            or response.diverging_epoch.epoch >= 0
            or response.preferred_read_replica >= 0
        )
        self.failed = failed
        self.high_watermark = response.high_watermark
        self.log_start_offset = response.log_start_offset
        return changed


@dataclass(slots=True)
class FetchSession:
    """Holds the partitions of one consumer, in the order in which they are read."""

    id: int
    uses_topic_ids: bool
    epoch: int = INITIAL_EPOCH
    entries: dict[Key, CachedPartition] = field(default_factory=dict[Key, CachedPartition])

    @property
    def incremental(self) -> bool:
        """True if responses contain only changed partitions; the first response contains all."""
        return self.id != NO_SESSION_ID and self.epoch > INITIAL_EPOCH

    def update(self, request: FetchRequest) -> None:
        """Add, change and remove partitions as a request lists them."""
        for topic in request.topics:
            for requested in topic.partitions:
                entry = CachedPartition(topic.topic, topic.topic_id, requested)
                existing = self.entries.setdefault(entry.key, entry)
                existing.requested = requested
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.entries.pop((forgotten.topic, forgotten.topic_id, index), None)

    def should_send(self, entry: CachedPartition, response: PartitionData) -> bool:
        """Return True if a partition's response must be sent.

        A partition that returned records moves to the end, so that no partition starves.
        """
        changed = entry.update_response_state(response)
        if response.records:
            self.entries[entry.key] = self.entries.pop(entry.key)
        return changed or not self.incremental


class FetchSessionCache:
    """Caches the fetch sessions of one broker."""

    def __init__(self) -> None:
        self._sessions: dict[int, FetchSession] = {}
        self._ids = itertools.count(1)

    def session_for(self, request: FetchRequest, version: int) -> FetchSession:
        """Return the session of a request, with the request's changes applied."""
        uses_topic_ids = version >= TOPIC_ID_MIN_VERSION
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = FetchSession(NO_SESSION_ID, uses_topic_ids)
            session.update(request)
            if request.session_epoch == INITIAL_EPOCH and session.entries:
                self._add(session)
            return session
        found = self._sessions.get(request.session_id)
        if found is None:
            raise FetchSessionIdNotFoundError(f"there is no fetch session {request.session_id}")
        if found.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError("a fetch session uses either topic ids or topic names")
        expected = found.epoch % _MAX_EPOCH + 1
        if request.session_epoch != expected:
            raise InvalidFetchSessionEpochError(
                f"session {found.id} expects epoch {expected}, not {request.session_epoch}"
            )
        found.epoch = expected
        found.update(request)
        return found

    def _add(self, session: FetchSession) -> None:
        session.id = next(self._ids)
        self._sessions[session.id] = session
        if len(self._sessions) > MAX_FETCH_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
