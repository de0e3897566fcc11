"""Reading a partition back with plain Fetch requests: what the cluster shows, no consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafka_async import Client, Leader, TopicPartition
from kafka_async.errors import raise_for
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.records.batch import iter_batches

if TYPE_CHECKING:
    import uuid

    from kafka_async import Record
    from kafka_async.protocol.messages.fetch import PartitionData


async def read_partition(
    servers: str, topic: str, partition: int = 0, *, committed: bool = True
) -> list[Record]:
    """The records of a partition, from its start to the end; with `committed`, without those of
    aborted transactions.

    A commit is answered once the coordinator has noted it, and the markers follow: what is read
    meanwhile ends at the last stable offset, so this goes on until that is the end.
    """
    place = TopicPartition(topic, partition)
    records: list[Record] = []
    offset = 0
    async with Client(servers) as client, asyncio.timeout(30):
        metadata = await client.metadata_for([topic], timeout=10)
        while True:
            request = fetch(place, metadata.topic_id(topic), offset, committed=committed)
            answer = await client.request(request, to=Leader(place))
            raise_for(answer.error_code)
            data = answer.responses[0].partitions[0]
            raise_for(data.error_code)
            offset = take(data, place, offset, records)
            if offset >= data.high_watermark:
                return records


def fetch(
    place: TopicPartition, topic_id: uuid.UUID, offset: int, *, committed: bool
) -> FetchRequest:
    part = FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=2**24)
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=0,
        max_bytes=2**25,
        isolation_level=1 if committed else 0,
        session_epoch=-1,
        topics=[FetchTopic(topic=place.topic, topic_id=topic_id, partitions=[part])],
    )


def take(data: PartitionData, place: TopicPartition, offset: int, records: list[Record]) -> int:
    """Add what was fetched, less aborted records; the offset to go on at."""
    begun = sorted((row.first_offset, row.producer_id) for row in data.aborted_transactions or ())
    aborted: set[int] = set()
    for batch in iter_batches(data.records or b"", topic=place.topic, partition=place.partition):
        while begun and begun[0][0] <= batch.last_offset:
            aborted.add(begun.pop(0)[1])
        if batch.is_control:
            if batch.control().kind == "abort":
                aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborted):
            records += batch.records(offset)
        offset = max(offset, batch.next_offset)
    return offset
