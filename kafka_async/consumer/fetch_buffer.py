"""What was fetched of one partition and not handed out yet. Pure.

A slice is what one fetch brought. Its batches are checked and decompressed one at a time, and
parsed some records at a time, when these are asked for. So damage is met where it lies, after every
record before it; and neither time nor memory follows the size of a batch.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.consumer.isolation import AbortedRange, committed, everything
from kafka_async.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from kafka_async.kernel import Record
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import MAX_DECOMPRESSED_BYTES_PER_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafka_async.kernel import RecordReader
    from kafka_async.records.legacy import LegacyRecordReader
    from kafka_async.types import TopicPartition

AnyRecord: TypeAlias = Record[Any, Any]

LARGE: Final = 1024 * 1024
"""The `decompression_cost` from which a batch is decompressed in a thread: about 1 ms."""
ENOUGH: Final = MAX_DECOMPRESSED_BYTES_PER_BATCH
"""Decompressed bytes after which one call opens no further batch: each may be small until then."""
PINNED: Final = 8
"""How many times its own bytes a slice may keep alive by being a view of its answer's frame."""
OVERHEAD: Final = 640
"""Bytes that a batch takes besides its own: what is known of it, and where it lies."""
RECORDS: Final = 500
BYTES: Final = 1024 * 1024
"""How much of a batch is parsed at a time."""


class CompletedFetch:
    """The batches of one fetch: those to hand out and those to pass over.

    They are views of the answer that brought them, unless they are a small part of it: those of
    one partition that is read late, or paused, would keep alive what it brought of all others.

    They are found by `walk`, so many at a time: records that were sent one by one are a batch each.

    Attributes:
        batches: each with whether its records are handed out.
        end: the offset after the last batch.
        epoch: the last batch's leader epoch.
        error: what is wrong behind the last batch, None if nothing is.
        kept: bytes that the slice keeps alive, its batches' OVERHEAD among them.
        size: bytes that were fetched.
        unread: bytes of its batches.
    """

    __slots__ = (
        "_ahead",
        "_offset",
        "_partition",
        "batches",
        "end",
        "epoch",
        "error",
        "kept",
        "size",
        "unread",
    )

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
        self.size = self.kept = data.nbytes
        self.unread = 0
        if memoryview(data.obj).nbytes > PINNED * self.size:
            data = memoryview(bytes(data))
        views = iter_batches(data, topic=partition.topic, partition=partition.partition)
        self._ahead = everything(views) if aborted is None else committed(views, aborted)
        self._partition, self._offset = partition, offset

    def walk(self, count: int) -> bool:
        """Find the next so many batches; whether that was the end. Not again after it."""
        found = 0
        try:
            for view, handed_out in islice(self._ahead, count):
                found += 1
                if view.next_offset > self._offset:
                    self.batches.append((view, handed_out))
                    self.unread += view.raw.nbytes
                    self.kept += OVERHEAD
                    self.end, self.epoch = view.next_offset, view.header.leader_epoch
        except CorruptRecordError as error:
            self.error = _located(error, self._partition, self.end)
            return True
        if found == count:
            return False
        if self.size and not self.batches:
            self.error = RecordTooLargeError(
                f"a batch is larger than the {self.size} bytes that were fetched: raise "
                "max_partition_fetch_bytes",
                topic=self._partition.topic,
                partition=self._partition.partition,
                offset=self._offset,
            )
        return True


