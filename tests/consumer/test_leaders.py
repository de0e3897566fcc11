"""Leader changes: validation of positions (KIP-320) and leaders in responses (KIP-951)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async.client.client import services_of
from kafka_async.consumer.offsets import UNKNOWN
from kafka_async.consumer.positions.offset_lookup import EpochEndOffset, OffsetLookup
from kafka_async.errors import KafkaError, OffsetOutOfRangeError
from kafka_async.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.protocol.messages.fetch import FetchResponse
    from kafka_async.types import TopicPartition
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]


async def offsets(consumer: Consumer, timeout: float = 20) -> list[int]:
    return [record.offset for record in await consumer.poll(timeout=timeout)]


async def new_leader(stage: Stage, consumer: Consumer, partition: TopicPartition) -> None:
    await stage.cluster.move_leader(partition)
    await services_of(consumer.client).metadata.refresh()


def ends_at(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """Make the leader's log end at `offset`."""

    async def epoch_end_offsets(
        self: OffsetLookup, node_id: int, epochs: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, EpochEndOffset | KafkaError]:
        return {partition: EpochEndOffset(0, offset) for partition in epochs}

    monkeypatch.setattr(OffsetLookup, "epoch_end_offsets", epoch_end_offsets)


async def test_validates_position_against_each_new_leader(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    lookups = stage.cluster.faults.add(api="OffsetForLeaderEpoch", count=None)
    async with stage.reader(records=3) as (consumer, partition):
        assert await offsets(consumer) == [0, 1, 2]
        assert lookups.hits == 0
        for hits in (1, 2):
            await new_leader(stage, consumer, partition)
            stage.produce(partition, ["more"])
            assert await offsets(consumer) == [2 + hits]
            assert lookups.hits == hits


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH"])
async def test_retries_validation_after_retriable_errors(
    start_stage: StartStage, error: str
) -> None:
    stage = await start_stage(3)
    fault = stage.cluster.faults.add(api="OffsetForLeaderEpoch", error=error, count=2)
    async with stage.reader(records=1) as (consumer, partition):
        assert await offsets(consumer) == [0]
        await new_leader(stage, consumer, partition)
        stage.produce(partition, ["more"])
        assert await offsets(consumer) == [1]
        assert fault.hits == 2


async def test_continues_at_end_of_truncated_log(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start_stage(3)
    async with stage.reader(records=5) as (consumer, partition):
        assert await offsets(consumer) == [0, 1, 2, 3, 4]
        ends_at(monkeypatch, 3)
        await new_leader(stage, consumer, partition)
        assert await offsets(consumer) == [3, 4]


async def test_truncated_log_is_raised_without_reset_policy(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = await start_stage(3)
    async with stage.reader(records=5, auto_offset_reset="none") as (consumer, partition):
        consumer.seek(partition, 0)
        assert len(await offsets(consumer)) == 5
        ends_at(monkeypatch, 3)
        await new_leader(stage, consumer, partition)
        with pytest.raises(OffsetOutOfRangeError, match="unclean leader election"):
            await offsets(consumer)
        consumer.seek(partition, 4)
        assert await offsets(consumer) == [4]


async def test_leader_without_the_epoch_of_a_position_is_not_said_to_end_before_it(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start_stage(3)
    async with stage.reader(records=5) as (consumer, partition):
        assert await offsets(consumer) == [0, 1, 2, 3, 4]
        ends_at(monkeypatch, UNKNOWN)
        await new_leader(stage, consumer, partition)
        await offsets(consumer)
    warnings = [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]
    assert "the new leader's log has no leader epoch up to 0" in warnings[0]
    assert not [text for text in warnings if "-1" in text]


async def test_validates_committed_offset_of_older_epoch(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    async with stage.member(records=3) as (consumer, partition):
        await consumer.poll(max_records=2, timeout=20)
        await consumer.commit()
    lookups = stage.cluster.faults.add(api="OffsetForLeaderEpoch", count=None)
    await stage.cluster.move_leader(partition)
    async with stage.consumer("t") as consumer:
        assert await offsets(consumer) == [2]
    assert lookups.hits == 1


async def test_follows_leader_in_fetch_response_without_metadata(start_stage: StartStage) -> None:
    """The former leader's error response names the new one (KIP-951)."""
    stage = await start_stage(3)
    async with stage.reader(records=1) as (consumer, partition):
        assert await offsets(consumer) == [0]
        silent = stage.cluster.faults.add(
            api="Metadata",
            hang=True,
            count=None,
            when=lambda context, _: context.client_id != "stage",
        )
        await stage.cluster.move_leader(partition)
        stage.produce(partition, ["more"])
        assert await offsets(consumer) == [1]
        silent.release()


async def test_broker_fetcher_stops_when_broker_is_removed(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    partitions = await stage.topic("t", 3, records=1)
    async with stage.consumer(partitions=partitions) as consumer:
        while consumer.statistics().records_consumed_total < 3:
            await consumer.poll()
        await stage.cluster.stop_broker(2)
        await asyncio.sleep(30)
        for partition in partitions:
            stage.produce(partition, ["again"])
        while consumer.statistics().records_consumed_total < 6:
            assert await consumer.poll(timeout=30)
        await stage.cluster.start_broker(2)


@pytest.mark.parametrize("call", ["poll", "end_offsets"])
async def test_leader_that_left_the_cluster_is_looked_up_again(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The leader is killed between the lookup and the request to it."""
    stage = await start_stage(3)
    group_by_leader = OffsetLookup.group_by_leader
    gone: list[int] = []

    def group_once_by_leader_that_left(
        self: OffsetLookup, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        if not gone:
            gone.append(9)
            return {9: list(partitions)}
        return group_by_leader(self, partitions)

    monkeypatch.setattr(OffsetLookup, "group_by_leader", group_once_by_leader_that_left)
    async with stage.reader(records=3) as (consumer, partition):
        if call == "poll":
            assert await offsets(consumer) == [0, 1, 2]
        else:
            assert await consumer.end_offsets([partition]) == {partition: 3}
    assert gone == [9]


async def test_partition_that_fetch_responses_lack_is_fetched_again_after_a_back_off(
    stage: Stage,
) -> None:
    """The broker has its records and responds at once, each time."""

    def drop(response: FetchResponse) -> None:
        response.responses = []

    fault = stage.cluster.faults.add(api="Fetch", change=drop, count=None)
    async with stage.reader(records=3) as (consumer, _):
        assert await offsets(consumer, timeout=10) == []
        assert 5 <= len(stage.requests(FetchRequest)) <= 80
        fault.remove()
        assert await offsets(consumer) == [0, 1, 2]
