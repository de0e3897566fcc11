"""ShareFetch and ShareAcknowledge: requests of a share session, and acquired records. Pure.

A share session is like a fetch session (KIP-227), with the group and the member in place of an id:
epoch 0 opens it, each further request has the next epoch, and epoch -1 ends it. Both kinds of
requests count. Acknowledgements need an open session; ShareFetch carries them for partitions that
it fetches.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kafka_async.config import request_ms
from kafka_async.consumer.buffer.completed_fetch import CompletedFetch
from kafka_async.consumer.fetch.fetch_session import MAX_FETCH_BYTES
from kafka_async.consumer.share.acquired_records import (
    AcknowledgeType,
    AcquiredRecord,
    by_topic_id,
    offset_ranges,
)
from kafka_async.consumer.share.share_record import ShareRecord
from kafka_async.errors import CorruptRecordError, KafkaError, ProtocolError
from kafka_async.foundation.fairness import (
    BATCHES_PER_TIME_CHECK,
    BYTES_PER_CHUNK,
    RECORDS_PER_CHUNK,
)
from kafka_async.protocol.messages import share_acknowledge, share_fetch
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kafka_async.config import ShareConsumerConfig
    from kafka_async.consumer.buffer.deserialize import Convert
    from kafka_async.consumer.fetch.fetch_session import SessionRequest
    from kafka_async.records.batch import BatchView

PartitionT = TypeVar("PartitionT", share_acknowledge.PartitionData, share_fetch.PartitionData)
SESSION_ID: Final = 1
"""Session id for `FetchSession`, which expects one."""
MAX_ACQUIRED_RECORDS: Final = 1_000_000
"""Acquired offsets that a partition of a response may have; brokers lock at most 10,000."""
ACQUIRE_MODES: Final = {"batch_optimized": 0, "record_limit": 1}
"""Numbers of share_acquire_mode in requests (KIP-1206)."""


class ShareMember(NamedTuple):
    """The identity in requests of a share session."""

    group_id: str
    member_id: str


def fetch_request(
    config: ShareConsumerConfig,
    member: ShareMember,
    session: SessionRequest,
    acknowledged: Mapping[TopicPartition, Sequence[AcquiredRecord]],
    topic_ids: Mapping[TopicPartition, UUID],
    *,
    max_records: int,
    max_wait: float,
) -> share_fetch.ShareFetchRequest:
    """Return a request for records, with acknowledgements of partitions in the session."""
    rows: defaultdict[UUID, list[share_fetch.FetchPartition]] = defaultdict(list)
    # Partitions with acknowledgements are included even if they are in the session already.
    named = {partition: fetch.topic_id for partition, fetch in session.to_send.items()}
    for partition, topic_id in {**named, **{tp: topic_ids[tp] for tp in acknowledged}}.items():
        batches = _batches(share_fetch.AcknowledgementBatch, acknowledged.get(partition, ()))
        rows[topic_id].append(
            share_fetch.FetchPartition(
                partition_index=partition.partition, acknowledgement_batches=batches
            )
        )
    forgotten: defaultdict[UUID, list[int]] = defaultdict(list)
    for partition, topic_id in session.to_forget:
        forgotten[topic_id].append(partition.partition)
    return share_fetch.ShareFetchRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=session.epoch,
        max_wait_ms=request_ms(max_wait),
        min_bytes=config.fetch_min_bytes,
        max_bytes=min(config.fetch_max_bytes, MAX_FETCH_BYTES),
        max_records=max_records,
        batch_size=max_records,
        share_acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
        topics=[
            share_fetch.FetchTopic(topic_id=topic_id, partitions=each)
            for topic_id, each in rows.items()
        ],
        forgotten_topics_data=[
            share_fetch.ForgottenTopic(topic_id=topic_id, partitions=each)
            for topic_id, each in forgotten.items()
        ],
    )


def acknowledge_request(
    member: ShareMember,
    epoch: int,
    rows: Iterable[AcquiredRecord],
) -> share_acknowledge.ShareAcknowledgeRequest:
    """Return a request with the acknowledgements of these records."""
    topics: defaultdict[UUID, list[share_acknowledge.AcknowledgePartition]] = defaultdict(list)
    renews = False
    for (topic_id, number), records in by_topic_id(rows).items():
        renews = renews or any(each.type is AcknowledgeType.RENEW for each in records)
        topics[topic_id].append(
            share_acknowledge.AcknowledgePartition(
                partition_index=number,
                acknowledgement_batches=_batches(share_acknowledge.AcknowledgementBatch, records),
            )
        )
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=epoch,
        is_renew_ack=renews,
        topics=[
            share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=each)
            for topic_id, each in topics.items()
        ],
    )


class _Topic(Protocol[PartitionT]):
    topic_id: UUID
    partitions: Sequence[PartitionT]


def named_partitions(
    topics: Iterable[_Topic[PartitionT]], topic_ids: Mapping[TopicPartition, UUID]
) -> Iterator[tuple[TopicPartition, PartitionT]]:
    """Yield the known partitions of a response, with their data."""
    names = {topic_id: partition.topic for partition, topic_id in topic_ids.items()}
    for topic in topics:
        if (name := names.get(topic.topic_id)) is not None:
            for row in topic.partitions:
                if (partition := TopicPartition(name, row.partition_index)) in topic_ids:
                    yield partition, row


def _batches(kind: Any, rows: Iterable[AcquiredRecord]) -> list[Any]:
    return [
        kind(first_offset=each.first, last_offset=each.last, acknowledge_types=each.types)
        for each in offset_ranges(rows)
    ]


class AcquiredPartition:
    """Reads the acquired records of one partition in a ShareFetch response.

    The response contains whole batches, and the ranges of their offsets that this member has
    acquired. Acquired offsets without a record are gaps. A record that cannot be deserialized is
    released. Records that cannot be read are rejected: the broker would send the same bytes again.

    Attributes:
        rows: The acquired offsets; offsets with a record are to be returned.
        acknowledged: Offsets that are acknowledged without being returned.
        error: The first error; a poll raises it after the records have been returned.
    """

    def __init__(
        self,
        partition: TopicPartition,
        data: share_fetch.PartitionData,
        node_id: int,
        locked_until: float,
        topic_id: UUID,
        convert: Convert | None,
    ) -> None:
        self.rows: list[AcquiredRecord] = []
        self.acknowledged: list[tuple[AcquiredRecord, AcknowledgeType]] = []
        self.error: KafkaError | None = None
        self._partition = partition
        self._data = data
        self._source = node_id, locked_until, topic_id
        self._convert = convert

    def read(self) -> Iterator[None]:
        """Read the records, in steps between which other tasks may run."""
        counts = _delivery_counts(self._data.acquired_records)
        if not counts:
            return
        # None for aborted transactions: the broker has left their records out.
        found = CompletedFetch(
            self._partition, memoryview(self._data.records or b""), min(counts), None
        )
        while not found.find_batches(BATCHES_PER_TIME_CHECK):
            yield
        for view, is_returned in found.batches:
            try:
                if is_returned:
                    yield from self._read_batch(view, counts)
            # One batch is corrupt: its offsets are rejected, and the next batch is read.
            except CorruptRecordError as corrupt:
                self.error = self.error or corrupt
                for offset in [o for o in counts if view.base_offset <= o <= view.last_offset]:
                    del counts[offset]
                    self._acknowledge(self._row(offset), AcknowledgeType.REJECT)
                yield
        # What is left in `counts` has no record: gaps, or offsets after the end of the data.
        kind = AcknowledgeType.GAP
        if found.error is not None:
            self.error = self.error or found.error
            corrupt_data = isinstance(found.error, CorruptRecordError)
            kind = AcknowledgeType.REJECT if corrupt_data else AcknowledgeType.RELEASE
        last = self.rows[-1].offset if self.rows else -1
        for offset in counts:
            self._acknowledge(self._row(offset), kind if offset > last else AcknowledgeType.GAP)

    def _read_batch(self, view: BatchView, counts: dict[int, int]) -> Iterator[None]:
        reader = view.reader()
        while not reader.done:
            # Batches also contain records that another member has acquired.
            for record in reader.read(RECORDS_PER_CHUNK, BYTES_PER_CHUNK):
                count = counts.pop(record.offset, None)
                if count is None:
                    continue
                row = self._row(record.offset)
                try:
                    converted = record if self._convert is None else self._convert(record)
                except KafkaError as error:
                    self.error = self.error or error
                    self._acknowledge(row, AcknowledgeType.RELEASE)
                else:
                    row.record = ShareRecord[Any, Any].of(converted, count)
            yield

    def _row(self, offset: int) -> AcquiredRecord:
        row = AcquiredRecord(self._partition, offset, *self._source)
        self.rows.append(row)
        return row

    def _acknowledge(self, row: AcquiredRecord, kind: AcknowledgeType) -> None:
        self.acknowledged.append((row, kind))


def _delivery_counts(ranges: Iterable[share_fetch.AcquiredRecords]) -> dict[int, int]:
    """Return the delivery count of each acquired offset."""
    counts: dict[int, int] = {}
    for each in ranges:
        size = each.last_offset - each.first_offset + 1
        # Checked before the ranges are expanded.
        if size < 0 or len(counts) + size > MAX_ACQUIRED_RECORDS:
            raise ProtocolError(
                f"a ShareFetch response says that offsets {each.first_offset} to "
                f"{each.last_offset} were acquired, more than a broker may lock"
            )
        counts.update(
            dict.fromkeys(range(each.first_offset, each.last_offset + 1), each.delivery_count)
        )
    return counts
