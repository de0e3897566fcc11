"""The log of one partition: what is accepted, where it ends, what may be read. Pure.

Offsets: `start_offset` is the first that is left, `end_offset` the next that will be written (and
the high watermark, see partition.py), `stable_offset` the first of the oldest open transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import crc32c  # noqa: F401  # pyright: ignore[reportUnusedImport]  # here, or the first CRC blocks

from kafka_async.embedded.producers import Producers
from kafka_async.embedded.record_rules import RecordRules
from kafka_async.embedded.request_validation import producer_batch, validate_batch
from kafka_async.embedded.segments import Segments
from kafka_async.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from kafka_async.records.batch import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    BatchView,
    assign_offsets,
)
from kafka_async.records.control import encode_control_batch
from kafka_async.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

    from kafka_async.embedded.producers import AbortedTransaction
    from kafka_async.embedded.segments import StoredBatch

ControlRecordType: TypeAlias = Literal["commit", "abort"]
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NEVER: Final = 2**63 - 1
NEWEST_PRODUCE: Final = 13


class Appended(NamedTuple):
    """Where a batch is.

    `append_time` is NO_TIMESTAMP unless the topic has LogAppendTime; for a repetition it is the
    time of the first one's last record, whoever set that, as a broker answers.
    """

    base_offset: int
    append_time: int
    duplicate: bool


class EpochEnd(NamedTuple):
    """The end of a leader epoch: the offset after its last record. -1, -1 if it is unknown."""

    epoch: int
    end_offset: int


class FetchedData(NamedTuple):
    """What a read found. `aborted` is None unless the reader asked for committed records only."""

    records: memoryview
    aborted: list[AbortedTransaction] | None


class PartitionLog:
    """Batches, producers and leader epochs of a partition. Times are epoch milliseconds."""

    def __init__(self, producer_expiration_ms: int = 86_400_000) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.max_message_bytes = 1_048_588
        self.log_append_time = False
        self.min_insync_replicas = 1
        self.segment_bytes = 1_073_741_824
        self.retention_ms = self.retention_bytes = -1
        self.deletes = True
        self.rules = RecordRules(False, True, NEVER, 3_600_000)
        self.producers = Producers(producer_expiration_ms)
        self._segments = Segments()
        self._epochs: list[EpochEnd] = [EpochEnd(0, 0)]  # epoch and the offset it starts at

    # -- settings and epochs ----------------------------------------------------------------------

    def configure(self, configs: Mapping[str, str]) -> None:
        """Follow the topic's settings (all of them, see configs.py)."""
        self.max_message_bytes = int(configs["max.message.bytes"])
        self.log_append_time = configs["message.timestamp.type"] == "LogAppendTime"
        self.min_insync_replicas = int(configs["min.insync.replicas"])
        self.segment_bytes = int(configs["segment.bytes"])
        self.deletes = configs["cleanup.policy"] != "compact"
        self.rules = RecordRules.of(configs)
        deletes = "delete" in configs["cleanup.policy"].split(",")
        self.retention_ms = int(configs["retention.ms"]) if deletes else -1
        self.retention_bytes = int(configs["retention.bytes"]) if deletes else -1
        self._segments.limit(self.segment_bytes, int(configs["segment.ms"]))

    @property
    def leader_epoch(self) -> int:
        """The epoch that is written into batches."""
        return self._epochs[-1].epoch

    def new_epoch(self, epoch: int) -> None:
        """A leader was elected: what comes now is of its epoch."""
        while self._epochs and self._epochs[-1].end_offset >= self.end_offset:
            self._epochs.pop()
        self._epochs.append(EpochEnd(epoch, self.end_offset))

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was written, NO_EPOCH if that is not known."""
        index = bisect_right(self._epochs, offset, key=lambda entry: entry.end_offset)
        return self._epochs[index - 1].epoch if index else NO_EPOCH

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return where the latest epoch that is not after `epoch` ends (KIP-101, KIP-279)."""
        if epoch == NO_EPOCH:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, self.end_offset)
        index = bisect_right(self._epochs, epoch, key=lambda entry: entry.epoch)
        if index == len(self._epochs):
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        found = self._epochs[index - 1].epoch if index else epoch
        return EpochEnd(found, self._epochs[index].end_offset)

    # -- writing ----------------------------------------------------------------------------------

    def append(self, records: Buffer | None, now: int) -> Appended:
        """Check a producer's batch and write it; raises what the checks and `write` do."""
        batch = producer_batch(records, NEWEST_PRODUCE)
        self.check_bytes(batch)
        validate_batch(batch)
        return self.write(batch, now)

    def write(self, batch: BatchView, now: int, *, from_zero: bool = False) -> Appended:
        """Write a batch that is valid; a repetition is answered with where the first one lies.

        Raises what `Producers.check` does, which knows `from_zero`.
        """
        header = batch.header
        if header.producer_id != NO_PRODUCER_ID:
            written = self.producers.check(header, now, from_zero=from_zero)
            if written is not None:
                return Appended(written.base_offset, written.timestamp, duplicate=True)
        base_offset = self.end_offset
        raw: Buffer = batch.raw
        timestamp = header.max_timestamp
        if self.log_append_time:
            raw, timestamp = assign_offsets(raw, base_offset, self.leader_epoch, now), now
        self._store(raw, header.last_offset_delta, timestamp)
        if header.producer_id != NO_PRODUCER_ID:
            self.producers.record(header, base_offset, timestamp, now)
        return Appended(base_offset, now if self.log_append_time else NO_TIMESTAMP, duplicate=False)

    def append_marker(
        self,
        kind: ControlRecordType,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now: int,
    ) -> int:
        """End a producer's transaction; the marker's offset. Raises InvalidProducerEpochError."""
        self.producers.check_marker(producer_id, producer_epoch)
        offset = self.end_offset
        marker = encode_control_batch(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now,
        )
        self._store(marker, 0, now)
        self.producers.end_transaction(
            producer_id, producer_epoch, coordinator_epoch, offset, now, aborted=kind == "abort"
        )
        return offset

    def delete_records_before(self, offset: int) -> int:
        """Delete what is below an offset (-1: all); the new start. Raises OffsetOutOfRangeError."""
        target = self.end_offset if offset == -1 else offset
        if not 0 <= target <= self.end_offset:
            raise OffsetOutOfRangeError(f"there is no offset {offset} to delete up to")
        if target > self.start_offset:
            self.start_offset = target
            self._segments.drop_below(target)
            self.producers.drop_below(target)
        return self.start_offset

    def retain(self, now: int) -> bool:
        """Delete the segments that are too old or too many; return whether there were any.

        Those that are too many are deleted with the write that begins a segment, too, so that a
        log without time limit is bounded without a call of this.
        """
        return self._delete_expired(now - self.retention_ms if self.retention_ms >= 0 else -1)

    def _delete_expired(self, expired: int) -> bool:
        kept = self._segments.first_kept(self.retention_bytes, expired)
        if kept is None:
            return False
        self.delete_records_before(kept)
        return True

    def check_bytes(self, batch: BatchView) -> None:
        """Check the size and the CRC of a batch.

        Raises RecordTooLargeError, RecordBatchTooLargeError and CorruptRecordError.
        """
        size = batch.raw.nbytes
        if size > self.max_message_bytes:
            raise RecordTooLargeError(
                f"The record batch has {size} bytes, which exceeds the maximum of "
                f"{self.max_message_bytes}"
            )
        batch.check_crc()
        if size > self.segment_bytes:
            raise RecordBatchTooLargeError(
                f"Message batch size is {size} bytes in append, which exceeds the maximum "
                f"configured segment size of {self.segment_bytes}."
            )

    def _store(self, raw: Buffer, last_offset_delta: int, max_timestamp: int) -> None:
        base_offset = self.end_offset
        last_offset = base_offset + last_offset_delta
        began = self._segments.append(
            raw, base_offset, last_offset, self.leader_epoch, max_timestamp
        )
        self.end_offset = last_offset + 1
        if began:
            self._delete_expired(expired=-1)

    # -- reading ----------------------------------------------------------------------------------

    @property
    def allocated(self) -> int:
        """Bytes of memory that the log's batches take."""
        return self._segments.allocated

    @property
    def size(self) -> int:
        """Bytes of all batches that are left."""
        return self._segments.size

    @property
    def stable_offset(self) -> int:
        """The first offset of the oldest open transaction, else the end (LSO)."""
        first = self.producers.first_open_offset
        return self.end_offset if first is None else max(first, self.start_offset)

    def upper(self, *, committed: bool) -> int:
        """The offset below which a reader sees."""
        return self.stable_offset if committed else self.end_offset

    def check_offset(self, offset: int) -> None:
        """Raise OffsetOutOfRangeError unless reading may begin at an offset."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not within {self.start_offset} and {self.end_offset}"
            )

    def read(
        self, offset: int, max_bytes: int, *, committed: bool = False, at_least_one: bool = True
    ) -> FetchedData:
        """Whole batches from the one that holds `offset` on, as one view; see `Segments.read`."""
        upper = self.upper(committed=committed)
        records = self._segments.read(offset, upper, max_bytes, at_least_one=at_least_one)
        return FetchedData(records, self.producers.aborted(offset, upper) if committed else None)

    def available(self, offset: int, *, committed: bool = False) -> int:
        """Bytes that can be read from an offset on."""
        return self._segments.bytes_from(offset, self.upper(committed=committed))

    def offset_for_time(
        self, timestamp: int, *, committed: bool = False
    ) -> OffsetAndTimestamp | None:
        """The first record of this time or later; None if there is none."""
        upper = self.upper(committed=committed)
        for stored in self._segments.since(timestamp):
            if stored.base_offset >= upper:
                break
            if stored.max_timestamp >= timestamp:
                found = self._first_since(stored, timestamp, upper)
                if found is not None:
                    return found
        return None

    def latest_time(self) -> OffsetAndTimestamp | None:
        """The first record that has the highest timestamp (KIP-734)."""
        stored = self._segments.latest()
        if stored is None:
            return None
        return self._first_since(stored, stored.max_timestamp, self.end_offset)

    def _first_since(
        self, stored: StoredBatch, timestamp: int, upper: int
    ) -> OffsetAndTimestamp | None:
        raw = self._segments.raw(stored)
        try:
            records = BatchView(BatchHeader.unpack(raw), raw, None, None).records()
        except (
            CorruptRecordError
        ):  # its header and CRC are right, its inside is the producer's fault
            return OffsetAndTimestamp(
                stored.base_offset, stored.max_timestamp, self.epoch_of(stored.base_offset)
            )
        for record in records:
            if record.timestamp >= timestamp and self.start_offset <= record.offset < upper:
                return OffsetAndTimestamp(
                    record.offset, record.timestamp, self.epoch_of(record.offset)
                )
        return None
