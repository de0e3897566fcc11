"""Reads partitions with plain Fetch requests, without a consumer."""

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
    """Return all records of a partition; with `committed`, without those of aborted transactions.

    The coordinator responds to a commit before it writes the markers. Until then a read_committed
    fetch ends at the last stable offset, so this fetches until the high watermark is reached.
    """
    tp = TopicPartition(topic, partition)
    records: list[Record] = []
    offset = 0
    async with Client(servers) as client, asyncio.timeout(30):
        metadata = await client.metadata_for([topic], timeout=10)
        while True:
            request = fetch(tp, metadata.topic_id(topic), offset, committed=committed)
            response = await client.request(request, to=Leader(tp))
            raise_for(response.error_code)
            data = response.responses[0].partitions[0]
            raise_for(data.error_code)
            offset = append_committed(data, tp, offset, records)
            if offset >= data.high_watermark:
                return records


def fetch(tp: TopicPartition, topic_id: uuid.UUID, offset: int, *, committed: bool) -> FetchRequest:
    part = FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=2**24)
    return FetchRequest(
        max_wait_ms=100,
        min_bytes=0,
        max_bytes=2**25,
        isolation_level=1 if committed else 0,
        session_epoch=-1,
        topics=[FetchTopic(topic=tp.topic, topic_id=topic_id, partitions=[part])],
    )


def append_committed(
    data: PartitionData, tp: TopicPartition, offset: int, records: list[Record]
) -> int:
    """Append the fetched records without aborted ones; return the next offset to fetch."""
    open_aborts = sorted(
        (row.first_offset, row.producer_id) for row in data.aborted_transactions or ()
    )
    aborted: set[int] = set()
    for batch in iter_batches(data.records or b"", topic=tp.topic, partition=tp.partition):
        while open_aborts and open_aborts[0][0] <= batch.last_offset:
            aborted.add(open_aborts.pop(0)[1])
        if batch.is_control:
            if batch.control().kind == "abort":
                aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborted):
            records += batch.records(offset)
        offset = max(offset, batch.next_offset)
    return offset
