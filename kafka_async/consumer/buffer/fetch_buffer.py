"""Records of one partition that were fetched and not returned yet, and its position. Pure.

Batches are checked and decompressed one at a time, and parsed some records at a time, when they are
read. So a corrupt batch is reported after every record before it, and neither time nor memory grows
with the size of a fetch.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.consumer.buffer.completed_fetch import CompletedFetch, with_offset
from kafka_async.consumer.offsets import UNKNOWN
from kafka_async.errors import CorruptRecordError, KafkaError
from kafka_async.foundation.fairness import BYTES_PER_CHUNK, RECORDS_PER_CHUNK
from kafka_async.kernel import Record
from kafka_async.records.compression import MAX_DECOMPRESSED_BYTES_PER_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_async.kernel import NextRecord, RecordReader
    from kafka_async.records.batch import BatchView
    from kafka_async.records.legacy import LegacyRecordReader
    from kafka_async.types import TopicPartition

AnyRecord: TypeAlias = Record[Any, Any]

LARGE_BATCH_COST: Final = 1024 * 1024
"""Cost from which a batch is decompressed in a thread: about 1 ms (see `BatchView`)."""
MAX_DECOMPRESSED_BYTES_PER_POLL: Final = MAX_DECOMPRESSED_BYTES_PER_BATCH
"""Decompressed bytes after which a call opens no further batch."""


class FetchBuffer:
    """Completed fetches of one partition, and the owner of its position.

    Taking records returns them and advances the position past them. Records lent to a stream are
    returned by it one by one, and the position follows.

    Attributes:
        decompressed_bytes: Bytes of decompressed batches; see `take_decompressed_bytes`.
        epoch: Leader epoch of the position.
        full: True if the fetcher has stopped fetching because of this buffer; see `mark_full`.
        size: Bytes kept alive.
        unread_bytes: Fetched bytes of batches that were not read to their end.
    """

    __slots__ = (
        "_batch",
        "_fetches",
        "_position",
        "_reader",
        "_records",
        "_stream",
        "decompressed_bytes",
        "epoch",
        "full",
        "partition",
        "size",
        "unread_bytes",
    )

    def __init__(self, partition: TopicPartition) -> None:
        # For the fetcher: leader epoch of the position, memory, and whether it waits for room.
        self.partition = partition
        self.epoch = UNKNOWN
        self.size = self.unread_bytes = self.decompressed_bytes = 0
        self.full = False
        # Completed fetches, then the open batch with what is left of it.
        self._fetches: deque[CompletedFetch] = deque()
        self._batch: BatchView | None = None  # batch of the records taken last
        self._reader: RecordReader | LegacyRecordReader | None = None  # of the rest of that batch
        # Returned records that were put back; the position is after all that were taken.
        self._records: list[AnyRecord] = []  # records that were put back
        self._position = UNKNOWN  # after the records that were taken, lent ones too
        self._stream: NextRecord | None = None  # has the lent records

    def __bool__(self) -> bool:
        return bool(self._records or self._fetches)

    @property
    def position(self) -> int:
        """Offset of the next record to return."""
        if self._stream is None:
            return self._position
        last = self.last_streamed
        # The stream counts what it has returned.
        return self._stream.records[0].offset if last is None else last.offset + 1

    @property
    def last_streamed(self) -> AnyRecord | None:
        """The lent record that the stream returned last, or None."""
        stream = self._stream
        return None if stream is None or not stream.at else stream.records[stream.at - 1]

    @property
    def has_unreturned(self) -> bool:
        """True if fetched records were not returned, in the buffer or lent."""
        stream = self._stream
        return bool(self) or (stream is not None and stream.at < len(stream.records))

    def add(self, fetched: CompletedFetch) -> None:
        """Append a completed fetch."""
        self._fetches.append(fetched)
        self.size += fetched.retained_bytes
        self.unread_bytes += fetched.unread_bytes

    def clear(self, position: int, epoch: int = UNKNOWN) -> None:
        """Drop everything, lent records included, and set the position."""
        # The stream must not return records from before a seek.
        self.take_back()
        self._fetches.clear()
        self._batch, self._reader, self._records = None, None, []
        self._position, self.epoch = position, epoch
        self.size = self.unread_bytes = 0

    def mark_full(self, *, full: bool) -> None:
        """Record that the fetcher has stopped, or not, because of this buffer."""
        self.full = full

    def take_decompressed_bytes(self) -> int:
        """Return `decompressed_bytes` and count from 0 again."""
        size, self.decompressed_bytes = self.decompressed_bytes, 0
        return size

    @property
    def next_compressed(self) -> BatchView | None:
        """The next batch if it is large and not yet decompressed, or None."""
        # The open batch comes first, and is decompressed already.
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
        # The first batch is the open one, which is decompressed.
        is_open = self._reader is not None
        for fetched in self._fetches:
            for view, is_delivered in fetched.batches:
                if is_delivered and not is_open:
                    yield view
                is_open = False
            if fetched.error is not None:
                # Nothing after an error is read.
                return

    def drop_decompressed(self) -> None:
        """Drop decompressed data of batches that were not read."""
        for view in self.upcoming():
            view.discard_decompressed()

    def take_records(self, limit: int, enough: Callable[[], bool]) -> list[AnyRecord]:
        """Take at most `limit` records; an empty list if none are left.

        Stops before a `next_compressed` batch, and once `enough()` is true. If the next record
        cannot be read, that is raised again until `clear`.
        """
        taken = self.take_chunk(limit)
        # Ends when there are enough, when a thread must decompress the next batch, at the end of
        # the buffer, or before a record that cannot be read.
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
        """Take at most `limit` records of one batch, and at most what is parsed at a time.

        Advances the position past them, and past offsets without records to return.
        """
        # Records that were put back come before the rest of the batch.
        records = self._records[:limit]
        del self._records[:limit]
        while not records and (self._reader is not None or self._open_batch()):
            records = self._read(min(limit, RECORDS_PER_CHUNK))
        # The position follows what is left: put-back records, an open batch, or the end of a batch,
        # which may be beyond its last record (compaction).
        if self._records:
            self._position = self._records[0].offset
        elif self._reader is None:
            self._position = self._end_offset()
        elif records:
            self._position = records[-1].offset + 1
        # The epoch of the last record validates the position against a new leader (KIP-320).
        if records and (epoch := records[-1].leader_epoch) is not None:
            self.epoch = epoch
        return records

    def lend(self, records: list[AnyRecord], stream: NextRecord) -> None:
        """Let a stream return the records that were taken last."""
        stream.records, stream.at = records, 0
        self._stream = stream

    def take_back(self) -> int:
        """Put lent records back that were not returned; return their number."""
        stream, self._stream = self._stream, None
        if stream is None:
            return 0
        rest = stream.records[stream.at :]
        # Emptied first, so that the stream returns none of them.
        stream.records, stream.at = [], 0
        self.put_back(rest)
        return len(rest)

    def release_batch(self) -> None:
        """Keep no reference to the last batch: none of its records will be put back."""
        if self._reader is None and not self._records:
            self._batch = None

    def put_back(self, records: list[AnyRecord]) -> None:
        """Return records to the buffer; they must be the last ones taken of one batch."""
        if records:
            # The last ones taken, so they go in front.
            self._records = records + self._records
            self._position = records[0].offset

    def take_batches(self) -> tuple[list[BatchView], int]:
        """Take all batches, with the offset at which to start in the first one.

        Raises the error in which the first fetch ends, if there is no batch before it.
        """
        start = self._position
        views: list[BatchView] = []
        # Records of the last batch were put back: the batch is returned again, from the position
        # on.
        if self._records and self._reader is None and self._batch is not None:
            views.append(self._batch)
            self._position = self._end_offset()
        self._reader, self._records = None, []
        for fetched in list(self._fetches):
            # A batch that is read halfway is returned whole; the caller starts at `start`.
            views += [view for view, is_delivered in fetched.batches if is_delivered]
            if fetched.error is not None:
                if not views:
                    raise fetched.error
                # Without its batches: the next call raises the error.
                self._keep_error(fetched)
                break
            self._drop_fetch()
            self._pass(fetched)
        self.release_batch()
        return views, start

    def _pass(self, fetched: CompletedFetch) -> None:
        # An empty fetch still moves the position, over aborted and control records.
        self._position = max(self._position, fetched.end)
        if fetched.epoch != UNKNOWN:
            self.epoch = fetched.epoch

    def _keep_error(self, fetched: CompletedFetch) -> None:
        self._pass(fetched)
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
                self._reader = view.reader(max(self._position, 0))
            except CorruptRecordError as error:
                raise with_offset(error, self.partition, self._position) from error
            self.decompressed_bytes += view.decompressed_bytes
        self._batch = view
        if not is_delivered:
            # A batch without records to return, control or aborted, is skipped as a whole.
            self._finish_batch()
        return True

    def _read(self, count: int) -> list[AnyRecord]:
        """Read records of the open batch, if there is one."""
        reader = self._reader
        if reader is None:
            return []
        records: list[AnyRecord] = reader.read(count, BYTES_PER_CHUNK)
        if reader.done:
            self._finish_batch()
        return records

    def _finish_batch(self) -> None:
        """Remove the first batch, which was read to its end."""
        self._reader = None
        head = self._fetches[0]
        view, _ = head.batches.popleft()
        head.unread_bytes -= view.raw.nbytes
        self.unread_bytes -= view.raw.nbytes
        if not head.batches and head.error is None:
            self._drop_fetch()
        self._position = self._end_offset()

    def _end_offset(self) -> int:
        return (
            # Never back: a batch may begin before the position that was sought.
            self._position if self._batch is None else max(self._position, self._batch.next_offset)
        )

    def _drop_fetch(self) -> None:
        fetched = self._fetches.popleft()
        self.size -= fetched.retained_bytes
        self.unread_bytes -= fetched.unread_bytes
