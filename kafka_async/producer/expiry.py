"""The errors of what has waited too long: for what, how long, and what went wrong last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kafka_async.producer.partition_queue import TopicQueue
    from kafka_async.producer.producer_batch import ProducerBatch

__all__ = ["delivery_timed_out", "partition_not_there", "topic_not_learnt"]


def delivery_timed_out(
    batch: ProducerBatch, patience: float, obstacle: KafkaError | None
) -> KafkaError:
    """The batch was not delivered within `patience` seconds (delivery_timeout_ms).

    `obstacle` is why its leader could not be connected to, if it could not.
    """
    text = f"not delivered within delivery_timeout_ms ({patience:g} s)"
    if batch.error is not None:
        text += f"; the last of {batch.attempts} attempts: {batch.error}"
    elif batch.queue.leader is None:
        text += "; the partition has no leader"
    elif obstacle is not None:
        text += f"; its leader cannot be reached: {obstacle}"
    topic, partition = batch.queue.partition
    error = KafkaTimeoutError(text, topic=topic, partition=partition)
    error.__cause__ = batch.error or obstacle
    return error


def partition_not_there(topic: str, partition: int, count: int, patience: float) -> KafkaError:
    """Return the error for a partition that metadata still lacks after `patience` seconds."""
    return UnknownTopicOrPartitionError(
        f"the topic has {count} partitions, 0 to {count - 1}, and got no more within "
        f"{patience:g} s: name one of those, or add partitions",
        topic=topic,
        partition=partition,
    )


def topic_not_learnt(topic: TopicQueue, partition: int | None, patience: float) -> KafkaError:
    """The topic, or that partition, was not found within `patience` s (max_block_ms)."""
    waited = f"within max_block_ms ({patience:g} s)"
    if topic.count:
        return UnknownTopicOrPartitionError(
            f"the topic has the partitions 0 to {topic.count - 1}, and got no more {waited}",
            topic=topic.name,
            partition=partition,
        )
    known = topic.error
    if isinstance(known, UnknownTopicOrPartitionError):
        error: KafkaError = UnknownTopicOrPartitionError(
            f"the topic does not exist, and was not created {waited}: create it, or check its name",
            topic=topic.name,
        )
    else:
        why = "" if known is None else f": {known}"
        error = KafkaTimeoutError(
            f"nothing was learnt of the topic {waited}{why}", topic=topic.name
        )
    error.__cause__ = known
    return error
