"""Warnings and errors for topics and partitions that do not exist. Pure.

A topic may be created shortly after it is subscribed to, and starting brokers do not have all
topics yet. So the first warning follows after FIRST_WARNING_DELAY, and the interval then doubles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.errors import (
    InvalidTopicError,
    KafkaError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafka_async.client.metadata.metadata import ClusterMetadata

FIRST_WARNING_DELAY: Final = 3.0
"""Seconds until the first warning."""
MAX_WARNING_INTERVAL: Final = 60.0
"""Maximum seconds between two warnings."""

Item = str | TopicPartition


def _find_missing(
    topics: Iterable[str], partitions: Iterable[TopicPartition], metadata: ClusterMetadata
) -> dict[Item, str]:
    """Return the topics and partitions that brokers report as unknown, each with the reason."""
    found: dict[Item, str] = {}
    for topic in topics:
        if metadata.topic(topic) is None and _is_missing(metadata, topic):
            found[topic] = f"subscribed topic {topic!r} does not exist"
    for partition in partitions:
        count = metadata.partitions(partition.topic)
        if count is not None and partition.partition >= count:
            found[partition] = (
                f"assigned partition {partition} does not exist: the topic has {count} partitions"
            )
        elif count is None and _is_missing(metadata, partition.topic):
            found[partition] = (
                f"assigned partition {partition} does not exist: there is no such topic"
            )
    return found


def _find_unauthorized(topics: Iterable[str], metadata: ClusterMetadata) -> dict[str, KafkaError]:
    """Return the topics that the principal may not read, each with the brokers' error."""
    errors = {topic: metadata.error(topic) for topic in topics}
    return {t: error for t, error in errors.items() if isinstance(error, TopicAuthorizationError)}


def _is_missing(metadata: ClusterMetadata, topic: str) -> bool:
    error = metadata.error(topic)
    return isinstance(error, UnknownTopicOrPartitionError | InvalidTopicError)


@dataclass(slots=True)
class _MissingItem:
    """Times of a missing topic or partition, in seconds."""

    start: float
    warn_at: float
    pause: float = FIRST_WARNING_DELAY

    def is_warning_due(self, now: float) -> bool:
        """Return True to warn now; the next warning is due after twice the pause."""
        if self.warn_at > now:
            return False
        self.pause = min(2 * self.pause, MAX_WARNING_INTERVAL)
        self.warn_at = now + self.pause
        return True


class MissingTopics:
    """Decides when to warn of missing topics and partitions, and when to raise an error.

    Args:
        creates: True if the consumer may create topics; then there are only warnings.
        limit: Seconds until missing topics are an error, unless `creates`.
        is_denied: Returns True if a poll has raised the topic's missing permission, which is still
            missing.
    """

    def __init__(self, *, creates: bool, limit: float, is_denied: Callable[[str], bool]) -> None:
        self._is_denied = is_denied
        # None: a topic that may still be created is not an error.
        self._limit = None if creates else limit
        # All that is missing now, with times and reasons, and what an error was already raised for.
        self._items: dict[Item, _MissingItem] = {}
        self._reasons: Mapping[Item, str] = {}
        self._raised: set[Item] = set()
        self._unauthorized: frozenset[str] = frozenset()
        # The error of the next poll.
        self._error: KafkaError | None = None

    @property
    def current_error(self) -> KafkaError | None:
        """One error for all that is missing now, or None."""
        if not self._reasons:
            return None
        return UnknownTopicOrPartitionError("; ".join(self._reasons.values()))

    @property
    def has_new_error(self) -> bool:
        """True if `take_error` returns an error."""
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Return an error that was not returned before, or None."""
        error, self._error = self._error, None
        # A poll has raised it for a fetch in the meantime.
        if isinstance(error, TopicAuthorizationError) and self._is_denied(error.topic or ""):
            return None
        return error

    def update(
        self,
        topics: Collection[str],
        partitions: Collection[TopicPartition],
        metadata: ClusterMetadata,
        now: float,
    ) -> list[str]:
        """Check what a consumer reads, and return the warnings that are due."""
        self._reasons = reasons = _find_missing(topics, partitions, metadata)
        self._items = {
            item: self._items.get(item) or _MissingItem(now, now + FIRST_WARNING_DELAY)
            for item in reasons
        }
        # What exists again may be missing, and raised, another time.
        self._raised &= reasons.keys()
        unauthorized = _find_unauthorized({*topics, *(p.topic for p in partitions)}, metadata)
        # The error has become void before a poll could raise it.
        if not reasons and not unauthorized:
            self._error = None
        self._error = (
            self._new_authorization_error(unauthorized) or self._overdue_error(now) or self._error
        )
        return [
            f"{reasons[item]} (for {now - state.start:.0f} s){self._advice(item)}"
            for item, state in self._items.items()
            if state.is_warning_due(now)
        ]

    def _new_authorization_error(self, errors: Mapping[str, KafkaError]) -> KafkaError | None:
        # Only changes: a permission that is still missing was reported.
        new, self._unauthorized = errors.keys() - self._unauthorized, frozenset(errors)
        new = {topic for topic in new if not self._is_denied(topic)}
        return errors[min(new)] if new else None

    def next_check_at(self) -> float | None:
        """Return the time of the next check, or None while nothing is missing."""
        times = [item_state.warn_at for item_state in self._items.values()]
        if self._limit is not None:
            times += [
                item_state.start + self._limit
                for item, item_state in self._items.items()
                if item not in self._raised
            ]
        return min(times, default=None)

    def _overdue_error(self, now: float) -> KafkaError | None:
        """Return one error for items newly missing for the limit, or None."""
        if self._limit is None:
            return None
        overdue = [
            item
            for item, item_state in self._items.items()
            if item not in self._raised and now >= item_state.start + self._limit
        ]
        if not overdue:
            return None
        self._raised.update(overdue)
        reasons = "; ".join(self._reasons[item] for item in overdue)
        return UnknownTopicOrPartitionError(f"{reasons} (for {self._limit:g} s)")

    def _advice(self, item: Item) -> str:
        if self._limit is None and isinstance(item, str):
            return ": create it, or correct the name; the cluster did not create it either"
        return ": create it, or correct the name"
