"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.protocol.messages.delete_records import DeleteRecordsRequest
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
)
from kafka_async.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafka_async.types import TopicPartition
from tests.embedded.wire import batch

if TYPE_CHECKING:
    from tests.embedded.stage import Stage
    from tests.embedded.wire import Peer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
TP = TopicPartition("t", 0)


def write(stage: Stage, records: bytes) -> None:
    partition = stage.cluster.topics.partition(TP)
    assert partition is not None
    partition.log.append(records, stage.cluster.now_ms())


async def ask(
    peer: Peer, timestamp: int, version: int = 11, *, partition: int = 0, **fields: Any
) -> ListOffsetsPartitionResponse:
    epoch = fields.pop("current_leader_epoch", -1)
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    request = ListOffsetsRequest.from_dict(
        {"replica_id": -1, "topics": [{"name": "t", "partitions": [asked]}]} | fields
    )
    response = await peer.ask(request, version)
    ((answer,),) = (topic.partitions for topic in response.topics)
    return answer


@pytest.mark.parametrize("version", range(1, 12))
async def test_every_version_knows_the_ends_and_times(stage: Stage, version: int) -> None:
    write(stage, batch(b"a", b"b", timestamps=[10, 20]))
    peer = await stage.peer()
    assert (await ask(peer, EARLIEST, version)).offset == 0
    assert (await ask(peer, LATEST, version)).offset == 2
    found = await ask(peer, 15, version)
    assert (found.offset, found.timestamp) == (1, 20)
    assert found.leader_epoch == (0 if version >= 4 else -1)
    nothing = await ask(peer, 21, version)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)


async def test_special_times_need_their_version(stage: Stage) -> None:
    write(stage, batch(b"a", b"b", b"c", timestamps=[10, 30, 20]))
    peer = await stage.peer()
    latest = await ask(peer, MAX_TIMESTAMP, 7)
    assert (latest.offset, latest.timestamp) == (1, 30)
    assert (await ask(peer, MAX_TIMESTAMP, 6)).error_code == Code.UNSUPPORTED_VERSION
    assert (await ask(peer, EARLIEST_LOCAL, 8)).offset == 0
    assert (await ask(peer, EARLIEST_LOCAL, 7)).error_code == Code.UNSUPPORTED_VERSION
    assert (await ask(peer, LATEST_TIERED, 9)).offset == -1
    assert (await ask(peer, -9)).error_code == Code.UNSUPPORTED_VERSION


async def test_committed_readers_end_at_the_stable_offset(stage: Stage) -> None:
    write(stage, batch(b"a"))
    write(stage, batch(b"b", producer_id=1, epoch=0, sequence=0, transactional=True))
    peer = await stage.peer()
    assert (await ask(peer, LATEST)).offset == 2
    assert (await ask(peer, LATEST, isolation_level=1)).offset == 1


async def test_refusals(stage: Stage) -> None:
    peer = await stage.peer()
    missing = await ask(peer, LATEST, partition=5)
    assert missing.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    newer = await ask(peer, LATEST, current_leader_epoch=1)
    assert newer.error_code == Code.UNKNOWN_LEADER_EPOCH


async def test_the_ends_of_epochs(stage: Stage) -> None:
    partition = stage.cluster.topics.partition(TP)
    assert partition is not None
    write(stage, batch(b"a", b"b"))
    partition.lead(1)
    peer = await stage.peer()
    asked = [{"partition": 0, "leader_epoch": epoch} for epoch in (0, 1, 2)]
    asked += [
        {"partition": 0, "leader_epoch": 0, "current_leader_epoch": 0},
        {"partition": 9, "leader_epoch": 0},
    ]
    request = OffsetForLeaderEpochRequest.from_dict(
        {"topics": [{"topic": "t", "partitions": asked}]}
    )
    ((*found, fenced, missing),) = (t.partitions for t in (await peer.ask(request, 4)).topics)
    assert [(row.leader_epoch, row.end_offset) for row in found] == [(0, 2), (1, 2), (-1, -1)]
    assert fenced.error_code == Code.FENCED_LEADER_EPOCH
    assert missing.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_deleted_records(stage: Stage) -> None:
    write(stage, batch(b"a", b"b", b"c"))
    peer = await stage.peer()

    async def delete(offset: int) -> tuple[int, int]:
        asked = [{"partition_index": 0, "offset": offset}]
        request = DeleteRecordsRequest.from_dict({"topics": [{"name": "t", "partitions": asked}]})
        ((answer,),) = (topic.partitions for topic in (await peer.ask(request, 2)).topics)
        return answer.error_code, answer.low_watermark

    assert await delete(2) == (0, 2)
    assert (await ask(peer, EARLIEST)).offset == 2
    assert await delete(4) == (Code.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(-1) == (0, 3)
