"""A rebalance listener that takes too long is cancelled, and its consumer stays in the group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from kafka_async.errors import IllegalStateError, KafkaTimeoutError
from tests.consumer.conftest import poll_until

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafka_async.consumer.consumer import Consumer
    from kafka_async.testing.clock import VirtualClockEventLoop
    from kafka_async.types import TopicPartition
    from tests.consumer.conftest import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock, pytest.mark.one_kernel]

PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
TIMEOUT = 60.0
"""Default of rebalance_listener_timeout_ms, in seconds."""


class HangingListener:
    """Hangs in one of its callbacks; records the callbacks that began, and those cancelled."""

    def __init__(self, hangs: str) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._hangs = hangs

    async def on_assigned(self, _: Collection[TopicPartition]) -> None:
        await self._run("assigned")

    async def on_revoked(self, _: Collection[TopicPartition]) -> None:
        await self._run("revoked")

    async def on_lost(self, _: Collection[TopicPartition]) -> None:
        await self._run("lost")

    async def _run(self, name: str) -> None:
        self.begun.append(name)
        if name != self._hangs:
            return
        self._hangs = ""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise


def now() -> float:
    return asyncio.get_running_loop().time()


async def poll_until_error(*consumers: Consumer) -> KafkaTimeoutError:
    """Poll until a consumer raises KafkaTimeoutError."""
    with pytest.raises(KafkaTimeoutError) as raised:
        await poll_until(lambda: False, *consumers)
    return raised.value


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [row.getMessage() for row in caplog.records if row.name == "kafka_async.consumer"]


@PROTOCOLS
async def test_hanging_on_revoked_delays_the_group_by_the_timeout_at_most(
    stage: Stage, protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.topic("t", 2, records=1)
    listener: Any = HangingListener("revoked")
    options: dict[str, Any] = {"group_protocol": protocol}
    async with (
        stage.consumer("t", **options, listener=listener) as first,
        stage.consumer("t", **options) as second,
    ):
        await poll_until(lambda: len(first.assignment()) == 2, first)
        member_id, started = first.group_metadata().member_id, now()
        error = await poll_until_error(first, second)
        assert TIMEOUT < now() - started < TIMEOUT + 10
        assert listener.cancelled == ["revoked"]
        message = (
            "the rebalance listener HangingListener.on_revoked took longer than "
            "rebalance_listener_timeout_ms (60 s), so it was cancelled"
        )
        assert error.message == message
        assert warnings_of(caplog) == [f"{message}; the rebalance continues"]
        await poll_until(lambda: len(second.assignment()) == 1, first, second)
        await poll_until(lambda: len(first.assignment()) == 1, first, second)
        assert first.assignment().isdisjoint(second.assignment())
        assert first.group_metadata().member_id == member_id
        assert "lost" not in listener.begun
        await asyncio.gather(first.commit(), second.commit())


@PROTOCOLS
async def test_records_are_returned_after_a_hanging_on_assigned(
    stage: Stage, protocol: Any
) -> None:
    await stage.topic("t", 1, records=3)
    listener: Any = HangingListener("assigned")
    async with stage.consumer("t", group_protocol=protocol, listener=listener) as consumer:
        await poll_until_error(consumer)
        assert len(await consumer.poll(timeout=10)) == 3
    assert listener.begun == ["assigned", "revoked"]


@PROTOCOLS
async def test_member_joins_again_after_a_hanging_on_lost(stage: Stage, protocol: Any) -> None:
    await stage.topic("t", 1, records=3)
    listener: Any = HangingListener("lost")
    async with stage.consumer("t", group_protocol=protocol, listener=listener) as consumer:
        await poll_until(consumer.assignment, consumer)
        api = "Heartbeat" if protocol == "classic" else "ConsumerGroupHeartbeat"
        stage.cluster.faults.add(api=api, error="UNKNOWN_MEMBER_ID")
        await poll_until_error(consumer)
        assert len(await consumer.poll(timeout=10)) == 3
    assert listener.begun == ["assigned", "lost", "assigned", "revoked"]
    assert listener.cancelled == ["lost"]


async def test_function_that_blocks_for_longer_is_reported_once_it_has_returned(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be cancelled, and has done its work: nothing is raised."""
    await stage.topic("t", 1, records=3)

    def block(_: Collection[TopicPartition]) -> None:
        cast("VirtualClockEventLoop", asyncio.get_running_loop()).block(31)

    async with stage.consumer("t", rebalance_listener_timeout_ms=30_000) as consumer:
        consumer.on_assigned(block)
        await poll_until(consumer.assignment, consumer)
        assert len(await consumer.poll(timeout=10)) == 3
    (warning,) = warnings_of(caplog)
    assert warning.endswith("rebalance_listener_timeout_ms (30 s); it has returned")


@PROTOCOLS
async def test_stop_in_a_listener_is_refused(stage: Stage, protocol: Any) -> None:
    """It would wait for the rebalance, which waits for the listener."""
    await stage.topic("t", 1)
    refused: list[str] = []
    async with stage.consumer("t", group_protocol=protocol) as consumer:

        async def stop(_: Collection[TopicPartition]) -> None:
            with pytest.raises(
                IllegalStateError, match=r"stop\(\) in a rebalance listener"
            ) as raised:
                await consumer.stop()
            refused.append(str(raised.value))

        consumer.on_assigned(stop)
        consumer.on_revoked(stop)
        await poll_until(lambda: len(refused) == 1, consumer)
        began = now()
    assert len(refused) == 2
    assert now() - began < 1
