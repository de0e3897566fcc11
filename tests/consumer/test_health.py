"""A consumer's condition as `health` reports it, and offsets known without a request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import IllegalStateError, InvalidSessionTimeoutError
from kafka_async.types import TopicPartition
from tests.embedded_client import check_states

if TYPE_CHECKING:
    from kafka_async.protocol.messages.offset_fetch import OffsetFetchResponse
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]


async def test_reports_each_state_from_new_to_closed(stage: Stage) -> None:
    await stage.topic("t", 1)
    fault = stage.cluster.faults.add(api="Metadata", hang=True)
    await check_states(stage.consumer("t"), fault)


async def test_reports_assignment_lag_and_bytes_from_fetch_responses(stage: Stage) -> None:
    first, second = await stage.topic("t", 2, records=10)
    async with stage.consumer(partitions=[first, second]) as consumer:
        assert consumer.health().assignment == (first, second)
        assert (consumer.high_watermark(first), consumer.last_stable_offset(first)) == (None, None)
        assert len(await consumer.poll(timeout=30, max_records=4)) == 4
        await asyncio.sleep(1)
        sent = consumer.client.health().in_flight
        health = consumer.health()
        assert consumer.client.health().in_flight == sent
        assert sum(health.lag.values()) == 16
        assert health.buffered_bytes > 0
        assert health.in_flight == 1  # the fetch waits for more records
        assert health.brokers_connected == tuple(stage.cluster.brokers.alive_ids())
        assert health.last_error is None
        assert {consumer.high_watermark(each) for each in (first, second)} == {10}
        assert {consumer.last_stable_offset(each) for each in (first, second)} == {10}
        stage.produce(first, range(5))
        await asyncio.sleep(1)
        assert consumer.high_watermark(first) == 15
        assert sum(consumer.health().lag.values()) == 21
        await consumer.poll(timeout=30)
        await consumer.poll(timeout=30)
        assert consumer.health().lag == {first: 0, second: 0}
        with pytest.raises(IllegalStateError, match="t-7 is not assigned"):
            consumer.high_watermark(TopicPartition("t", 7))
        text: Any = "t"
        with pytest.raises(TypeError, match="partition must be a TopicPartition"):
            consumer.last_stable_offset(text)


async def test_reports_why_a_partition_has_no_position_and_skips_no_record(stage: Stage) -> None:
    def drop(response: OffsetFetchResponse) -> None:
        response.groups[0].topics = []

    fault = stage.cluster.faults.add(api="OffsetFetch", change=drop, count=None)
    async with stage.member(records=3, auto_offset_reset="latest") as (consumer, partition):
        assert await consumer.poll(timeout=60) == []
        error = "KafkaTimeoutError: no committed offsets within 30 s: the broker's response lacks "
        assert consumer.health().last_error == f"{error}{partition}"
        fault.remove()
        assert await consumer.position(partition, timeout=60) == 3
        assert consumer.health().last_error is None


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_open_transaction_holds_last_stable_offset(stage: Stage, isolation: str) -> None:
    (partition,) = await stage.topic("t", 1, records=3)
    async with (
        stage.producer(transactional_id="x") as producer,
        stage.consumer(partitions=[partition], isolation_level=isolation) as consumer,
    ):
        async with producer.transaction() as transaction:
            await transaction.send("t", b"open")
            seen = await consumer.poll(timeout=30)
            await asyncio.sleep(1)
            seen += await consumer.poll(timeout=5)
            assert consumer.high_watermark(partition) == 4
            assert consumer.last_stable_offset(partition) == 3
            assert len(seen) == (3 if isolation == "read_committed" else 4)
            assert consumer.health().lag == {partition: 0}  # up to the last stable offset
            assert consumer.statistics().records_lag == {partition: 0}
        await asyncio.sleep(1)
        assert consumer.last_stable_offset(partition) == 5


async def test_reports_the_times_of_the_last_poll_and_heartbeat(stage: Stage) -> None:
    async with stage.member(records=1) as (consumer, _):
        await asyncio.sleep(2)
        assert consumer.health().last_poll_s is None
        assert consumer.health().last_heartbeat_s is None  # it has not joined yet
        assert await consumer.poll(timeout=30)
        await asyncio.sleep(7)
        health = consumer.health()
        assert health.last_poll_s == pytest.approx(7)
        assert health.last_heartbeat_s is not None
        assert health.last_heartbeat_s < 3.1
        poll = asyncio.create_task(consumer.poll(timeout=20))
        await asyncio.sleep(5)
        assert consumer.health().last_poll_s == 0  # the poll is in progress
        await poll


async def test_reports_a_member_of_the_consumer_protocol(stage: Stage) -> None:
    await stage.topic("t", 2, records=5)
    async with stage.consumer("t", group_protocol="consumer") as consumer:
        while len(consumer.assignment()) < 2 or not consumer.health().lag:
            await consumer.poll(timeout=0.1, max_records=1)
        await asyncio.sleep(12)
        health = consumer.health()
        assert (health.state, health.last_error) == ("running", None)
        assert health.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
        assert 0 < sum(health.lag.values()) < 10
        assert health.last_poll_s == pytest.approx(12)
        assert health.last_heartbeat_s is not None
        assert health.last_heartbeat_s < 5.1
        stage.cluster.faults.add(api="ConsumerGroupHeartbeat", error="UNSUPPORTED_ASSIGNOR")
        await asyncio.sleep(6)
        health = consumer.health()
        assert health.state == "failed"
        assert str(health.last_error).startswith("UnsupportedAssignorError: ")


async def test_stream_counts_as_polling(stage: Stage) -> None:
    async with stage.reader(records=3) as (consumer, _):
        async for record in consumer:
            assert consumer.health().last_poll_s == 0
            await asyncio.sleep(4)
            assert consumer.health().last_poll_s == pytest.approx(4)
            if record.offset == 2:
                break


async def test_is_degraded_without_a_cluster_and_recovers(stage: Stage) -> None:
    async with stage.member(records=1) as (consumer, _):
        assert await consumer.poll(timeout=30)
        await asyncio.sleep(5)
        await stage.cluster.stop_broker(1)
        await asyncio.sleep(60)
        health = consumer.health()
        assert health.state == "degraded"
        assert health.brokers_connected == ()
        assert health.last_error is not None
        assert health.last_heartbeat_s is not None
        assert health.last_heartbeat_s > 50
        await stage.cluster.start_broker(1)
        await asyncio.sleep(60)
        assert consumer.health().state == "running"
        await consumer.poll(timeout=1)


async def test_names_the_topic_and_partition_that_do_not_exist(stage: Stage) -> None:
    await stage.topic("t", 1)
    partition = TopicPartition("t", 7)
    async with stage.consumer(
        topics=["mistyped"], partitions=[partition], allow_auto_create_topics=False
    ) as consumer:
        await asyncio.sleep(5)
        error = consumer.health().last_error
        assert error is not None
        assert error.startswith("UnknownTopicOrPartitionError: subscribed topic 'mistyped' does")
        assert "; assigned partition t-7 does not exist: the topic has 1 partitions" in error
        await stage.topic("mistyped", 1)
        consumer.assign([])
        await asyncio.sleep(30)
        assert consumer.health().last_error is None


async def test_is_degraded_while_its_broker_is_frozen(stage: Stage) -> None:
    async with stage.member() as (consumer, _):
        await consumer.poll(timeout=1)
        frozen = stage.hang()
        await frozen.wait()
        await asyncio.sleep(3)
        assert consumer.health().state == "running"
        await asyncio.sleep(4)
        health = consumer.health()
        assert health.state == "degraded"
        assert "(broker 1) has not responded for " in str(health.last_error)
        frozen.remove()
        await consumer.poll(timeout=1)
        assert consumer.health().state == "running"


async def test_is_running_while_the_broker_holds_its_requests_back(stage: Stage) -> None:
    [partition] = await stage.topic("t", 1)
    async with stage.consumer(
        partitions=[partition], fetch_max_wait_ms=20_000, request_timeout_ms=60_000
    ) as reader:
        await reader.poll(timeout=1)
        held = stage.cluster.faults.add(api="JoinGroup", hang=True)
        async with stage.consumer("t") as member:
            await held.wait()
            for _ in range(15):
                await asyncio.sleep(1)
                assert reader.health().state == "running"
                assert member.health().state == "running"
            held.release()


async def test_is_failed_once_group_rejects_member(stage: Stage) -> None:
    async with stage.member() as (consumer, _):
        stage.cluster.faults.add(api="JoinGroup", error=InvalidSessionTimeoutError.code)
        with pytest.raises(InvalidSessionTimeoutError):
            await consumer.poll(timeout=30)
        health = consumer.health()
        assert health.state == "failed"
        assert str(health.last_error).startswith("InvalidSessionTimeoutError: ")
