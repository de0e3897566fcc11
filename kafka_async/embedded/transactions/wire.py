"""What the handlers of transactions share: codes that older clients know, lists of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafka_async.embedded.codes import Code
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class TopicPartitions(Protocol):
    """A topic with partitions, as requests list them."""

    name: str
    partitions: Sequence[int]


def fenced(code: Code, knows: bool) -> Code:
    """PRODUCER_FENCED by the name that the client knows (KIP-588)."""
    return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED and not knows else code


def flat(topics: Iterable[TopicPartitions]) -> list[TopicPartition]:
    """The partitions of all topics."""
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
