"""Offsets of a streaming query, as Spark stores them in its checkpoint. Pure.

The JSON is the format of Spark's Kafka connector, `{"clicks": {"0": 23, "1": 7}}`, with one more
key per topic, such as `"#clicks#6ba7b810-...#0:4,1:3"`: the topic's id, and the leader epoch of
each partition. To Spark's connector and other readers, this key is a topic without partitions,
which they ignore. It cannot be the name of a topic, because names have no "#".
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kafka_async.errors import IllegalStateError
from kafka_async.spark.offsets import Offsets
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

SEPARATOR: Final = "#"

OffsetJson: TypeAlias = "dict[str, dict[str, int]]"


@dataclass(frozen=True)
class StreamOffset:
    """Holds the next offsets to read, and the identity of the logs.

    Attributes:
        offsets: Next offset by partition.
        topic_ids: Topic id by topic, where known.
        epochs: Leader epoch at the time of the offset, by partition, where known.
    """

    offsets: Offsets = field(default_factory=Offsets)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict[str, uuid.UUID])
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    def identified_by(self, topic_ids: Mapping[str, uuid.UUID]) -> StreamOffset:
        """Return the same offsets, with these ids for topics without one.

        An offset stored by Spark's connector has no ids. They are then taken from the first
        metadata of this run of the query.
        """
        return replace(self, topic_ids={**topic_ids, **self.topic_ids})

    def to_json(self) -> OffsetJson:
        """Return the value for Spark to store; equal offsets give equal text."""
        value: OffsetJson = {}
        for topic, partitions in groupby(sorted(self.offsets), key=lambda tp: tp.topic):
            value[topic] = {str(tp.partition): self.offsets[tp] for tp in partitions}
        for topic in list(value):
            if topic in self.topic_ids:
                value[self._log_key(topic)] = {}
        return value

    def _log_key(self, topic: str) -> str:
        epochs = ",".join(
            f"{tp.partition}:{epoch}"
            for tp, epoch in sorted(self.epochs.items())
            if tp.topic == topic and tp in self.offsets
        )
        return SEPARATOR.join(("", topic, str(self.topic_ids[topic]), epochs))


def read_stream_offset(value: object) -> StreamOffset:
    """Return the offset from a value in Spark's checkpoint.

    Raises:
        IllegalStateError: The value is not an offset of this source or Spark's Kafka connector.
    """
    offsets = Offsets()
    topic_ids: dict[str, uuid.UUID] = {}
    epochs: dict[TopicPartition, int] = {}
    try:
        for topic, partitions in cast("OffsetJson", value).items():
            if topic.startswith(SEPARATOR):
                _, name, topic_id, pairs = topic.split(SEPARATOR)
                topic_ids[name] = uuid.UUID(topic_id)
                for pair in pairs.split(",") if pairs else ():
                    partition, epoch = pair.split(":")
                    epochs[TopicPartition(name, int(partition))] = int(epoch)
            for partition, offset in partitions.items():
                offsets[TopicPartition(topic, int(partition))] = int(offset)
    except (ValueError, AttributeError, TypeError) as error:
        raise IllegalStateError(
            f"the checkpoint has no offsets of Kafka, but {value!r:.200} ({error}): use the "
            "checkpoint of this query, or a new one"
        ) from error
    return StreamOffset(offsets, topic_ids, epochs)
