"""A broker that responds to Fetch with the bytes of a test, and a consumer of it.

The broker is scripted, since the embedded cluster refuses malformed batches when they are produced.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka_async.consumer.consumer import Consumer
from kafka_async.consumer.runtime import Engine
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
from tests.cluster.scripted import Peer, World

if TYPE_CHECKING:
    from kafka_async.kernel import Record
    from kafka_async.protocol.header import RequestHeader

assert Engine  # loaded here, and codecs too: not while a test watches its loop
for _codec in Codec:
    compress(_codec, b"")

FETCH, LIST_OFFSETS = 1, 2
BAD, GOOD = TopicPartition("t", 0), TopicPartition("t", 1)


class Feed:
    """Two partitions of a topic, of which the first has something hostile in it.

    `data` is what a fetch from an offset gets, by partition; where there is nothing it waits.
    """

    def __init__(self) -> None:
        self.world = World()
        self.world.add("t", 1, 1)
        self.data: dict[TopicPartition, dict[int, bytes]] = {BAD: {}, GOOD: {}}
        self.aborted: list[tuple[int, int]] = []
        self.high_watermark, self.last_stable_offset = 1 << 40, 1 << 40
        self.world.handlers[FETCH] = self._fetched
        self.world.handlers[LIST_OFFSETS] = self._listed

    def consumer(self, **options: Any) -> Consumer:
        """One that reads both from their beginning."""
        given: dict[str, Any] = {"auto_offset_reset": "earliest", **options}
        return Consumer(
            self.world.servers, partitions=[BAD, GOOD], dialer=self.world.network, **given
        )

    def _fetched(self, peer: Peer, header: RequestHeader, request: FetchRequest) -> None:
        rows = [
            PartitionData(
                partition_index=asked.partition,
                high_watermark=self.high_watermark,
                last_stable_offset=self.last_stable_offset,
                aborted_transactions=[
                    AbortedTransaction(first_offset=first, producer_id=producer)
                    for first, producer in self.aborted
                ],
                records=self.data[TopicPartition("t", asked.partition)].get(asked.fetch_offset),
            )
            for topic in request.topics
            for asked in topic.partitions
        ]
        row = FetchableTopicResponse(topic="t", topic_id=self.world.ids["t"], partitions=rows)
        answer = FetchResponse(responses=[row] if rows else [])
        delay = 0.0 if any(row.records for row in rows) else 0.1
        asyncio.get_running_loop().call_later(delay, say, peer, header, answer)

    def _listed(self, peer: Peer, header: RequestHeader, request: Any) -> ListOffsetsResponse:
        rows = [
            ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=0)
            for topic in request.topics
            for asked in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=rows)])


def say(peer: Peer, header: RequestHeader, answer: FetchResponse) -> None:
    if peer.open:
        peer.respond(header, answer)


class Reader:
    """Polls a consumer: what came of each partition, and what was raised."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.offsets: dict[TopicPartition, list[int]] = {BAD: [], GOOD: []}
        self.values: list[bytes | None] = []
        self.errors: list[CorruptRecordError] = []

    async def poll(self) -> None:
        """Once."""
        records: list[Record] = []
        try:
            records = await self.consumer.poll(timeout=1)
        except CorruptRecordError as error:
            self.errors.append(error)
            await asyncio.sleep(0.01)  # as an application would: virtual time passes only in waits
        for record in records:
            self.offsets[TopicPartition(record.topic, record.partition)].append(record.offset)
            self.values.append(record.value)

    async def until(self, partition: TopicPartition, offsets: list[int]) -> None:
        """Poll until exactly these have come of a partition."""
        for _ in range(50):
            if len(self.offsets[partition]) >= len(offsets):
                break
            await self.poll()
        assert self.offsets[partition] == offsets

    async def until_raised(self, count: int) -> None:
        """Poll until so many errors were raised."""
        for _ in range(50):
            if len(self.errors) >= count:
                return
            await self.poll()
        raise AssertionError(f"only {len(self.errors)} errors were raised")
