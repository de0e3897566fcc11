"""Topics and partitions that do not exist, empty subscriptions, and changes of subscriptions."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from kafka_async import ShareConsumer
from kafka_async.errors import (
    IllegalStateError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

GROUPS: list[str | None] = ["g", None]
NEVER_CREATE: dict[str, Any] = {
    "allow_auto_create_topics": False,
    "default_api_timeout_ms": 10_000,
}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [row.getMessage() for row in caplog.records if "does not exist" in row.getMessage()]


@pytest_asyncio.fixture
async def stage(start_stage: StartStage) -> Stage:
    """Start one broker that creates no topics on demand."""
    return await start_stage(auto_create_topics=False)


# -- missing topics and partitions ----------------------------------------------------------------


@pytest.mark.parametrize("group_id", GROUPS)
@pytest.mark.parametrize("creates", [True, False])
async def test_warns_of_a_missing_topic_within_seconds_and_at_growing_intervals(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    group_id: str | None,
    creates: bool,
) -> None:
    async with stage.consumer(
        topics=["ordres"], group_id=group_id, allow_auto_create_topics=creates
    ) as consumer:
        assert await consumer.poll(timeout=50) == []
    found = [re.sub(r"[\d.]+ s", "N s", text) for text in warnings_of(caplog)]
    cure = "create it, or correct the name"
    if creates:
        cure += "; the cluster did not create it either"
    text = f"subscribed topic 'ordres' does not exist (for N s): {cure}"
    assert found == [f"Consumer {group_id or 'kafka-async'}: {text}"] * 4
    ages = [float(re.findall(r"for ([\d.]+) s", text)[0]) for text in warnings_of(caplog)]
    assert ages == [3, 9, 21, 45]


@pytest.mark.parametrize("partition", [TopicPartition("ordres", 0), TopicPartition("orders", 7)])
async def test_warns_of_a_missing_partition(
    stage: Stage, caplog: pytest.LogCaptureFixture, partition: TopicPartition
) -> None:
    await stage.topic("orders", 3)
    async with stage.consumer(partitions=[partition]) as consumer:
        assert await consumer.poll(timeout=10) == []
    reason = "there is no such topic" if partition.topic == "ordres" else "the topic has 3 part"
    assert f"assigned partition {partition} does not exist: {reason}" in warnings_of(caplog)[0]


@pytest.mark.parametrize("group_id", GROUPS)
@pytest.mark.parametrize("way", ["poll", "poll_batches", "stream"])
async def test_raises_once_after_default_api_timeout_if_it_must_not_create_topics(
    stage: Stage, group_id: str | None, way: str
) -> None:
    (other,) = await stage.topic("other", 1, records=1)
    options = NEVER_CREATE | {"default_api_timeout_ms": 20_000, "group_id": group_id}
    async with stage.consumer(topics=["ordres"], partitions=[other], **options) as consumer:
        stream = aiter(consumer)
        calls: dict[str, Any] = {
            "poll": lambda: consumer.poll(timeout=None),
            "poll_batches": lambda: consumer.poll_batches(timeout=None),
            "stream": lambda: anext(stream),
        }
        assert await calls[way]()  # existing partitions are read before that
        loop = asyncio.get_running_loop()
        started = loop.time()
        words = r"subscribed topic 'ordres' does not exist \(for 20 s\)"
        with pytest.raises(UnknownTopicOrPartitionError, match=words):
            await calls[way]()
        assert 15 < loop.time() - started < 25
        stage.produce(other, ["more"])
        assert await consumer.poll(timeout=30)  # raised once: other topics continue


async def test_only_warns_where_topics_may_be_created(stage: Stage) -> None:
    async with stage.consumer("ordres", default_api_timeout_ms=10_000) as consumer:
        assert await consumer.poll(timeout=100) == []


@pytest.mark.parametrize("group_id", GROUPS)
async def test_reads_a_topic_that_appears_later(
    stage: Stage, caplog: pytest.LogCaptureFixture, group_id: str | None
) -> None:
    async with stage.consumer(topics=["late"], group_id=group_id) as consumer:
        assert await consumer.poll(timeout=70) == []
        await stage.topic("late", 1, records=1)
        assert len(await consumer.poll(timeout=70)) == 1
        caplog.clear()
        await asyncio.sleep(300)
    assert warnings_of(caplog) == []


async def test_does_not_warn_of_a_topic_that_is_created_on_demand(
    start_stage: StartStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await start_stage()
    async with stage.consumer("new") as consumer:
        assert await consumer.poll(timeout=30) == []
        assert consumer.assignment()
    assert warnings_of(caplog) == []


async def test_does_not_warn_of_topics_during_an_outage(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """No broker has reported the topic as existing or missing."""
    await stage.topic("t", 1, records=1)
    await stage.topic("u", 1, records=1)
    async with stage.consumer(topics=["t"], group_id=None) as consumer:
        assert await consumer.poll(timeout=30)
        await stage.cluster.stop_broker(1)
        consumer.subscribe(["t", "u"])
        assert await consumer.poll(timeout=100) == []
        await stage.cluster.start_broker(1)
        assert [record.topic for record in await consumer.poll(timeout=100)] == ["u"]
    assert warnings_of(caplog) == []


@pytest.mark.parametrize("group_id", GROUPS)
@pytest.mark.parametrize("manual", [False, True], ids=["subscribed", "manual"])
async def test_raises_once_for_unauthorized_topic_and_does_not_report_it_missing(
    stage: Stage, caplog: pytest.LogCaptureFixture, group_id: str | None, manual: bool
) -> None:
    (other,) = await stage.topic("other", 1, records=1)
    (secret,) = await stage.topic("secret", 1, records=1)
    fault = stage.cluster.faults.add(
        api="Metadata", topic="secret", error="TOPIC_AUTHORIZATION_FAILED", count=None
    )
    options: dict[str, Any] = {
        "partitions": [other, secret] if manual else [other],
        "topics": () if manual else ["secret"],
        "metadata_max_age_ms": 5_000,
    }
    async with stage.consumer(group_id=group_id, **NEVER_CREATE, **options) as consumer:
        await asyncio.sleep(1)
        with pytest.raises(TopicAuthorizationError, match="secret"):
            await consumer.poll(timeout=30)
        assert [record.topic for record in await consumer.poll(timeout=30)] == ["other"]
        assert await consumer.poll(timeout=60) == []
        fault.remove()
        assert [record.topic for record in await consumer.poll(timeout=60)] == ["secret"]
    assert warnings_of(caplog) == []


async def test_unsubscribed_missing_topic_is_not_reported(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The warnings and the timeout begin again when it is subscribed to again."""
    (other,) = await stage.topic("other", 1)
    options = NEVER_CREATE | {"group_id": None}
    async with stage.consumer(topics=["ordres"], partitions=[other], **options) as consumer:
        assert await consumer.poll(timeout=2) == []
        await consumer.unsubscribe()
        assert await consumer.poll(timeout=20) == []
        assert warnings_of(caplog) == []
        consumer.subscribe(["ordres"])
        assert await consumer.poll(timeout=9) == []
        with pytest.raises(UnknownTopicOrPartitionError, match="ordres"):
            await consumer.poll(timeout=10)
        assert await consumer.poll(timeout=20) == []


