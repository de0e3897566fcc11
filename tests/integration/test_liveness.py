"""Members of real groups while the event loop is blocked, or a rebalance listener hangs."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import Consumer, Producer
from kafka_async.errors import KafkaTimeoutError
from tests.integration.helpers import create_topic, poll_until
from tests.integration.test_groups import CLASSIC, CONSUMER, KINDS
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafka_async import TopicPartition
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

BLOCKED = 3.6
"""Seconds: less than sessions of 6 s, and more than the half after which the watchdog reports."""


async def poll_for(seconds: float, *consumers: Consumer) -> None:
    """Poll all consumers at once for a time."""
    end = time.monotonic() + seconds

    async def poll(consumer: Consumer) -> None:
        while time.monotonic() < end:
            await consumer.poll(timeout=0.2)

    await asyncio.gather(*map(poll, consumers))


@pytest.mark.slow
async def test_blocked_loop_keeps_memberships_and_is_reported(
    kafka_cluster: ClusterHandle, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await create_topic(kafka_cluster, partitions=2)
    listeners = [RecordingListener(), RecordingListener()]
    classic, consumer = (
        Consumer(
            kafka_cluster.bootstrap_servers,
            topics=[topic],
            group_id=f"{kafka_cluster.group()}-{number}",
            listener=listeners[number],
            loop_watchdog=True,
            **options,
        )
        for number, options in enumerate((CLASSIC, CONSUMER))
    )
    caplog.set_level(logging.WARNING, "kafka_async.group")
    async with classic, consumer:
        await poll_until(lambda: classic.assignment() and consumer.assignment(), classic, consumer)
        await poll_for(1, classic, consumer)
        before = [classic.group_metadata(), consumer.group_metadata()]
        time.sleep(BLOCKED)  # noqa: ASYNC251  # blocks the loop on purpose
        await poll_for(2, classic, consumer)
        assert [classic.group_metadata(), consumer.group_metadata()] == before
    assert [it.lines[0] for it in listeners] == [("assigned", [0, 1])] * 2
    assert [len(it.lines) for it in listeners] == [2, 2]  # and revoked at the end
    (warning,) = [it for it in caplog.messages if "the event loop has not run" in it]
    assert "time.sleep(BLOCKED)" in warning


@pytest.mark.parametrize("kind", KINDS)
async def test_hanging_listener_is_cancelled_and_its_member_stays(
    kafka_cluster: ClusterHandle, kind: dict[str, Any]
) -> None:
    options: dict[str, Any] = {
        "topics": [await create_topic(kafka_cluster, partitions=2)],
        "group_id": kafka_cluster.group(),
        **kind,
    }
    servers = kafka_cluster.bootstrap_servers
    first = Consumer(servers, rebalance_listener_timeout_ms=300, **options)
    cancelled = asyncio.Event()

    async def hang(_: Collection[TopicPartition]) -> None:
        if cancelled.is_set():
            return  # Otherwise the end of the block would raise it again.
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with first:
        await poll_until(lambda: len(first.assignment()) == 2, first)
        member_id = first.group_metadata().member_id
        first.on_revoked(hang)
        async with Consumer(servers, **options) as second:
            with pytest.raises(KafkaTimeoutError, match="rebalance_listener_timeout_ms"):
                await poll_until(lambda: False, first, second)
            assert cancelled.is_set()
            await poll_until(
                lambda: len(first.assignment()) == len(second.assignment()) == 1, first, second
            )
            assert first.group_metadata().member_id == member_id


@pytest.mark.parametrize("kind", KINDS)
async def test_member_that_was_not_polled_returns_nothing_that_another_has_committed(
    kafka_cluster: ClusterHandle, kind: dict[str, Any]
) -> None:
    topic, records = await create_topic(kafka_cluster), 100
    options: dict[str, Any] = {
        "topics": [topic],
        "group_id": kafka_cluster.group(),
        "auto_offset_reset": "earliest",
        **kind,
    }
    async with Producer(kafka_cluster.bootstrap_servers) as producer:
        await producer.send_many(topic, [b"%d" % n for n in range(records)])
    listener = RecordingListener()
    first = Consumer(
        kafka_cluster.bootstrap_servers, max_poll_interval_ms=1500, listener=listener, **options
    )
    async with first, asyncio.timeout(40):
        while not await first.poll(max_records=1, timeout=1):
            pass
        async with Consumer(kafka_cluster.bootstrap_servers, **options) as second:
            seen = 0
            while seen < records:
                seen += len(await second.poll(timeout=1))
            await second.commit()
            for _ in range(3):
                assert await first.poll(timeout=0.2) == []
    assert ("lost", [0]) in listener.lines
