"""Members stay in their groups while the event loop is blocked, or another member rebalances."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafka_async import GroupMember, ShareConsumer
from kafka_async.client.client import services_of
from kafka_async.consumer.consumer import Consumer
from kafka_async.hooks import ClientEvent, Disconnected, Hooks, RebalanceBegun
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.consumer.conftest import poll_until
from tests.recording_listener import RecordingListener

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafka_async.client.client import Client
    from kafka_async.testing.clock import VirtualClockEventLoop
    from kafka_async.types import TopicPartition
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

PROTOCOLS = ["classic", "consumer"]
SESSION = 45.0
"""Seconds; the default of consumers and of brokers."""
HEARTBEAT = {"classic": 3.0, "consumer": 5.0}
"""Seconds; the defaults of consumers, and of brokers for the consumer protocol."""
HEARTBEAT_API = {"classic": "Heartbeat", "consumer": "ConsumerGroupHeartbeat"}


def now() -> float:
    return asyncio.get_running_loop().time()


def block_loop(seconds: float) -> None:
    cast("VirtualClockEventLoop", asyncio.get_running_loop()).block(seconds)


async def poll_for(seconds: float, *consumers: Consumer) -> None:
    """Poll all consumers at once for a time, and commit what they return."""
    end = now() + seconds

    async def poll(consumer: Consumer) -> None:
        while now() < end:
            if await consumer.poll(timeout=min(0.5, end - now())):
                await consumer.commit()

    await asyncio.gather(*map(poll, consumers))


# -- a blocked event loop -------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "idle"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_blocked_loop_shorter_than_session_keeps_membership_and_connections(
    stage: Stage, protocol: str, in_flight: bool
) -> None:
    """With a request in flight on each connection: general, coordinator and fetch."""
    await stage.topic("t", 2, records=3)
    events: list[ClientEvent] = []
    hooks, listener = Hooks(), RecordingListener()
    hooks.listen(ClientEvent, events.append)
    options: dict[str, Any] = {"group_protocol": protocol, "hooks": hooks, "listener": listener}
    async with stage.consumer("t", **options) as consumer:
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        await poll_for(20, consumer)
        identity = consumer.group_metadata()
        events.clear()
        heartbeats = stage.cluster.faults.add(api=HEARTBEAT_API[protocol], count=None, delay=0.5)
        await heartbeats.wait()
        metadata = None
        if in_flight:
            held = stage.cluster.faults.add(api="Metadata", delay=0.5)
            metadata = asyncio.ensure_future(services_of(consumer.client).metadata.refresh())
            await held.wait()
        else:
            await asyncio.sleep(1)
        hits = heartbeats.hits
        block_loop(SESSION - 2 * HEARTBEAT[protocol] - 0.01)
        if metadata is not None:
            await metadata
        await poll_for(100, consumer)
        assert heartbeats.hits > hits + 10
        assert consumer.group_metadata() == identity
        assert listener.lines == [("assigned", [0, 1])]
        assert not [it for it in events if isinstance(it, Disconnected | RebalanceBegun)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_loop_blocked_for_longer_than_session_loses_membership_and_joins_again(
    stage: Stage, protocol: str
) -> None:
    await stage.topic("t", 1)
    listener = RecordingListener()
    async with stage.consumer("t", group_protocol=protocol, listener=listener) as consumer:
        await poll_until(consumer.assignment, consumer)
        await poll_for(10, consumer)
        block_loop(SESSION + 1)
        await poll_for(20, consumer)
    lost = [("assigned", [0]), ("lost", [0]), ("assigned", [0])]
    assert listener.lines[:3] == lost


async def test_blocked_loop_shorter_than_session_keeps_member_of_any_group(stage: Stage) -> None:
    """Its session is 10 s, with a heartbeat every 3 s, by default."""
    async with GroupMember(
        stage.shared_client,
        group_id="jobs",
        protocol_type="jobs",
        protocols={"v0": lambda members: {each.member_id: b"" for each in members}},
    ) as member:
        assignment = await anext(member)
        waiting = asyncio.ensure_future(anext(member))
        for _ in range(10):
            await asyncio.sleep(9.99)
            block_loop(10.0 - 2 * 3.0 - 0.01)
        await asyncio.sleep(50)
        assert not waiting.done()
        assert member.group_metadata().generation_id == assignment.generation
        waiting.cancel()


async def test_blocked_loop_shorter_than_session_keeps_member_of_a_share_group(
    stage: Stage,
) -> None:
    await stage.topic("t", 2)
    async with ShareConsumer(stage.shared_client, topics=["t"], group_id="g") as consumer:
        for _ in range(5):
            await consumer.poll(timeout=4.9)
            block_loop(SESSION - 2 * HEARTBEAT["consumer"] - 0.01)
        await consumer.poll(timeout=50)
        assert len(consumer.assignment()) == 2
    beats = stage.requests(ShareGroupHeartbeatRequest)
    assert [row.member_epoch for row in beats].count(0) == 1  # it has joined once


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_member_that_polls_rarely_lives_by_its_heartbeats(
    start_stage: StartStage, protocol: str
) -> None:
    """It processes records for longer than a session, and for less than max_poll_interval_ms."""
    stage = await start_stage(group_consumer_session_timeout_ms=10_000)
    await stage.topic("t", 1, records=3)
    listener = RecordingListener()
    options: dict[str, Any] = {"max_poll_interval_ms": 60_000}
    if protocol == "classic":
        options["session_timeout_ms"] = 10_000
    async with stage.consumer(
        "t", group_protocol=protocol, listener=listener, max_poll_records=1, **options
    ) as consumer:
        await poll_until(consumer.assignment, consumer)
        for _ in range(3):
            await consumer.poll(timeout=1)
            await asyncio.sleep(59)
        assert listener.lines == [("assigned", [0])]
        await asyncio.sleep(2)
        await poll_for(10, consumer)
        assert listener.lines == [("assigned", [0]), ("lost", [0]), ("assigned", [0])]


# -- several members with one client --------------------------------------------------------------


def heartbeat_gaps(stage: Stage, group: str, start: float, end: float) -> list[float]:
    """Return the seconds between the heartbeats of a group that a broker received in a time."""
    times = [
        row.time
        for row in stage.received
        if isinstance(row.request, HeartbeatRequest | ConsumerGroupHeartbeatRequest)
        and row.request.group_id == group
        and start <= row.time <= end
    ]
    return [after - before for before, after in zip([start, *times], [*times, end], strict=True)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_rebalance_of_one_member_delays_no_heartbeat_of_others_with_its_client(
    stage: Stage, protocol: str
) -> None:
    """All have one coordinator, and one of three members waits 30 s for the others of its group."""
    await stage.topic("t", 4)
    revoking = asyncio.Event()

    async def hold_rebalance(_: Collection[TopicPartition]) -> None:
        revoking.set()
        await asyncio.sleep(30)

    given: Any = {"topics": ["t"], "group_protocol": protocol}

    def member(client: Client, group: str) -> Consumer:
        return Consumer(client, group_id=group, **given)

    async with AsyncExitStack() as stack:
        other_client = await stack.enter_async_context(stage.client())
        holder = await stack.enter_async_context(member(other_client, "c"))
        await poll_until(lambda: len(holder.assignment()) == 4, holder)
        holder.on_revoked(hold_rebalance)
        shared = stage.shared_client
        members = [await stack.enter_async_context(member(shared, group)) for group in "abc"]
        polling = asyncio.ensure_future(poll_for(90, holder, *members))
        await revoking.wait()
        started = now()
        await asyncio.sleep(30)
        assert members[2].assignment() == set()
        for group in "ab":
            gaps = heartbeat_gaps(stage, group, started, now())
            assert len(gaps) >= 30 / HEARTBEAT[protocol]
            assert max(gaps) <= 1.5 * HEARTBEAT[protocol]
        await polling
        assert [len(it.assignment()) for it in (holder, *members)] == [2, 4, 4, 2]