# -- nothing to read ------------------------------------------------------------------------------


@pytest.mark.parametrize("group_id", GROUPS)
async def test_poll_without_subscription_raises(stage: Stage, group_id: str | None) -> None:
    await stage.topic("t", 1, records=1)
    words = r"give topics= or partitions=, or call subscribe\(\) or assign\(\)"
    async with stage.consumer(group_id=group_id) as consumer:
        with pytest.raises(IllegalStateError, match=words):
            await consumer.poll()
        with pytest.raises(IllegalStateError, match=words):
            await consumer.poll_batches()
        with pytest.raises(IllegalStateError, match=words):
            await anext(aiter(consumer))
        consumer.subscribe(pattern="unknown-.*")
        assert await consumer.poll(timeout=5) == []
        consumer.subscribe(["t"])
        assert len(await consumer.poll(timeout=30)) == 1
        await consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match=words):
            await consumer.poll()


async def test_waiting_poll_raises_when_nothing_is_left_to_read(stage: Stage) -> None:
    partitions = await stage.topic("t", 1)
    async with stage.consumer(partitions=partitions) as consumer:
        poll = asyncio.create_task(consumer.poll(timeout=None))
        await asyncio.sleep(1)
        consumer.assign([])
        with pytest.raises(IllegalStateError, match="there is nothing to read"):
            await poll


# -- subscribed topics and manually assigned partitions --------------------------------------------


@pytest.mark.parametrize("group_id", GROUPS)
async def test_subscribe_replaces_topics_and_leaves_manual_partitions(
    stage: Stage, group_id: str | None
) -> None:
    (extra,) = await stage.topic("extra", 1, records=1)
    (a,) = await stage.topic("a", 1, records=600)
    (b,) = await stage.topic("b", 1, records=1)
    async with stage.consumer(topics=["a"], partitions=[extra], group_id=group_id) as consumer:
        seen = {record.topic for record in await consumer.poll(timeout=30, max_records=1)}
        while {*consumer.assignment()} != {a, extra} or seen != {"a", "extra"}:
            seen |= {record.topic for record in await consumer.poll(timeout=30, max_records=1)}
        consumer.subscribe(["b"])
        got: list[str] = []
        while "b" not in got:
            got += [record.topic for record in await consumer.poll(timeout=30)]
        assert got == ["b"]
        assert consumer.assignment() == {b, extra}
        await consumer.unsubscribe()
        assert consumer.assignment() == {extra}
        assert consumer.subscription() == frozenset()


