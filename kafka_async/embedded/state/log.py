"""The log of one partition: appends, leader epochs, retention, reads. Pure.

`start_offset` is the log start offset, `end_offset` the log end offset and also the high watermark
(see partition.py), `last_stable_offset` the first offset of the oldest ongoing transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import crc32c  # noqa: F401  # pyright: ignore[reportUnusedImport]  # else the first CRC imports it

from kafka_async.embedded.request_validation import require_single_batch, validate_batch
from kafka_async.embedded.state.log_segments import LogSegments
from kafka_async.embedded.state.producer_state_manager import ProducerStateManager
from kafka_async.embedded.state.record_validator import RecordValidator
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
    encode_control_batch,
)
from kafka_async.types import OffsetAndTimestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

    from kafka_async.embedded.state.log_segments import StoredBatch
    from kafka_async.embedded.state.producer_state_manager import AbortedTxn

ControlRecordType: TypeAlias = Literal["commit", "abort"]
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
MAX_LONG: Final = 2**63 - 1
LATEST_PRODUCE_VERSION: Final = 13


class LogAppendInfo(NamedTuple):
    """Describes an appended batch, or the earlier batch that it duplicates.

    `append_time` is NO_TIMESTAMP unless the topic has LogAppendTime. For a duplicate it is the
    maximum timestamp of the earlier batch, as in a broker's response.
    """

    base_offset: int
    append_time: int
    duplicate: bool


class EpochAndOffset(NamedTuple):
    """Holds a leader epoch and its start or end offset; both are -1 if unknown."""

    epoch: int
    offset: int


class FetchDataInfo(NamedTuple):
    """Holds the batches of a read; `aborted` is None unless the reader is read_committed."""

    records: memoryview
    aborted: list[AbortedTxn] | None


class PartitionLog:
    """Stores a partition's batches. Times are milliseconds since the epoch."""

    def __init__(self, producer_expiration_ms: int = 86_400_000) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.max_message_bytes = 1_048_588
        self.log_append_time = False
        self.min_insync_replicas = 1
        self.segment_bytes = 1_073_741_824
        self.retention_ms = self.retention_bytes = -1
        self.allows_record_deletion = True
        self.record_validator = RecordValidator(False, True, MAX_LONG, 3_600_000)
        self.producer_state_manager = ProducerStateManager(producer_expiration_ms)
        self._segments = LogSegments()
        self._leader_epochs: list[EpochAndOffset] = [EpochAndOffset(0, 0)]  # start offsets

    # -- configuration and leader epochs ----------------------------------------------------------

    def configure(self, configs: Mapping[str, str]) -> None:
        """Apply the topic's configurations; `configs` has all of them (see configs.py)."""
        self.max_message_bytes = int(configs["max.message.bytes"])
        self.log_append_time = configs["message.timestamp.type"] == "LogAppendTime"
        self.min_insync_replicas = int(configs["min.insync.replicas"])
        self.segment_bytes = int(configs["segment.bytes"])
        self.allows_record_deletion = configs["cleanup.policy"] != "compact"
        self.record_validator = RecordValidator.of(configs)
        deletes = "delete" in configs["cleanup.policy"].split(",")
        self.retention_ms = int(configs["retention.ms"]) if deletes else -1
        self.retention_bytes = int(configs["retention.bytes"]) if deletes else -1
        self._segments.configure(self.segment_bytes, int(configs["segment.ms"]))

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch, which is written into batches."""
        return self._leader_epochs[-1].epoch

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log end offset."""
        while self._leader_epochs and self._leader_epochs[-1].offset >= self.end_offset:
            self._leader_epochs.pop()
        self._leader_epochs.append(EpochAndOffset(epoch, self.end_offset))

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch of an offset; NO_EPOCH if it is unknown."""
        index = bisect_right(self._leader_epochs, offset, key=lambda entry: entry.offset)
        return self._leader_epochs[index - 1].epoch if index else NO_EPOCH

    def end_offset_for_epoch(self, epoch: int) -> EpochAndOffset:
        """Return the largest epoch up to `epoch`, with its end offset (KIP-101, KIP-279)."""
        if epoch == NO_EPOCH:
            return EpochAndOffset(NO_EPOCH, NO_OFFSET)
        if epoch == self.leader_epoch:
            return EpochAndOffset(epoch, self.end_offset)
        index = bisect_right(self._leader_epochs, epoch, key=lambda entry: entry.epoch)
        if index == len(self._leader_epochs):
            return EpochAndOffset(NO_EPOCH, NO_OFFSET)
        found = self._leader_epochs[index - 1].epoch if index else epoch
        return EpochAndOffset(found, self._leader_epochs[index].offset)

    # -- appends ----------------------------------------------------------------------------------

    def append(self, records: Buffer | None, now: int) -> LogAppendInfo:
        """Validate a producer's batch and append it; see `write`."""
        batch = require_single_batch(records, LATEST_PRODUCE_VERSION)
        self.validate_size_and_crc(batch)
        validate_batch(batch)
        return self.write(batch, now)

    def write(
        self, batch: BatchView, now: int, *, requires_zero_sequence: bool = False
    ) -> LogAppendInfo:
        """Append a valid batch, unless it duplicates an earlier one; `now` is milliseconds.

        With `requires_zero_sequence` a producer without state must begin with sequence 0.
        """
        header = batch.header
        if header.producer_id != NO_PRODUCER_ID:
            duplicate_of = self.producer_state_manager.check_batch_sequence(
                header, now, requires_zero_sequence=requires_zero_sequence
            )
            if duplicate_of is not None:
                return LogAppendInfo(
                    duplicate_of.base_offset, duplicate_of.timestamp, duplicate=True
                )
        base_offset = self.end_offset
        raw: Buffer = batch.raw
        timestamp = header.max_timestamp
        if self.log_append_time:
            raw, timestamp = assign_offsets(raw, base_offset, self.leader_epoch, now), now
        self._append_to_segments(raw, header.last_offset_delta, timestamp)
        if header.producer_id != NO_PRODUCER_ID:
            self.producer_state_manager.update(header, base_offset, timestamp, now)
        return LogAppendInfo(
            base_offset, now if self.log_append_time else NO_TIMESTAMP, duplicate=False
        )

    def append_end_txn_marker(
        self,
        kind: ControlRecordType,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now: int,
    ) -> int:
        """Append a transaction marker and return its offset."""
        self.producer_state_manager.check_marker_epoch(producer_id, producer_epoch)
        offset = self.end_offset
        marker = encode_control_batch(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now,
        )
        self._append_to_segments(marker, 0, now)
        self.producer_state_manager.end_transaction(
            producer_id, producer_epoch, coordinator_epoch, offset, now, aborted=kind == "abort"
        )
        return offset

    def delete_records_before(self, offset: int) -> int:
        """Delete the records below an offset (-1: all) and return the log start offset."""
        target = self.end_offset if offset == -1 else offset
        if not 0 <= target <= self.end_offset:
            raise OffsetOutOfRangeError(f"offset {offset} is not in the log")
        if target > self.start_offset:
            self.start_offset = target
            self._segments.delete_below(target)
            self.producer_state_manager.delete_below(target)
        return self.start_offset

    def delete_old_segments(self, now: int) -> bool:
        """Delete segments beyond the retention time or size; return True if any were deleted.

        An append that begins a segment also applies the retention size, which bounds the log
        between calls.
        """
        min_timestamp = now - self.retention_ms if self.retention_ms >= 0 else -1
        return self._apply_retention(min_timestamp)

    def _apply_retention(self, min_timestamp: int) -> bool:
        first_retained = self._segments.first_retained_offset(self.retention_bytes, min_timestamp)
        if first_retained is None:
            return False
        self.delete_records_before(first_retained)
        return True

    def validate_size_and_crc(self, batch: BatchView) -> None:
        """Validate the size and the CRC of a batch."""
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

    def _append_to_segments(self, raw: Buffer, last_offset_delta: int, max_timestamp: int) -> None:
        base_offset = self.end_offset
        last_offset = base_offset + last_offset_delta
        began = self._segments.append(
            raw, base_offset, last_offset, self.leader_epoch, max_timestamp
        )
        self.end_offset = last_offset + 1
        if began:
            self._apply_retention(min_timestamp=-1)

    # -- reads ------------------------------------------------------------------------------------

    @property
    def allocated_bytes(self) -> int:
        """Bytes of memory allocated for segments."""
        return self._segments.allocated_bytes

    @property
    def size(self) -> int:
        """Bytes of all batches in the log."""
        return self._segments.size

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest ongoing transaction, else the log end offset (LSO)."""
        first = self.producer_state_manager.first_unstable_offset
        return self.end_offset if first is None else max(first, self.start_offset)

    def max_readable_offset(self, *, committed: bool) -> int:
        """Return the LSO for a read_committed reader, else the high watermark."""
        return self.last_stable_offset if committed else self.end_offset

    def check_offset(self, offset: int) -> None:
        """Raise OffsetOutOfRangeError unless a fetch may begin at an offset."""
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is not within {self.start_offset} and {self.end_offset}"
            )

    def read(
        self, offset: int, max_bytes: int, *, committed: bool = False, at_least_one: bool = True
    ) -> FetchDataInfo:
        """Return whole batches from the one with `offset` on; see `LogSegments.read`."""
        upper = self.max_readable_offset(committed=committed)
        records = self._segments.read(offset, upper, max_bytes, at_least_one=at_least_one)
        return FetchDataInfo(
            records, self.producer_state_manager.aborted_txns(offset, upper) if committed else None
        )

    def fetch_offset_by_timestamp(
        self, timestamp: int, *, committed: bool = False
    ) -> OffsetAndTimestamp | None:
        """Return the first record with this or a later timestamp, or None."""
        upper = self.max_readable_offset(committed=committed)
        for stored in self._segments.batches_since(timestamp):
            if stored.base_offset >= upper:
                break
            if stored.max_timestamp >= timestamp:
                found = self._search_batch(stored, timestamp, upper)
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self) -> OffsetAndTimestamp | None:
        """Return the first record with the highest timestamp, or None without records (KIP-734)."""
        stored = self._segments.batch_with_max_timestamp()
        if stored is None:
            return None
        return self._search_batch(stored, stored.max_timestamp, self.end_offset)

    def _search_batch(
        self, stored: StoredBatch, timestamp: int, upper: int
    ) -> OffsetAndTimestamp | None:
        raw = self._segments.raw(stored)
        try:
            records = BatchView(BatchHeader.unpack(raw), raw, None, None).records()
        except CorruptRecordError:  # appends do not validate every record
            return OffsetAndTimestamp(
                stored.base_offset, stored.max_timestamp, self.epoch_for_offset(stored.base_offset)
            )
        for record in records:
            if record.timestamp >= timestamp and self.start_offset <= record.offset < upper:
                return OffsetAndTimestamp(
                    record.offset, record.timestamp, self.epoch_for_offset(record.offset)
                )
        return None
