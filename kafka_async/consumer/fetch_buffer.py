"""Fetch buffer of one partition: what was fetched and not returned yet. Pure.

A `CompletedFetch` is one partition's data in one fetch response. Its batches are checked and
decompressed one at a time, and parsed some records at a time, when they are read. So a corrupt
batch is reported after every record before it, and neither time nor memory grows with the size of a
fetch.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.consumer.isolation import AbortedRange, all_batches, committed_batches
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

LARGE_BATCH_COST: Final = 1024 * 1024
"""Cost from which a batch is decompressed in a thread: about 1 ms (see `BatchView`)."""
MAX_DECOMPRESSED_BYTES_PER_POLL: Final = MAX_DECOMPRESSED_BYTES_PER_BATCH
"""Decompressed bytes after which one call opens no further batch."""
MAX_RETAINED_RATIO: Final = 8
"""Maximum size of a response's frame, relative to the data in it that keeps the frame alive."""
BATCH_OVERHEAD: Final = 640
"""Bytes of memory that a batch takes in addition to its data."""
RECORDS_PER_CHUNK: Final = 500
BYTES_PER_CHUNK: Final = 1024 * 1024
"""Limits of what is parsed at a time."""


class CompletedFetch:
    """One partition's data in one fetch response.

    The batches are views of the response's frame, unless they are a small part of it: a partition
    that is read late, or paused, would keep the data of all other partitions alive.

    `find_batches` finds the batches, a number at a time: records sent one by one are a batch each.

    Attributes:
        batches: The batches, each with whether its records are returned.
        end: Offset after the last batch.
        epoch: Leader epoch of the last batch.
        error: Error after the last batch; None if there is none.
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
        """Create without batches; `aborted` None returns uncommitted records too."""
        self.batches: deque[tuple[BatchView, bool]] = deque()
        self.end, self.epoch = offset, -1
        self.error: KafkaError | None = None
        self.size = self.retained_bytes = data.nbytes
        self.unread_bytes = 0
        if memoryview(data.obj).nbytes > MAX_RETAINED_RATIO * self.size:
            data = memoryview(bytes(data))
        views = iter_batches(data, topic=partition.topic, partition=partition.partition)
        self._batches = all_batches(views) if aborted is None else committed_batches(views, aborted)
        self._partition, self._offset = partition, offset

    def find_batches(self, count: int) -> bool:
        """Find the next `count` batches; True at the end, where the search is over."""
        found = 0
        try:
            for view, is_delivered in islice(self._batches, count):
                found += 1
                if view.next_offset > self._offset:
                    self.batches.append((view, is_delivered))
                    self.unread_bytes += view.raw.nbytes
                    self.retained_bytes += BATCH_OVERHEAD
                    self.end, self.epoch = view.next_offset, view.header.leader_epoch
        except CorruptRecordError as error:
            self.error = _with_offset(error, self._partition, self.end)
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


class FetchBuffer:
    """Completed fetches of one partition.

    Attributes:
        decompressed_bytes: Bytes that its batches were decompressed to; reset by its reader.
        full: Whether the fetcher has stopped fetching because of this buffer.
        partition: The partition.
        position: Offset of the next record to take.
        size: Bytes kept alive.
        unread_bytes: Fetched bytes of batches that were not read to their end.
    """

    __slots__ = (
        "_batch",
        "_fetches",
        "_reader",
        "_records",
        "decompressed_bytes",
        "full",
        "partition",
        "position",
        "size",
        "unread_bytes",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position = -1
        self.size = self.unread_bytes = self.decompressed_bytes = 0
        self.full = False
        self._fetches: deque[CompletedFetch] = deque()
        self._batch: BatchView | None = None  # batch of the records taken last
        self._reader: RecordReader | LegacyRecordReader | None = None  # of the rest of that batch
        self._records: list[AnyRecord] = []  # records that were put back

    def __bool__(self) -> bool:
        return bool(self._records or self._fetches)

    def add(self, fetched: CompletedFetch) -> None:
        """Append a completed fetch."""
        self._fetches.append(fetched)
        self.size += fetched.retained_bytes
        self.unread_bytes += fetched.unread_bytes

    def clear(self, position: int) -> None:
        """Drop everything and set the position."""
        self._fetches.clear()
        self._batch, self._reader, self._records = None, None, []
        self.position = position
        self.size = self.unread_bytes = 0

    @property
    def next_compressed(self) -> BatchView | None:
        """The next batch if it is large and not yet decompressed; None otherwise."""
        if self._records or self._reader is not None:
            return None
        for fetched in self._fetches:
            for view, is_delivered in fetched.batches:
                if is_delivered:
                    return (
                        view
                        if view.decompressing or view.decompression_cost >= LARGE_BATCH_COST
                        else None
                    )
            if fetched.error is not None:
                return None
        return None

    def upcoming(self) -> Iterator[BatchView]:
        """Yield the batches after the open one whose records are returned."""
        is_open = self._reader is not None
        for fetched in self._fetches:
            for view, is_delivered in fetched.batches:
                if is_delivered and not is_open:
                    yield view
                is_open = False
            if fetched.error is not None:
                return

    def drop_decompressed(self) -> None:
        """Drop decompressed data of batches that were not read."""
        for view in self.upcoming():
            view.discard_decompressed()

    def take_records(self, limit: int, enough: Callable[[], bool]) -> list[AnyRecord]:
        """Take at most `limit` records; none if none are left.

        Stops before a `next_compressed` batch, and once `enough()` is true.

        Raises:
            CorruptRecordError: The next record cannot be read; raised again until `clear`.
            RecordTooLargeError: The next batch is larger than the bytes fetched; likewise.
            InvalidConfigurationError: The package that decompresses the next batch is not
                installed; likewise.
        """
        taken = self.take_chunk(limit)
        while taken and len(taken) < limit and self.next_compressed is None and not enough():
            try:
                more = self.take_chunk(limit - len(taken))
            except KafkaError:
                break  # raised again once these records have been returned
            if not more:
                break
            taken += more
        return taken

    def take_chunk(self, limit: int = RECORDS_PER_CHUNK) -> list[AnyRecord]:
        """Take at most `limit` records of one batch, and at most what is parsed at a time."""
        records = self._records[:limit]
        del self._records[:limit]
        while not records and (self._reader is not None or self._open_batch()):
            records = self._read(min(limit, RECORDS_PER_CHUNK))
        if self._records:
            self.position = self._records[0].offset
        elif self._reader is None:
            self.position = self._end_offset()
        elif records:
            self.position = records[-1].offset + 1
        return records

    def release_batch(self) -> None:
        """Keep no reference to the last batch: none of its records will be put back."""
        if self._reader is None and not self._records:
            self._batch = None

    def put_back(self, records: list[AnyRecord]) -> None:
        """Return records to the buffer; they must be the last ones taken of one batch."""
        if records:
            self._records = records + self._records
            self.position = records[0].offset

    def take_batches(self) -> tuple[list[BatchView], int]:
        """Take all batches, with the offset at which to start in the first one.

        Raises:
            KafkaError: The first fetch ends in this error, and there is no batch before it.
        """
        start = self.position
        views: list[BatchView] = []
        if self._records and self._reader is None and self._batch is not None:
            views.append(self._batch)
            self.position = self._end_offset()
        self._reader, self._records = None, []
        for fetched in list(self._fetches):
            views += [view for view, is_delivered in fetched.batches if is_delivered]
            if fetched.error is not None:
                if not views:
                    raise fetched.error
                self._keep_error(fetched)
                break
            self._drop_fetch()
            self.position = max(self.position, fetched.end)
        self.release_batch()
        return views, start

    def _keep_error(self, fetched: CompletedFetch) -> None:
        self.position = max(self.position, fetched.end)
        fetched.batches.clear()
        self.unread_bytes -= fetched.unread_bytes
        fetched.unread_bytes = 0

    def _open_batch(self) -> bool:
        """Open the next batch; False if there is none. If it raises, nothing has changed."""
        if not self._fetches:
            return False
        head = self._fetches[0]
        if not head.batches:
            if head.error is not None:
                raise head.error
            self._drop_fetch()
            return True
        view, is_delivered = head.batches[0]
        if is_delivered:
            try:
                self._reader = view.reader(max(self.position, 0))
            except CorruptRecordError as error:
                raise _with_offset(error, self.partition, self.position) from error
            self.decompressed_bytes += view.decompressed_bytes
        self._batch = view
        if not is_delivered:
            self._close_batch()
        return True

    def _read(self, count: int) -> list[AnyRecord]:
        """Read records of the open batch, if there is one."""
        reader = self._reader
        if reader is None:
            return []
        records: list[AnyRecord] = reader.read(count, BYTES_PER_CHUNK)
        if reader.done:
            self._close_batch()
        return records

    def _close_batch(self) -> None:
        """Remove the first batch, which was read to its end."""
        self._reader = None
        head = self._fetches[0]
        view, _ = head.batches.popleft()
        head.unread_bytes -= view.raw.nbytes
        self.unread_bytes -= view.raw.nbytes
        if not head.batches and head.error is None:
            self._drop_fetch()
        self.position = self._end_offset()

    def _end_offset(self) -> int:
        return self.position if self._batch is None else max(self.position, self._batch.next_offset)

    def _drop_fetch(self) -> None:
        fetched = self._fetches.popleft()
        self.size -= fetched.retained_bytes
        self.unread_bytes -= fetched.unread_bytes


def _with_offset(
    error: CorruptRecordError, partition: TopicPartition, offset: int
) -> CorruptRecordError:
    if error.topic is not None and error.offset is not None:
        return error
    return CorruptRecordError(
        error.message, topic=partition.topic, partition=partition.partition, offset=offset
    )
