"""Offsets of a streaming query, as Spark stores them in its checkpoint. Pure.

The JSON is that of Spark's Kafka connector, `{"clicks": {"0": 23, "1": 7}}`. For each topic it has
one more key without partitions, such as `"#clicks#6ba7b810-...#0:4,1:3"`: the topic's id, and the
leader epoch of each partition. Spark's connector, and other readers of this JSON, see a topic
without partitions there and ignore it. No topic has such a name, because names have no "#".
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
    """Holds the next offsets to read, and what identifies the logs that they belong to.

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

        An offset that Spark's connector has stored has no ids, but its topics had them when this
        run of the query saw them first.
        """
        return replace(self, topic_ids={**topic_ids, **self.topic_ids})

    def to_json(self) -> OffsetJson:
        """Return the value that Spark stores; equal offsets give equal text."""
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
    """Return the offset that Spark has read from its checkpoint.

    Raises:
        IllegalStateError: It is not an offset of this source or of Spark's Kafka connector.
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
