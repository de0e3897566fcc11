"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.delete_records import DeleteRecordsRequest
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
)
from kafka_async.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafka_async.types import TopicPartition
from tests.embedded.raw_connection import batch

if TYPE_CHECKING:
    from tests.embedded.harness import ClusterHarness
    from tests.embedded.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
TP = TopicPartition("t", 0)


def write(harness: ClusterHarness, records: bytes) -> None:
    partition = harness.cluster.topics.partition(TP)
    assert partition is not None
    partition.log.append(records, harness.cluster.now_ms())


async def list_offsets(
    connection: RawConnection,
    timestamp: int,
    version: int = 11,
    *,
    partition: int = 0,
    **fields: Any,
) -> ListOffsetsPartitionResponse:
    epoch = fields.pop("current_leader_epoch", -1)
    partitions = {
        "partition_index": partition,
        "timestamp": timestamp,
        "current_leader_epoch": epoch,
    }
    request = ListOffsetsRequest.from_dict(
        {"replica_id": -1, "topics": [{"name": "t", "partitions": [partitions]}]} | fields
    )
    response = await connection.call(request, version)
    ((partition_response,),) = (topic.partitions for topic in response.topics)
    return partition_response


@pytest.mark.parametrize("version", range(1, 12))
async def test_lists_offsets_in_every_version(harness: ClusterHarness, version: int) -> None:
    write(harness, batch(b"a", b"b", timestamps=[10, 20]))
    connection = await harness.connect()
    assert (await list_offsets(connection, EARLIEST, version)).offset == 0
    assert (await list_offsets(connection, LATEST, version)).offset == 2
    found = await list_offsets(connection, 15, version)
    assert (found.offset, found.timestamp) == (1, 20)
    assert found.leader_epoch == (0 if version >= 4 else -1)
    nothing = await list_offsets(connection, 21, version)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)


async def test_special_timestamps_require_their_version(harness: ClusterHarness) -> None:
    write(harness, batch(b"a", b"b", b"c", timestamps=[10, 30, 20]))
    connection = await harness.connect()
    latest = await list_offsets(connection, MAX_TIMESTAMP, 7)
    assert (latest.offset, latest.timestamp) == (1, 30)
    assert (
        await list_offsets(connection, MAX_TIMESTAMP, 6)
    ).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await list_offsets(connection, EARLIEST_LOCAL, 8)).offset == 0
    assert (
        await list_offsets(connection, EARLIEST_LOCAL, 7)
    ).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await list_offsets(connection, LATEST_TIERED, 9)).offset == -1
    assert (await list_offsets(connection, -9)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_read_committed_latest_is_last_stable_offset(harness: ClusterHarness) -> None:
    write(harness, batch(b"a"))
    write(harness, batch(b"b", producer_id=1, epoch=0, sequence=0, transactional=True))
    connection = await harness.connect()
    assert (await list_offsets(connection, LATEST)).offset == 2
    assert (await list_offsets(connection, LATEST, isolation_level=1)).offset == 1


async def test_invalid_requests_are_rejected(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    missing = await list_offsets(connection, LATEST, partition=5)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    newer = await list_offsets(connection, LATEST, current_leader_epoch=1)
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_returns_end_offsets_of_epochs(harness: ClusterHarness) -> None:
    partition = harness.cluster.topics.partition(TP)
    assert partition is not None
    write(harness, batch(b"a", b"b"))
    partition.set_leader(1)
    connection = await harness.connect()
    partitions = [{"partition": 0, "leader_epoch": epoch} for epoch in (0, 1, 2)]
    partitions += [
        {"partition": 0, "leader_epoch": 0, "current_leader_epoch": 0},
        {"partition": 9, "leader_epoch": 0},
    ]
    request = OffsetForLeaderEpochRequest.from_dict(
        {"topics": [{"topic": "t", "partitions": partitions}]}
    )
    ((*found, fenced, missing),) = (
        t.partitions for t in (await connection.call(request, 4)).topics
    )
    assert [(row.leader_epoch, row.end_offset) for row in found] == [(0, 2), (1, 2), (-1, -1)]
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_deletes_records_below_offset(harness: ClusterHarness) -> None:
    write(harness, batch(b"a", b"b", b"c"))
    connection = await harness.connect()

    async def delete(offset: int) -> tuple[int, int]:
        partitions = [{"partition_index": 0, "offset": offset}]
        request = DeleteRecordsRequest.from_dict(
            {"topics": [{"name": "t", "partitions": partitions}]}
        )
        ((partition_response,),) = (
            topic.partitions for topic in (await connection.call(request, 2)).topics
        )
        return partition_response.error_code, partition_response.low_watermark

    assert await delete(2) == (0, 2)
    assert (await list_offsets(connection, EARLIEST)).offset == 2
    assert await delete(4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(-1) == (0, 3)
