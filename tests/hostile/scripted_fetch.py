"""A scripted broker that responds to Fetch with given bytes, and a consumer of it.

The embedded cluster would reject malformed batches when they are produced.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.runtime import ConsumerRuntime
from kafka_async.errors import CorruptRecordError
from kafka_async.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafka_async.records.compression import Codec, compress
from kafka_async.types import TopicPartition
from tests.client.scripted import Peer, World
from tests.hostile.malformed_batches import batch

if TYPE_CHECKING:
    from kafka_async.kernel import Record
    from kafka_async.protocol.header import RequestHeader

assert ConsumerRuntime  # loads it and the codecs before a test measures its event loop
for _codec in Codec:
    compress(_codec, b"")

FETCH, LIST_OFFSETS = 1, 2
BAD, GOOD = TopicPartition("t", 0), TopicPartition("t", 1)


class ScriptedFetch:
    """Scripts the fetch responses for two partitions of a topic; the first has malformed data.

    Attributes:
        data: Bytes by partition and fetch offset; other fetches wait.
    """

    def __init__(self) -> None:
        self.world = World()
        self.world.add("t", 1, 1)
        self.data: dict[TopicPartition, dict[int, bytes]] = {BAD: {}, GOOD: {}}
        self.aborted: list[tuple[int, int]] = []
        self.high_watermark, self.last_stable_offset = 1 << 40, 1 << 40
        self.world.handlers[FETCH] = self._on_fetch
        self.world.handlers[LIST_OFFSETS] = self._on_list_offsets

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer of both partitions from the earliest offset."""
        given: dict[str, Any] = {"auto_offset_reset": "earliest", **options}
        return Consumer(
            self.world.servers, partitions=[BAD, GOOD], dialer=self.world.network, **given
        )

    def _on_fetch(self, peer: Peer, header: RequestHeader, request: FetchRequest) -> None:
        rows = [
            PartitionData(
                partition_index=requested.partition,
                high_watermark=self.high_watermark,
                last_stable_offset=self.last_stable_offset,
                aborted_transactions=[
                    AbortedTransaction(first_offset=first, producer_id=producer)
                    for first, producer in self.aborted
                ],
                records=self.data[TopicPartition("t", requested.partition)].get(
                    requested.fetch_offset
                ),
            )
            for topic in request.topics
            for requested in topic.partitions
        ]
        row = FetchableTopicResponse(topic="t", topic_id=self.world.ids["t"], partitions=rows)
        response = FetchResponse(responses=[row] if rows else [])
        delay = 0.0 if any(row.records for row in rows) else 0.1
        asyncio.get_running_loop().call_later(delay, send_if_open, peer, header, response)

    def _on_list_offsets(
        self, peer: Peer, header: RequestHeader, request: Any
    ) -> ListOffsetsResponse:
        rows = [
            ListOffsetsPartitionResponse(partition_index=requested.partition_index, offset=0)
            for topic in request.topics
            for requested in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])


def send_if_open(peer: Peer, header: RequestHeader, response: FetchResponse) -> None:
    if peer.open:
        peer.respond(header, response)


async def check_consumer_continues(
    read: list[int], malformed: bytes, next_batch: tuple[int, bytes], **options: Any
) -> list[CorruptRecordError]:
    """Check that a consumer returns `read`, then raises at malformed data each time it polls.

    Another partition continues, and so does this one after a seek to the next batch. Return the
    errors.
    """
    script = ScriptedFetch()
    offset, data = next_batch
    script.data[BAD] = {0: malformed, offset: data}
    script.data[GOOD] = {0: batch(base=0), 5: batch()}
    script.aborted = options.pop("aborted", [])
    async with script.consumer(**options) as consumer:
        reader = Reader(consumer)
        await reader.until_errors(2)
        errors = list(reader.errors)
        for error in errors:
            assert (error.topic, error.partition) == BAD
            assert error.offset is not None
            assert error.offset > max(read, default=-1)
        assert reader.offsets[BAD] == read
        await reader.until(GOOD, list(range(10)))
        script.data[GOOD][10] = batch(base=10)
        await reader.until(GOOD, list(range(15)))
        consumer.seek(BAD, offset)
        script.aborted = []
        await reader.until(BAD, [*read, *range(offset, offset + 5)])
    return errors


class Reader:
    """Polls a consumer and collects offsets by partition, values and errors."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.offsets: dict[TopicPartition, list[int]] = {BAD: [], GOOD: []}
        self.values: list[bytes | None] = []
        self.errors: list[CorruptRecordError] = []

    async def poll(self) -> None:
        """Poll once."""
        records: list[Record] = []
        try:
            records = await self.consumer.poll(timeout=1)
        except CorruptRecordError as error:
            self.errors.append(error)
            await asyncio.sleep(0.01)  # virtual time advances only in waits
        for record in records:
            self.offsets[TopicPartition(record.topic, record.partition)].append(record.offset)
            self.values.append(record.value)

    async def until(self, partition: TopicPartition, offsets: list[int]) -> None:
        """Poll until a partition has returned exactly these offsets."""
        for _ in range(50):
            if len(self.offsets[partition]) >= len(offsets):
                break
            await self.poll()
        assert self.offsets[partition] == offsets

    async def until_errors(self, count: int) -> None:
        """Poll until this many errors were raised."""
        for _ in range(50):
            if len(self.errors) >= count:
                return
            await self.poll()
        raise AssertionError(f"only {len(self.errors)} errors were raised")
