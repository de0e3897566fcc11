"""Produce over raw connections: offsets, errors, leader hints, acks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka_async.types import TopicPartition
from tests.embedded.raw_connection import batch

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness
    from tests.embedded.harness import ClusterHarness

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

VERSIONS = range(3, 14)


def produce(
    harness: ClusterHarness,
    version: int,
    records: bytes | None,
    *,
    topic: str = "t",
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: UUID | None = None,
) -> ProduceRequest:
    known = harness.cluster.topics.get(topic)
    named: dict[str, object] = {"name": topic}
    if version >= 13:
        named = {"topic_id": topic_id or (known.id if known else UUID(int=77))}
    return ProduceRequest.from_dict(
        {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout_ms": 1_000,
            "topic_data": [{**named, "partition_data": [{"index": partition, "records": records}]}],
        }
    )


def only_partition(response: ProduceResponse) -> PartitionProduceResponse:
    ((partition_response,),) = (topic.partition_responses for topic in response.responses)
    return partition_response


@pytest.mark.parametrize("version", VERSIONS)
async def test_appends_in_every_version(harness: ClusterHarness, version: int) -> None:
    connection = await harness.connect()
    await connection.call(produce(harness, version, batch(b"a", b"b")), version)
    partition_response = only_partition(
        await connection.call(produce(harness, version, batch(b"c")), version)
    )
    assert (
        partition_response.error_code,
        partition_response.base_offset,
        partition_response.log_append_time_ms,
    ) == (0, 2, -1)
    partition = harness.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition.log.end_offset == 3


async def test_duplicate_batch_returns_first_offset(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    first = batch(b"a", producer_id=5, epoch=0, sequence=0)
    for records in (first, batch(b"b", producer_id=5, epoch=0, sequence=1)):
        await connection.call(produce(harness, 11, records), 11)
    partition_response = only_partition(await connection.call(produce(harness, 11, first), 11))
    assert (partition_response.error_code, partition_response.base_offset) == (0, 0)


async def test_returns_log_append_time(start_harness: StartHarness) -> None:
    harness = await start_harness()
    await harness.cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    connection = await harness.connect()
    partition_response = only_partition(
        await connection.call(produce(harness, 11, batch(b"a")), 11)
    )
    assert partition_response.log_append_time_ms == harness.cluster.now_ms()


REFUSED: dict[str, tuple[bytes | None, dict[str, Any], ErrorCode]] = {
    "garbled": (b"x" * 100, {}, ErrorCode.CORRUPT_MESSAGE),
    "nothing": (None, {}, ErrorCode.INVALID_RECORD),
    "flipped": (batch(b"a")[:-1] + b"!", {}, ErrorCode.CORRUPT_MESSAGE),
    "too large": (batch(b"a" * 1_100_000), {}, ErrorCode.MESSAGE_TOO_LARGE),
    "no such topic": (batch(b"a"), {"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no such partition": (batch(b"a"), {"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "negative partition": (batch(b"a"), {"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "invalid acks": (batch(b"a"), {"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
    "transaction without id": (
        batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True),
        {},
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_invalid_requests_are_rejected(harness: ClusterHarness, name: str) -> None:
    records, options, code = REFUSED[name]
    connection = await harness.connect()
    partition_response = only_partition(
        await connection.call(produce(harness, 11, records, **options), 11)
    )
    assert ErrorCode(partition_response.error_code) is code
    assert partition_response.base_offset == -1
    assert partition_response.log_start_offset == -1


async def test_unknown_topic_id_is_rejected(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    request = produce(harness, 13, batch(b"a"), topic_id=UUID(int=1))
    assert (
        only_partition(await connection.call(request, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    )


async def test_zstandard_requires_version_7(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    records = batch(b"a" * 100, compression="zstd")
    partition_response = only_partition(await connection.call(produce(harness, 6, records), 6))
    assert partition_response.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only_partition(await connection.call(produce(harness, 7, records), 7)).error_code == 0


async def test_too_few_in_sync_replicas_reject_acks_all_only(start_harness: StartHarness) -> None:
    harness = await start_harness(2, min_insync_replicas=2)
    await harness.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    await harness.cluster.stop_broker(2)
    connection = await harness.connect()
    rejected = only_partition(await connection.call(produce(harness, 11, batch(b"a")), 11))
    assert rejected.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (
        only_partition(
            await connection.call(produce(harness, 11, batch(b"a"), acks=1), 11)
        ).error_code
        == 0
    )


@pytest.mark.parametrize("version", [9, 10])
async def test_not_leader_response_has_leader_from_version_10(
    start_harness: StartHarness, version: int
) -> None:
    harness = await start_harness(2)
    await harness.cluster.create_topic("t", 1, assignments={0: [2, 1]})
    connection = await harness.connect(1)
    response = await connection.call(produce(harness, version, batch(b"a")), version)
    partition_response = only_partition(response)
    assert partition_response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    has_leader = version >= 10
    assert partition_response.current_leader.leader_id == (2 if has_leader else -1)
    ports = [endpoint.port for endpoint in response.node_endpoints]
    assert ports == ([harness.cluster.brokers[2].port] if has_leader else [])


async def test_acks_0_has_no_response(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    unacknowledged = produce(harness, 11, batch(b"a"), acks=0)
    future = connection.send(unacknowledged, 11)
    connection.pending.clear()
    acknowledged = only_partition(await connection.call(produce(harness, 11, batch(b"b")), 11))
    assert acknowledged.base_offset == 1
    assert not future.done()


async def test_acks_0_error_resets_connection(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    with pytest.raises(ConnectionResetError):
        await connection.call(produce(harness, 11, batch(b"a"), topic="other", acks=0), 11)


async def test_error_of_one_partition_keeps_others(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    request = ProduceRequest.from_dict(
        {
            "acks": -1,
            "topic_data": [
                {
                    "name": "t",
                    "partition_data": [
                        {"index": 0, "records": batch(b"a")},
                        {"index": 7, "records": batch(b"a")},
                        {"index": 1, "records": batch(b"a")},
                    ],
                }
            ],
        }
    )
    response = await connection.call(request, 11)
    ((first, second, third),) = (topic.partition_responses for topic in response.responses)
    assert (first.error_code, third.error_code) == (0, 0)
    assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
