"""Share sessions of a broker, one per fetching member of a share group (KIP-932). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from kafka_async.errors import (
    InvalidRequestError,
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1

SessionKey: TypeAlias = tuple[str, str]
"""Group id and member id."""
TopicIdPartition: TypeAlias = tuple[UUID, int]


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request of a session."""
    return epoch % _MAX_EPOCH + 1


@dataclass(slots=True)
class ShareSession:
    """Holds the partitions that a member fetches, in the order in which they are read.

    `partitions` map to True if the next response must contain them even without a change.
    `connection` is the member's connection.
    """

    key: SessionKey
    connection: object
    epoch: int = INITIAL_EPOCH
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict[TopicIdPartition, bool])

    @property
    def incremental(self) -> bool:
        """True if responses contain only changed partitions; the first response contains all."""
        return self.epoch > next_epoch(INITIAL_EPOCH)

    def update(
        self, fetched: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and remove partitions as a request lists them."""
        for partition in fetched:
            self.partitions.setdefault(partition, self.incremental)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def should_send(self, partition: TopicIdPartition, *, has_records: bool, failed: bool) -> bool:
        """Return True if a partition's response must be sent.

        A partition that returned records moves to the end, so that no partition starves.
        """
        if not self.incremental or partition not in self.partitions:
            return True
        required = self.partitions[partition]
        if has_records:
            del self.partitions[partition]
        self.partitions[partition] = failed
        return has_records or failed or required


class ShareSessionCache:
    """Caches the share sessions of one broker, at most `max_sessions`."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._keys_by_connection: dict[int, SessionKey] = {}

    def get(self, key: SessionKey) -> ShareSession:
        """Return a session; raises ShareSessionNotFoundError."""
        found = self._sessions.get(key)
        if found is None:
            raise ShareSessionNotFoundError("The share session was not found.")
        return found

    def session_for(
        self,
        key: SessionKey,
        epoch: int,
        partitions: tuple[Iterable[TopicIdPartition], Iterable[TopicIdPartition]],
        connection: object,
        *,
        acknowledges: bool,
    ) -> ShareSession:
        """Return the session of a ShareFetch request, with the request's changes applied.

        `partitions` are the partitions to fetch and to forget. The last request of a session has
        `FINAL_EPOCH`.
        """
        if epoch == FINAL_EPOCH:
            return self.get(key)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise InvalidRequestError("The first request of a session acknowledges nothing.")
            self._sessions.pop(key, None)
            if len(self._sessions) >= self._max_sessions:
                raise ShareSessionLimitReachedError("The limit of share sessions has been reached.")
            session = self._sessions[key] = ShareSession(key, connection)
            self._keys_by_connection[id(connection)] = key
        else:
            session = self._checked(key, epoch)
        session.epoch = next_epoch(session.epoch)
        session.update(*partitions)
        return session

    def update_for_acknowledge(self, key: SessionKey, epoch: int) -> None:
        """Begin the next epoch of a session with a ShareAcknowledge request."""
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpochError("The first epoch belongs to ShareFetch.")
        if epoch == FINAL_EPOCH:
            self.get(key)
        else:
            session = self._checked(key, epoch)
            session.epoch = next_epoch(session.epoch)

    def remove(self, key: SessionKey) -> ShareSession | None:
        """Remove and return a session."""
        return self._sessions.pop(key, None)

    def remove_connection(self, connection: object) -> tuple[str | None, ShareSession | None]:
        """Remove a closed connection's session; return its group and the session, if any."""
        key = self._keys_by_connection.pop(id(connection), None)
        if key is None:
            return None, None
        session = self._sessions.get(key)
        if session is None or session.connection is not connection:
            return key[0], None
        return key[0], self.remove(key)

    def has_group(self, group_id: str) -> bool:
        """Return True if a member of a group has a session."""
        return any(key[0] == group_id for key in self._sessions)

    def _checked(self, key: SessionKey, epoch: int) -> ShareSession:
        session = self.get(key)
        if session.epoch != epoch:
            raise InvalidShareSessionEpochError(
                f"The session expects epoch {session.epoch}, not {epoch}."
            )
        return session