async def test_records_of_a_topic_that_is_subscribed_to_again_are_returned(stage: Stage) -> None:
    (a,) = await stage.topic("a", 1, records=600)
    await stage.topic("b", 1)
    async with stage.consumer(topics=["a"], group_id="g") as consumer:
        (first,) = await consumer.poll(timeout=30, max_records=1)
        consumer.subscribe(["b"])
        consumer.subscribe(["a", "b"])
        offsets = [first.offset]
        while len(offsets) < 600:
            offsets += [record.offset for record in await consumer.poll(timeout=30)]
        assert offsets == list(range(600))
        consumer.subscribe(["b"])
        consumer.assign([a])  # It is read on, and not the group's any more.
        await consumer.seek_to_beginning([a])
        assert (await consumer.poll(timeout=30))[0].partition == 0


@pytest.mark.parametrize("group_id", GROUPS)
async def test_assign_replaces_manual_partitions_and_leaves_topics(
    stage: Stage, group_id: str | None
) -> None:
    first, second = await stage.topic("extra", 2, records=1)
    (a,) = await stage.topic("a", 1, records=1)
    async with stage.consumer(topics=["a"], partitions=[first], group_id=group_id) as consumer:
        while {*consumer.assignment()} != {a, first}:
            await consumer.poll(timeout=30)
        consumer.assign(second)
        assert consumer.assignment() == {a, second}
        consumer.assign([])
        assert consumer.assignment() == {a}
        assert consumer.subscription() == {"a"}


@pytest.mark.parametrize("group_id", GROUPS)
async def test_partition_both_subscribed_and_manual_stays_with_either(
    stage: Stage, group_id: str | None
) -> None:
    (a,) = await stage.topic("a", 1, records=3)
    async with stage.consumer(topics=["a"], partitions=[a], group_id=group_id) as consumer:
        assert len(await consumer.poll(timeout=30, max_records=1)) == 1
        await asyncio.sleep(30 if group_id else 0)
        consumer.assign([])
        assert consumer.assignment() == {a}
        consumer.assign(a)
        await consumer.unsubscribe()
        assert consumer.assignment() == {a}
        assert [record.offset for record in await consumer.poll(timeout=30)] == [1, 2]


async def test_stream_stops_returning_records_of_unsubscribed_topic(stage: Stage) -> None:
    await stage.topic("a", 1, records=100)
    await stage.topic("b", 1, records=1)
    async with stage.consumer(topics=["a"], group_id=None) as consumer:
        async for record in consumer:
            if record.topic == "b":
                break
            assert record.offset == 0
            consumer.subscribe(["b"])


# -- share consumers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ordres", "no/topic"])
async def test_share_consumer_warns_of_missing_topics_and_raises_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (partition,) = await stage.topic("t", 1)
    async with ShareConsumer(
        stage.cluster.bootstrap_servers,
        dialer=stage.network,
        topics=[name, "t"],
        group_id="s",
        default_api_timeout_ms=20_000,
    ) as consumer:
        text = f"subscribed topic {name!r} does not exist"
        assert await consumer.poll(timeout=10) == []
        last_error = consumer.health().last_error
        assert last_error is not None
        assert last_error.startswith(f"UnknownTopicOrPartitionError: {text}")
        with pytest.raises(UnknownTopicOrPartitionError, match=rf"{text} \(for 20 s\)"):
            await consumer.poll(timeout=60)
        stage.produce(partition, range(2))
        assert len(await consumer.poll(timeout=30)) == 2  # raised once: other topics continue
    assert [re.sub(r"[\d.]+ s", "N s", row) for row in warnings_of(caplog)][:2] == [
        f"ShareConsumer s: {text} (for N s): create it, or correct the name"
    ] * 2


async def test_share_consumer_reads_a_topic_that_appears_later(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with ShareConsumer(
        stage.cluster.bootstrap_servers, dialer=stage.network, topics=["late"], group_id="s"
    ) as consumer:
        assert await consumer.poll(timeout=20) == []
        (partition,) = await stage.topic("late", 1)
        async with asyncio.timeout(100):
            while not consumer.assignment():
                await consumer.poll(timeout=1)
        await consumer.poll(timeout=1)
        stage.produce(partition, range(2))
        assert len(await consumer.poll(timeout=30)) == 2
        caplog.clear()
        await asyncio.sleep(200)
        assert consumer.health().last_error is None
    assert warnings_of(caplog) == []
