"""Incremental fetches (KIP-227): what a broker remembers of a consumer's partitions. Pure.

A fetch without a session is a session with id 0 that nobody remembers.
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

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SLOTS: Final = 1_000
"""Sessions that a broker keeps; the oldest makes room."""

TOPIC_IDS_SINCE: Final = 13
_EPOCHS: Final = 2**31 - 1

Key: TypeAlias = tuple[str, UUID, int]


@dataclass(slots=True)
class FetchEntry:
    """A partition that is fetched: what was asked last, and what was answered last."""

    topic: str
    topic_id: UUID
    asked: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    failed: bool = False

    @property
    def key(self) -> Key:
        """What identifies the partition in its session."""
        return self.topic, self.topic_id, self.asked.partition

    def note(self, answer: PartitionData) -> bool:
        """Remember an answer; whether it says anything that the last one did not."""
        failed = bool(answer.error_code)
        news = (
            failed
            or self.failed
            or bool(answer.records)
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
            or answer.diverging_epoch.epoch >= 0
        )
        self.failed = failed
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return news


@dataclass(slots=True)
class FetchSession:
    """The partitions of one consumer, in the order in which they are read."""

    id: int
    by_id: bool
    epoch: int = INITIAL_EPOCH
    entries: dict[Key, FetchEntry] = field(default_factory=dict[Key, FetchEntry])

    @property
    def incremental(self) -> bool:
        """Whether only news are answered; the first answer of a session is complete."""
        return self.id != NO_SESSION and self.epoch > INITIAL_EPOCH

    def update(self, request: FetchRequest) -> None:
        """Add and change what a request lists, forget what it says to forget."""
        for topic in request.topics:
            for asked in topic.partitions:
                entry = FetchEntry(topic.topic, topic.topic_id, asked)
                known = self.entries.setdefault(entry.key, entry)
                known.asked = asked
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self.entries.pop((forgotten.topic, forgotten.topic_id, index), None)

    def answered(self, entry: FetchEntry, answer: PartitionData) -> bool:
        """Whether an answer is to be sent; a partition that gave records is read last next time."""
        news = entry.note(answer)
        if answer.records:
            self.entries[entry.key] = self.entries.pop(entry.key)
        return news or not self.incremental


class FetchSessions:
    """The sessions of one broker."""

    def __init__(self) -> None:
        self._sessions: dict[int, FetchSession] = {}
        self._ids = itertools.count(1)

    def begin(self, request: FetchRequest, version: int) -> FetchSession:
        """The session of a request, its partitions brought up to date.

        Raises FetchSessionIdNotFoundError, InvalidFetchSessionEpochError and
        FetchSessionTopicIdError.
        """
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = FetchSession(NO_SESSION, by_id)
            session.update(request)
            if request.session_epoch == INITIAL_EPOCH and session.entries:
                self._keep(session)
            return session
        found = self._sessions.get(request.session_id)
        if found is None:
            raise FetchSessionIdNotFoundError(f"there is no fetch session {request.session_id}")
        if found.by_id != by_id:
            raise FetchSessionTopicIdError("a session names its topics always or never by id")
        expected = found.epoch % _EPOCHS + 1
        if request.session_epoch != expected:
            raise InvalidFetchSessionEpochError(
                f"session {found.id} expects epoch {expected}, not {request.session_epoch}"
            )
        found.epoch = expected
        found.update(request)
        return found

    def _keep(self, session: FetchSession) -> None:
        session.id = next(self._ids)
        self._sessions[session.id] = session
        if len(self._sessions) > SLOTS:
            del self._sessions[next(iter(self._sessions))]
