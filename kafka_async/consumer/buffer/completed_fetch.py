"""One partition's data in one fetch response. Pure.

With read_committed the batches of aborted transactions are dropped (KIP-98). The response then has
the batches up to the last stable offset and a list of aborted transactions: producer ids with their
first offsets, in any order. Transactional batches of such a producer are dropped from that offset
up to its abort marker.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.consumer.offsets import UNKNOWN
from kafka_async.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from kafka_async.records.batch import iter_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafka_async.records.batch import BatchView
    from kafka_async.types import TopicPartition

MAX_RETAINED_RATIO: Final = 8
"""Maximum size of a response's frame, relative to the data in it that keeps the frame alive."""
BATCH_OVERHEAD: Final = 640
"""Bytes of memory that a batch takes in addition to its data."""


class AbortedRange(NamedTuple):
    """An aborted transaction, from `first_offset` to its producer's abort marker."""

    first_offset: int
    producer_id: int


class CompletedFetch:
    """One partition's data in one fetch response.

    The batches are views of the response's frame, unless they are a small part of it: a partition
    that is read late, or paused, would keep the data of all other partitions alive.

    Attributes:
        batches: The batches, each with True if its records are returned.
        end: Offset after the last batch.
        epoch: Leader epoch of the last batch.
        error: Error after the last batch, or None.
        retained_bytes: Bytes kept alive, with BATCH_OVERHEAD per batch.
        size: Bytes fetched.
        unread_bytes: Bytes of the batches.
    """

    __slots__ = (
        "_batches",
        "_offset",
        "_partition",
        "batches",
        "end",
        "epoch",
        "error",
        "retained_bytes",
        "size",
        "unread_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        offset: int,
        aborted: Iterable[AbortedRange] | None,
    ) -> None:
        """Create without batches; with `aborted` None, uncommitted records are returned too."""
        self.batches: deque[tuple[BatchView, bool]] = deque()
        self.end, self.epoch = offset, UNKNOWN
        self.error: KafkaError | None = None
        self.size = self.retained_bytes = data.nbytes
        self.unread_bytes = 0
        if memoryview(data.obj).nbytes > MAX_RETAINED_RATIO * self.size:
            data = memoryview(bytes(data))
        views = iter_batches(data, topic=partition.topic, partition=partition.partition)
        self._batches = all_batches(views) if aborted is None else committed_batches(views, aborted)
        self._partition, self._offset = partition, offset

    def find_batches(self, count: int) -> bool:
        """Find the next `count` batches; return True at the end."""
        found = 0
        try:
            for view, is_delivered in islice(self._batches, count):
                found += 1
                # A broker returns whole batches, so the first may begin, and even end, before the
                # offset.
                if view.next_offset > self._offset:
                    self.batches.append((view, is_delivered))
                    self.unread_bytes += view.raw.nbytes
                    self.retained_bytes += BATCH_OVERHEAD
                    self.end, self.epoch = view.next_offset, view.header.leader_epoch
        # The batches before it are returned first.
        except CorruptRecordError as error:
            self.error = with_offset(error, self._partition, self.end)
            return True
        if found == count:
            return False
        # A fetch of some bytes without one whole batch: it would be repeated forever.
        if self.size and not self.batches:
            self.error = RecordTooLargeError(
                f"a batch is larger than the {self.size} bytes that were fetched: raise "
                "max_partition_fetch_bytes",
                topic=self._partition.topic,
                partition=self._partition.partition,
                offset=self._offset,
            )
        return True


def all_batches(batches: Iterable[BatchView]) -> Iterator[tuple[BatchView, bool]]:
    """Yield each batch, with True if it has records to return; control batches have none."""
    for batch in batches:
        yield batch, not batch.is_control


def committed_batches(
    batches: Iterable[BatchView], aborted: Iterable[AbortedRange]
) -> Iterator[tuple[BatchView, bool]]:
    """Yield each batch, with True if it has records to return; aborted ones have none either."""
    pending = list(aborted)
    heapq.heapify(pending)
    aborting = set[int]()
    for batch in batches:
        # Aborted transactions that have begun by the end of this batch.
        while pending and pending[0].first_offset <= batch.last_offset:
            aborting.add(heapq.heappop(pending).producer_id)
        if batch.is_control:
            # Its abort marker: later batches of this producer belong to another transaction.
            if batch.producer_id in aborting and batch.control().kind == "abort":
                aborting.remove(batch.producer_id)
            yield batch, False
        else:
            yield batch, not (batch.is_transactional and batch.producer_id in aborting)


def with_offset(
    error: CorruptRecordError, partition: TopicPartition, offset: int
) -> CorruptRecordError:
    """Return the error with the partition and an offset, unless it has them."""
    if error.topic is not None and error.offset is not None:
        return error
    return CorruptRecordError(
        error.message, topic=partition.topic, partition=partition.partition, offset=offset
    )
