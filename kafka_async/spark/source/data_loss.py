"""Detection of records that a streaming query can no longer read. Pure.

A query that continues at its last offsets must find the same logs. Records are lost if their topic
was deleted or created again (its id has changed), if retention removed them, or if an unclean
leader election truncated the log (the offset's leader epoch ends before the offset, KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_async.errors import DataLossError
from kafka_async.spark.offsets import OffsetRange, Offsets
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from kafka_async.spark.source.stream_offset import StreamOffset


_DELETED: Final = "the topic or partition has been deleted"


@dataclass(frozen=True)
class LogState:
    """Holds the state of the partitions that a query reads.

    Attributes:
        topic_ids: Topic id by topic.
        leader_epochs: Epoch of the leader that returned `latest`, by partition, where known.
        earliest: First offset of each partition; where no record is new, the query's position.
        latest: Offset after the last readable record of each partition.
        epoch_ends: Offset at which the leader epoch of the query's position ends, by partition;
            only where the leader has changed since.
    """

    topic_ids: Mapping[str, uuid.UUID]
    leader_epochs: Mapping[TopicPartition, int]
    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


@dataclass(frozen=True)
class Loss:
    """Describes lost records of a partition.

    Attributes:
        partition: The partition.
        offset: The position that cannot be read.
        to: Offset at which reading continues; None if the partition is no longer read.
        reason: The reason for which the position cannot be read.
    """

    partition: TopicPartition
    offset: int
    to: int | None
    reason: str

    def error(self) -> DataLossError:
        """Return the error for a query with failOnDataLoss."""
        return DataLossError(
            f"{self.reason}, so records may be lost: start the query from a new checkpoint, or set "
            "failOnDataLoss=false to read what is left",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=self.offset,
        )

    def __str__(self) -> str:
        rest = "is not read any more" if self.to is None else f"is read from offset {self.to}"
        return (
            f"{self.partition} at offset {self.offset}: {self.reason}, so records may be lost, and "
            f"the partition {rest} (failOnDataLoss=false)"
        )


def find_losses(start: StreamOffset, logs: LogState) -> tuple[Offsets, list[Loss]]:
    """Compare the position of a query with the logs.

    Returns:
        Start offsets by partition, and the losses in order of partitions. A new partition is read
        from its first record.
    """
    starts: Offsets = {}
    losses: list[Loss] = []
    for tp in sorted({*start.offsets, *logs.latest}):
        if tp not in logs.latest:
            reason = _new_id(tp, start, logs)
            reason = f"{reason}, without this partition" if reason else _DELETED
            losses.append(Loss(tp, start.offsets[tp], None, reason))
            continue
        starts[tp], reason = _position(tp, start, logs)
        if reason is not None:
            losses.append(Loss(tp, start.offsets.get(tp, 0), starts[tp], reason))
    return starts, losses


def _position(tp: TopicPartition, start: StreamOffset, logs: LogState) -> tuple[int, str | None]:
    """Return the offset to read from, and the reason if it differs from the query's position."""
    earliest, latest = logs.earliest[tp], logs.latest[tp]
    if tp not in start.offsets:
        if earliest == 0:
            return 0, None
        return earliest, f"the new partition begins at offset {earliest} instead of 0"
    offset = start.offsets[tp]
    # In this order: a new topic makes all offsets meaningless, a truncated log makes this offset
    # meaningless, and only then do the log's two bounds count.
    if reason := _new_id(tp, start, logs):
        return earliest, reason
    end = logs.epoch_ends.get(tp, offset)
    if end < offset:
        return max(end, earliest), (
            f"the records from offset {end} on have been replaced by others, as after an unclean "
            "leader election"
        )
    if earliest > offset:
        return min(earliest, latest), f"the partition now begins at offset {earliest}"
    if latest < offset:
        return latest, f"the partition now ends at offset {latest}"
    return offset, None


def _new_id(tp: TopicPartition, position: StreamOffset, logs: LogState) -> str | None:
    """Return the reason if the topic was created again with another id, else None."""
    # Without a known id, as in a checkpoint of Spark's connector, the topic counts as the same.
    known = position.topic_ids.get(tp.topic)
    if known is None or known == logs.topic_ids.get(tp.topic, known):
        return None
    return f"the topic has been deleted and created again (it had the id {known})"


def plan_batch(
    start: StreamOffset,
    end: StreamOffset,
    logs: LogState,
    end_epoch_ends: Mapping[TopicPartition, int] | None = None,
) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the ranges of a batch, and its losses.

    The end is checked too, because an earlier run of the query may have planned the batch.

    Args:
        start: Position before the batch.
        end: Position after the batch.
        logs: Current state of the logs.
        end_epoch_ends: Offset at which the leader epoch of `end` ends, as in `LogState`.
    """
    starts, losses = find_losses(start, logs)
    lost = {loss.partition for loss in losses}
    ranges: list[OffsetRange] = []
    for tp in sorted(end.offsets):
        until, reason = _end(tp, end, logs, end_epoch_ends or {})
        if reason is not None and tp not in lost:
            losses.append(Loss(tp, end.offsets[tp], until, reason))
        if until is not None and starts[tp] < until:
            ranges.append(OffsetRange(tp.topic, tp.partition, starts[tp], until))
    return ranges, losses


def _end(
    tp: TopicPartition,
    end: StreamOffset,
    logs: LogState,
    epoch_ends: Mapping[TopicPartition, int],
) -> tuple[int | None, str | None]:
    """Return the end of a partition's range (None: unreadable), and the reason if it changed."""
    if reason := _new_id(tp, end, logs):
        return None, reason
    if tp not in logs.latest:
        return None, _DELETED
    until = end.offsets[tp]
    readable = min(epoch_ends.get(tp, until), logs.latest[tp])
    if readable < until:
        return readable, f"the records from offset {readable} on have gone or have been replaced"
    return until, None