class Buffer:
    """Slices of one partition, read from `position` on.

    `size` is the bytes it keeps alive, `unread` the fetched ones of its batches that were not read
    to their end; `position` is the offset of what is handed out next; `full` is a note of whoever
    fetches; `decompressed_bytes` counts the bytes that its batches are decompressed to;
    the reader may reset it.
    """

    __slots__ = (
        "_reader",
        "_records",
        "_slices",
        "_view",
        "decompressed_bytes",
        "full",
        "partition",
        "position",
        "size",
        "unread",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position = -1
        self.size = self.unread = self.decompressed_bytes = 0
        self.full = False
        self._slices: deque[CompletedFetch] = deque()
        self._view: BatchView | None = None  # the batch of which records were last taken
        self._reader: RecordReader | LegacyRecordReader | None = None  # what is left of it
        self._records: list[AnyRecord] = []  # those of it that were put back

    def __bool__(self) -> bool:
        return bool(self._records or self._slices)

    def add(self, fetched: CompletedFetch) -> None:
        """Put what was fetched behind what is there."""
        self._slices.append(fetched)
        self.size += fetched.kept
        self.unread += fetched.unread

    def clear(self, position: int) -> None:
        """Drop everything; go on at `position`."""
        self._slices.clear()
        self._view, self._reader, self._records = None, None, []
        self.position = position
        self.size = self.unread = 0

    @property
    def packed(self) -> BatchView | None:
        """The batch whose records come next, if it is large and still compressed, or `awaited`."""
        if self._records or self._reader is not None:
            return None
        for fetched in self._slices:
            for view, handed_out in fetched.batches:
                if handed_out:
                    return view if view.awaited or view.decompression_cost >= LARGE else None
            if fetched.error is not None:
                return None
        return None

    def upcoming(self) -> Iterator[BatchView]:
        """The batches that are handed out after the one that is open."""
        opened = self._reader is not None
        for fetched in self._slices:
            for view, handed_out in fetched.batches:
                if handed_out and not opened:
                    yield view
                opened = False
            if fetched.error is not None:
                return

    def pack(self) -> None:
        """Keep nothing that was decompressed before it is asked for."""
        for view in self.upcoming():
            view.pack()

    def take(self, limit: int, enough: Callable[[], bool]) -> list[AnyRecord]:
        """At most so many records; none if there are none left.

        Stops before what is `packed`, and once there is `enough()`. Raises CorruptRecordError where
        the next record cannot be read, again each time until `clear`.
        """
        taken = self.take_some(limit)
        while taken and len(taken) < limit and self.packed is None and not enough():
            try:
                more = self.take_some(limit - len(taken))
            except KafkaError:
                break  # it is met again when these have been handed out
            if not more:
                break
            taken += more
        return taken

    def take_some(self, limit: int = RECORDS) -> list[AnyRecord]:
        """Records of one batch, at most so many, and no more than are parsed at a time."""
        records = self._records[:limit]
        del self._records[:limit]
        while not records and (self._reader is not None or self._open()):
            records = self._read(min(limit, RECORDS))
        if self._records:
            self.position = self._records[0].offset
        elif self._reader is None:
            self.position = self._end()
        elif records:
            self.position = records[-1].offset + 1
        return records

    def let_go(self) -> None:
        """Nothing of what was taken last will be put back: keep none of its bytes for that."""
        if self._reader is None and not self._records:
            self._view = None

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
        if self._records and self._reader is None and self._view is not None:
            views.append(self._view)
            self.position = self._end()
        self._reader, self._records = None, []
        for fetched in list(self._slices):
            views += [view for view, handed_out in fetched.batches if handed_out]
            if fetched.error is not None:
                if not views:
                    raise fetched.error
                self._keep_error(fetched)
                break
            self._drop()
            self.position = max(self.position, fetched.end)
        self.let_go()
        return views, start

    def _keep_error(self, fetched: CompletedFetch) -> None:
        self.position = max(self.position, fetched.end)
        fetched.batches.clear()
        self.unread -= fetched.unread
        fetched.unread = 0

    def _open(self) -> bool:
        """Begin with the next batch; False if there is none. Nothing has changed if it raises."""
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
                self._reader = view.reader(max(self.position, 0))
            except CorruptRecordError as error:
                raise _located(error, self.partition, self.position) from error
            self.decompressed_bytes += view.decompressed_bytes
        self._view = view
        if not handed_out:
            self._close()
        return True

    def _read(self, count: int) -> list[AnyRecord]:
        """Of the batch that is open, if one is."""
        reader = self._reader
        if reader is None:
            return []
        records: list[AnyRecord] = reader.read(count, BYTES)
        if reader.done:
            self._close()
        return records

    def _close(self) -> None:
        """The first batch is through."""
        self._reader = None
        head = self._slices[0]
        view, _ = head.batches.popleft()
        head.unread -= view.raw.nbytes
        self.unread -= view.raw.nbytes
        if not head.batches and head.error is None:
            self._drop()
        self.position = self._end()

    def _end(self) -> int:
        return self.position if self._view is None else max(self.position, self._view.next_offset)

    def _drop(self) -> None:
        fetched = self._slices.popleft()
        self.size -= fetched.kept
        self.unread -= fetched.unread


def _located(
    error: CorruptRecordError, partition: TopicPartition, offset: int
) -> CorruptRecordError:
    if error.topic is not None and error.offset is not None:
        return error
    return CorruptRecordError(
        error.message, topic=partition.topic, partition=partition.partition, offset=offset
    )
