"""Subscribed topics and assigned partitions that do not exist: warnings, and one error. Pure.

A topic may be created a moment after it is subscribed to, and brokers that start do not know all
topics, so the first warning comes after FIRST seconds; each next one after twice the time.
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
    from collections.abc import Iterable, Mapping

    from kafka_async.cluster.metadata import ClusterMetadata

FIRST: Final = 3.0
"""Seconds until the first warning."""
LONGEST: Final = 60.0
"""Seconds between two warnings at most."""

Item = str | TopicPartition


def missing(
    topics: Iterable[str], partitions: Iterable[TopicPartition], metadata: ClusterMetadata
) -> dict[Item, str]:
    """Return the topics and partitions that brokers say do not exist, each with the reason."""
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


def unauthorized(topics: Iterable[str], metadata: ClusterMetadata) -> dict[str, KafkaError]:
    """Return the topics that the principal may not read, each with the error that brokers gave."""
    errors = {topic: metadata.error(topic) for topic in topics}
    return {t: error for t, error in errors.items() if isinstance(error, TopicAuthorizationError)}


def _is_missing(metadata: ClusterMetadata, topic: str) -> bool:
    error = metadata.error(topic)
    return isinstance(error, UnknownTopicOrPartitionError | InvalidTopicError)


@dataclass(slots=True)
class _Since:
    """Holds the time since which something is missing, and that of the next warning."""

    start: float
    warn_at: float
    pause: float = FIRST


class MissingTopics:
    """Decides when to warn of what is missing, and when to raise.

    Args:
        creates: Whether the consumer may create topics: then there is no error, only warnings.
        limit: Seconds after which `overdue` returns an error, unless `creates`.
    """

    def __init__(self, *, creates: bool, limit: float) -> None:
        self._limit = None if creates else limit
        self._since: dict[Item, _Since] = {}
        self._reasons: Mapping[Item, str] = {}
        self._raised: set[Item] = set()
        self._unauthorized: frozenset[str] = frozenset()

    @property
    def error(self) -> KafkaError | None:
        """Everything that is missing now, as one error; None if nothing is."""
        if not self._reasons:
            return None
        return UnknownTopicOrPartitionError("; ".join(self._reasons.values()))

    def update(self, reasons: Mapping[Item, str], now: float) -> list[str]:
        """Take what is missing now; return the warnings that are due."""
        self._reasons = reasons
        self._since = {item: self._since.get(item) or _Since(now, now + FIRST) for item in reasons}
        self._raised &= reasons.keys()
        due: list[str] = []
        for item, since in self._since.items():
            if since.warn_at <= now:
                since.pause = min(2 * since.pause, LONGEST)
                since.warn_at = now + since.pause
                due.append(f"{reasons[item]} (for {now - since.start:.0f} s){self._cure(item)}")
        return due

    def refused(self, errors: Mapping[str, KafkaError]) -> KafkaError | None:
        """Take what `unauthorized` returns; return the error of a topic that it has lately."""
        new, self._unauthorized = errors.keys() - self._unauthorized, frozenset(errors)
        return errors[min(new)] if new else None

    def next_at(self) -> float | None:
        """Return the time of the next look; None while nothing is missing."""
        times = [since.warn_at for since in self._since.values()]
        if self._limit is not None:
            times += [
                since.start + self._limit
                for item, since in self._since.items()
                if item not in self._raised
            ]
        return min(times, default=None)

    def overdue(self, now: float) -> KafkaError | None:
        """Return the error to raise once for what has been missing for the limit; None if none."""
        if self._limit is None:
            return None
        late = [
            item
            for item, since in self._since.items()
            if item not in self._raised and now >= since.start + self._limit
        ]
        if not late:
            return None
        self._raised.update(late)
        reasons = "; ".join(self._reasons[item] for item in late)
        return UnknownTopicOrPartitionError(f"{reasons} (for {self._limit:g} s)")

    def _cure(self, item: Item) -> str:
        if self._limit is None and isinstance(item, str):
            return ": create it, or correct the name; the cluster did not create it either"
        return ": create it, or correct the name"
