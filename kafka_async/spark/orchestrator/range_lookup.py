"""Looks up offsets, timestamps and record sizes, for plans and triggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.client.fan_out import call_each
from kafka_async.client.metadata.request_router import Leader
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.consumer.consumer import Consumer
from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.records.batch import iter_batches
from kafka_async.spark.orchestrator.ranges import SizeSample, partition_of
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafka_async.client.client import Client
    from kafka_async.kernel import Record
    from kafka_async.spark.offsets import OffsetRange
    from kafka_async.spark.orchestrator.ranges import Ranges

SAMPLES: Final = 8
"""Samples of record sizes per range."""
SAMPLE_BYTES: Final = 1 << 16
"""Bytes fetched per sample."""


class RangeLookup:
    """Looks up offsets as seen by read_committed consumers.

    Args:
        client: A started client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._consumer = Consumer(client, partitions=(), isolation_level="read_committed")

    async def start(self) -> None:
        """Start the consumer that looks up offsets."""
        await self._consumer.start()

    async def stop(self) -> None:
        """Stop the consumer."""
        await self._consumer.stop()

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; UnknownTopicOrPartitionError if it does not exist."""
        return [TopicPartition(topic, p) for p in await self._consumer.partitions_for(topic)]

    async def missing_topics(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that do not exist."""
        missing: list[str] = []
        for topic in topics:
            try:
                await self._consumer.partitions_for(topic)
            except UnknownTopicOrPartitionError:
                missing.append(topic)
        return missing

    async def bounds(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the last stable offset of partitions."""
        first = await self._consumer.beginning_offsets(partitions)
        last = await self._consumer.end_offsets(partitions)
        return {tp: (first[tp], last[tp]) for tp in partitions}

    async def ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of partitions."""
        return await self._consumer.end_offsets(partitions)

    async def first_since(
        self, partitions: Sequence[TopicPartition], when: float
    ) -> dict[TopicPartition, int]:
        """Return the first offset at or after `when`, in seconds since the epoch.

        It is the last stable offset if all records are older.
        """
        found = await self._consumer.offsets_for_times(dict.fromkeys(partitions, when))
        ends = await self._consumer.end_offsets(partitions)
        return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}

    async def sample_sizes(self, ranges: Ranges) -> dict[TopicPartition, list[SizeSample]]:
        """Return stored bytes per offset at evenly spaced offsets of each range."""
        samples = await call_each(ranges, self._sample_range)
        return {partition_of(part): found for part, found in samples.items()}

    async def _sample_range(self, part: OffsetRange) -> list[SizeSample]:
        found: list[SizeSample] = []
        for offset in range(part.start, part.end, max(1, part.size // SAMPLES)):
            if found and found[-1].offset >= offset:
                continue
            sample = await self._sample(partition_of(part), offset)
            if sample is not None:
                found.append(sample)
        return found

    async def _sample(self, partition: TopicPartition, offset: int) -> SizeSample | None:
        request = FetchRequest(
            max_bytes=SAMPLE_BYTES,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=partition.topic,
                    partitions=[
                        FetchPartition(
                            partition=partition.partition,
                            fetch_offset=offset,
                            partition_max_bytes=SAMPLE_BYTES,
                        )
                    ],
                )
            ],
        )
        response = await self._client.request(
            request,
            to=Leader(partition),
            max_version=LAST_VERSION_WITH_NAMES[FetchRequest.API_KEY],
        )
        data = {
            TopicPartition(topic.topic, row.partition_index): row.records
            for topic in response.responses
            for row in topic.partitions
        }
        batches = list(iter_batches(data.get(partition) or b"", topic=partition.topic))
        if not batches:
            return None
        last = batches[-1].header
        first = batches[0].header.base_offset
        offsets = last.base_offset + last.last_offset_delta + 1 - first
        return SizeSample(offset, sum(len(batch.raw) for batch in batches) / offsets)

    async def read_record(self, partition: TopicPartition, offset: int) -> Record | None:
        """Return the committed record at an offset, or None."""
        async with Consumer(
            self._client,
            partitions=[partition],
            isolation_level="read_committed",
            auto_offset_reset="none",
        ) as consumer:
            consumer.seek(partition, offset)
            while await consumer.position(partition) <= offset:
                for record in await consumer.poll(timeout=0.25, max_records=1):
                    return record if record.offset == offset else None
        return None
