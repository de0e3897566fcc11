"""Produce, over the wire: offsets, refusals, hints, acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka_async.types import TopicPartition
from tests.embedded.wire import batch

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage
    from tests.embedded.stage import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

VERSIONS = range(3, 14)


def produce(
    stage: Stage,
    version: int,
    records: bytes | None,
    *,
    topic: str = "t",
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: UUID | None = None,
) -> ProduceRequest:
    known = stage.cluster.topics.get(topic)
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


def only(response: ProduceResponse) -> PartitionProduceResponse:
    ((answer,),) = (topic.partition_responses for topic in response.responses)
    return answer


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_appends_and_says_where(stage: Stage, version: int) -> None:
    peer = await stage.peer()
    await peer.ask(produce(stage, version, batch(b"a", b"b")), version)
    answer = only(await peer.ask(produce(stage, version, batch(b"c")), version))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 2, -1)
    partition = stage.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition.log.end_offset == 3


async def test_a_repetition_is_a_success_with_the_first_offset(stage: Stage) -> None:
    peer = await stage.peer()
    first = batch(b"a", producer_id=5, epoch=0, sequence=0)
    for records in (first, batch(b"b", producer_id=5, epoch=0, sequence=1)):
        await peer.ask(produce(stage, 11, records), 11)
    answer = only(await peer.ask(produce(stage, 11, first), 11))
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_log_append_time_is_told(start_stage: StartStage) -> None:
    stage = await start_stage()
    await stage.cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    peer = await stage.peer()
    answer = only(await peer.ask(produce(stage, 11, batch(b"a")), 11))
    assert answer.log_append_time_ms == stage.cluster.now_ms()


REFUSED: dict[str, tuple[bytes | None, dict[str, Any], Code]] = {
    "garbled": (b"x" * 100, {}, Code.CORRUPT_MESSAGE),
    "nothing": (None, {}, Code.INVALID_RECORD),
    "flipped": (batch(b"a")[:-1] + b"!", {}, Code.CORRUPT_MESSAGE),
    "too large": (batch(b"a" * 1_100_000), {}, Code.MESSAGE_TOO_LARGE),
    "no such topic": (batch(b"a"), {"topic": "other"}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    "no such partition": (batch(b"a"), {"partition": 2}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    "negative partition": (batch(b"a"), {"partition": -1}, Code.UNKNOWN_TOPIC_OR_PARTITION),
    "strange acks": (batch(b"a"), {"acks": 2}, Code.INVALID_REQUIRED_ACKS),
    "transaction without id": (
        batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True),
        {},
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refusals(stage: Stage, name: str) -> None:
    records, options, code = REFUSED[name]
    peer = await stage.peer()
    answer = only(await peer.ask(produce(stage, 11, records, **options), 11))
    assert Code(answer.error_code) is code
    assert answer.base_offset == -1
    assert answer.log_start_offset == -1


async def test_a_topic_id_that_is_not_there_has_its_own_error(stage: Stage) -> None:
    peer = await stage.peer()
    request = produce(stage, 13, batch(b"a"), topic_id=UUID(int=1))
    assert only(await peer.ask(request, 13)).error_code == Code.UNKNOWN_TOPIC_ID


async def test_zstandard_needs_version_7(stage: Stage) -> None:
    peer = await stage.peer()
    records = batch(b"a" * 100, compression="zstd")
    answer = only(await peer.ask(produce(stage, 6, records), 6))
    assert answer.error_code == Code.UNSUPPORTED_COMPRESSION_TYPE
    assert only(await peer.ask(produce(stage, 7, records), 7)).error_code == 0


async def test_too_few_replicas_refuse_acks_all_only(start_stage: StartStage) -> None:
    stage = await start_stage(2, min_insync_replicas=2)
    await stage.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    await stage.cluster.stop_broker(2)
    peer = await stage.peer()
    refused = only(await peer.ask(produce(stage, 11, batch(b"a")), 11))
    assert refused.error_code == Code.NOT_ENOUGH_REPLICAS
    assert only(await peer.ask(produce(stage, 11, batch(b"a"), acks=1), 11)).error_code == 0


@pytest.mark.parametrize("version", [9, 10])
async def test_a_broker_that_does_not_lead_names_the_leader_from_version_10_on(
    start_stage: StartStage, version: int
) -> None:
    stage = await start_stage(2)
    await stage.cluster.create_topic("t", 1, assignments={0: [2, 1]})
    peer = await stage.peer(1)
    response = await peer.ask(produce(stage, version, batch(b"a")), version)
    answer = only(response)
    assert answer.error_code == Code.NOT_LEADER_OR_FOLLOWER
    hinted = version >= 10
    assert answer.current_leader.leader_id == (2 if hinted else -1)
    ports = [endpoint.port for endpoint in response.node_endpoints]
    assert ports == ([stage.cluster.brokers[2].port] if hinted else [])


async def test_without_acknowledgement_nothing_is_answered(stage: Stage) -> None:
    peer = await stage.peer()
    silent = produce(stage, 11, batch(b"a"), acks=0)
    answer = peer.send(silent, 11)
    peer.waiting.clear()
    loud = only(await peer.ask(produce(stage, 11, batch(b"b")), 11))
    assert loud.base_offset == 1
    assert not answer.done()


async def test_without_acknowledgement_an_error_disconnects(stage: Stage) -> None:
    peer = await stage.peer()
    with pytest.raises(ConnectionResetError):
        await peer.ask(produce(stage, 11, batch(b"a"), topic="other", acks=0), 11)


async def test_one_bad_partition_does_not_spoil_the_others(stage: Stage) -> None:
    peer = await stage.peer()
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
    response = await peer.ask(request, 11)
    ((first, second, third),) = (topic.partition_responses for topic in response.responses)
    assert (first.error_code, third.error_code) == (0, 0)
    assert second.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
