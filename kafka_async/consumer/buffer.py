"""What was fetched of one partition and not handed out yet. Pure.

A slice is what one fetch brought. Its batches are checked and parsed one at a time, when their
records are asked for, so a damaged batch is met where it lies: after everything before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.consumer.isolation import AbortedRange, committed, everything
from kafka_async.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from kafka_async.kernel import Record
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import DEFAULT_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka_async.types import TopicPartition

AnyRecord: TypeAlias = Record[Any, Any]

LARGE: Final = 64 * 1024
"""Compressed bytes from which on a batch is not to be unpacked where it holds up others."""
ENOUGH: Final = DEFAULT_LIMIT
"""Decompressed bytes after which one call opens no further batch: each may be small until then."""


class Slice:
    """The batches of one fetch: those to hand out and those to pass over.

    Attributes:
        batches: each with whether its records are handed out.
        end: the offset after the last batch.
        epoch: the last batch's leader epoch.
        error: what is wrong behind the last batch, None if nothing is.
        size: bytes that the slice keeps alive.
    """

    __slots__ = ("batches", "end", "epoch", "error", "size")

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        offset: int,
        aborted: Iterable[AbortedRange] | None,
    ) -> None:
        """`aborted` None reads everything, committed or not."""
        self.batches: deque[tuple[BatchView, bool]] = deque()
        self.end, self.epoch = offset, -1
        self.error: KafkaError | None = None
        self.size = data.nbytes
        views = iter_batches(data, topic=partition.topic, partition=partition.partition)
        visible = everything(views) if aborted is None else committed(views, aborted)
        try:
            for view, handed_out in visible:
                if view.next_offset > offset:
                    self.batches.append((view, handed_out))
                    self.end, self.epoch = view.next_offset, view.header.leader_epoch
        except CorruptRecordError as error:
            self.error = _located(error, partition, self.end)
        if self.size and not self.batches and self.error is None:
            self.error = RecordTooLargeError(
                f"a batch is larger than the {self.size} bytes that were fetched: raise "
                "max_partition_fetch_bytes",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
            )


class Buffer:
    """Slices of one partition, read from `position` on.

    `size` is the bytes it keeps alive; `position` is the offset of what is handed out next;
    `inflated` counts the bytes that its batches are decompressed to; whoever takes may reset it.
    """

    __slots__ = ("_records", "_slices", "_view", "inflated", "partition", "position", "size")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position = -1
        self.size = self.inflated = 0
        self._slices: deque[Slice] = deque()
        self._records: list[AnyRecord] = []
        self._view: BatchView | None = None  # the batch that the records are of

    def __bool__(self) -> bool:
        return bool(self._records or self._slices)

    def add(self, fetched: Slice) -> None:
        """Put what was fetched behind what is there."""
        self._slices.append(fetched)
        self.size += fetched.size

    def clear(self, position: int) -> None:
        """Drop everything; go on at `position`."""
        self._slices.clear()
        self._records = []
        self.position, self.size = position, 0

    @property
    def packed(self) -> BatchView | None:
        """The batch whose records come next, if it is large and still compressed."""
        if self._records:
            return None
        for fetched in self._slices:
            for view, handed_out in fetched.batches:
                if handed_out:
                    return view if view.packed_size >= LARGE else None
            if fetched.error is not None:
                return None
        return None

    def take(self, limit: int) -> list[AnyRecord]:
        """At most so many records; none if there are none left. Stops before what is `packed`.

        And once it has decompressed ENOUGH. Raises CorruptRecordError where the next record cannot
        be read, again each time until `clear`.
        """
        most = self.inflated + ENOUGH
        taken = self.take_batch(limit)
        while taken and len(taken) < limit and self.inflated < most and self.packed is None:
            try:
                more = self.take_batch(limit - len(taken))
            except KafkaError:
                break  # it is met again when these have been handed out
            if not more:
                break
            taken += more
        return taken

    def take_batch(self, limit: int | None = None) -> list[AnyRecord]:
        """Records of one batch, all that are left of it or at most so many."""
        while not self._records:
            if not self._open():
                return []
        records = self._records
        if limit is None or len(records) <= limit:
            self._records = []
            self.position = self._end()
            return records
        self._records = records[limit:]
        self.position = self._records[0].offset
        return records[:limit]

    def put_back(self, records: list[AnyRecord]) -> None:
        """Hand these out again first; they are the last that were taken of one batch."""
        if records:
            self._records = records + self._records
            self.position = records[0].offset

    def take_views(self) -> tuple[list[BatchView], int]:
        """All batches to hand out, with the offset where the first one is to be begun.

        Raises the error that the first slice ends in, if nothing is before it.
        """
        start = self.position
        views: list[BatchView] = []
        if self._records and self._view is not None:
            views.append(self._view)
            self._records, self.position = [], self._end()
        for fetched in list(self._slices):
            views += [view for view, handed_out in fetched.batches if handed_out]
            if fetched.error is not None:
                if not views:
                    raise fetched.error
                self._keep_error(fetched)
                break
            self._drop()
            self.position = max(self.position, fetched.end)
        return views, start

    def _keep_error(self, fetched: Slice) -> None:
        self.position = max(self.position, fetched.end)
        fetched.batches.clear()

    def _open(self) -> bool:
        """Parse the next batch; False if there is none. Nothing has changed if it raises."""
        if not self._slices:
            return False
        head = self._slices[0]
        if not head.batches:
            if head.error is not None:
                raise head.error
            self._drop()
            return True
        view, handed_out = head.batches[0]
        if handed_out:
            try:
                self._records = view.records(max(self.position, 0))
            except CorruptRecordError as error:
                raise _located(error, self.partition, self.position) from error
            self.inflated += view.inflated
        head.batches.popleft()
        if not head.batches and head.error is None:
            self._drop()
        self._view = view
        if not self._records:
            self.position = max(self.position, view.next_offset)
        return True

    def _end(self) -> int:
        return self.position if self._view is None else self._view.next_offset

    def _drop(self) -> None:
        self.size -= self._slices.popleft().size


def _located(
    error: CorruptRecordError, partition: TopicPartition, offset: int
) -> CorruptRecordError:
    if error.topic is not None and error.offset is not None:
        return error
    return CorruptRecordError(
        error.message, topic=partition.topic, partition=partition.partition, offset=offset
    )
