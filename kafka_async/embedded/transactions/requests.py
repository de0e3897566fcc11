"""Helpers of the transaction handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class TopicPartitions(Protocol):
    """Types a topic with partitions in a request."""

    name: str
    partitions: Sequence[int]


def fencing_error_code(code: ErrorCode, supports_fenced: bool) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED to clients before KIP-588."""
    return (
        ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.PRODUCER_FENCED and not supports_fenced
        else code
    )


def topic_partitions_of(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    """Return the partitions of all topics."""
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
