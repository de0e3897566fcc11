"""A coordinator that does not respond to requests is looked up again in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.hooks import Hooks, RequestSent
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from kafka_async.consumer.consumer import Consumer
    from tests.consumer.conftest import Stage, StartStage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]


class CoordinatorLookups:
    """Waits for the next FindCoordinator request of a consumer with these `hooks`."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self._seen = asyncio.Event()
        self.hooks.listen(RequestSent, self._sent)

    async def wait(self) -> None:
        self._seen.clear()
        await self._seen.wait()

    def _sent(self, event: RequestSent) -> None:
        if event.api_key == FindCoordinatorRequest.API_KEY:
            self._seen.set()


async def member(stage: Stage, session_timeout_ms: int | None, **options: Any) -> Consumer:
    await stage.topic("t", 1, records=3)
    if session_timeout_ms is not None:
        options["session_timeout_ms"] = session_timeout_ms
    consumer = stage.consumer("t", **options)
    await consumer.start()
    await consumer.poll(max_records=2, timeout=10)
    return consumer


def freeze(stage: Stage) -> int:
    """Freeze the coordinator of "g"."""
    broker = stage.coordinator("g")
    stage.hang(broker=broker)
    return broker


@pytest.mark.parametrize(
    ("protocol", "session", "limit"),
    [
        ("classic", 6_000, 6.5),
        ("classic", 10_000, 10.5),
        ("classic", 45_000, 12.5),
        ("consumer", None, 14.5),
    ],
)
async def test_coordinator_is_looked_up_after_three_missed_heartbeats(
    start_stage: StartStage, protocol: str, session: int | None, limit: float
) -> None:
    """With a shorter session, at its end."""
    stage, lookups = await start_stage(3), CoordinatorLookups()
    consumer = await member(stage, session, hooks=lookups.hooks, group_protocol=protocol)
    freeze(stage)
    async with asyncio.timeout(limit):
        await lookups.wait()
    stage.cluster.faults.clear()
    await consumer.stop()


async def test_group_continues_at_next_coordinator(start_stage: StartStage) -> None:
    stage, lookups = await start_stage(3), CoordinatorLookups()
    consumer = await member(stage, 6_000, hooks=lookups.hooks)
    broker = freeze(stage)
    await lookups.wait()
    await stage.cluster.stop_broker(broker)  # as the controller does
    async with asyncio.timeout(30):
        while consumer.statistics().rebalance_total < 2:
            await consumer.poll(timeout=0.5)
        await consumer.commit()
    stage.cluster.faults.clear()
    await consumer.stop()


async def test_commit_looks_up_coordinator_at_session_timeout(start_stage: StartStage) -> None:
    """The consumer has a group id and no subscription, and sends no heartbeats."""
    stage, lookups = await start_stage(3), CoordinatorLookups()
    partitions = await stage.topic("t", 1, records=3)
    consumer = stage.consumer(
        partitions=partitions, group_id="g", session_timeout_ms=6_000, hooks=lookups.hooks
    )
    await consumer.start()
    await consumer.poll(timeout=10)
    await consumer.commit()
    broker = freeze(stage)
    committing = asyncio.create_task(consumer.commit({partitions[0]: 1}))
    async with asyncio.timeout(6.5):
        await lookups.wait()
    await stage.cluster.stop_broker(broker)
    async with asyncio.timeout(20):
        await committing
    stage.cluster.faults.clear()
    await consumer.stop()


async def test_retries_join_at_frozen_coordinator(start_stage: StartStage) -> None:
    """Without the probe it would wait for the rebalance timeout: five minutes."""
    stage, lookups = await start_stage(3), CoordinatorLookups()
    consumer = await member(stage, 6_000)
    joining = stage.consumer("t", session_timeout_ms=6_000, hooks=lookups.hooks)
    await joining.start()
    await joining.poll(timeout=4)  # the other member has unprocessed records
    assert joining.group_metadata().generation_id == -1
    broker = freeze(stage)
    async with asyncio.timeout(10):
        await lookups.wait()
    joins = stage.cluster.faults.add(api="JoinGroup", count=None)
    await stage.cluster.stop_broker(broker)
    async with asyncio.timeout(30):
        await joins.wait()
    stage.cluster.faults.clear()
    await consumer.stop()
    await joining.stop()


async def test_join_delayed_by_other_members_is_not_repeated(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    consumer = await member(stage, 6_000)
    joins = stage.cluster.faults.add(api="JoinGroup", count=None)
    async with stage.consumer("t", session_timeout_ms=6_000) as joining:
        await joining.poll(timeout=100)
        assert joins.hits == 2  # the first one to get the member id (KIP-394)
        assert joining.group_metadata().generation_id == -1
    stage.cluster.faults.clear()
    await consumer.stop()
