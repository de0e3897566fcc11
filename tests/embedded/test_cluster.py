"""The cluster as a whole: life, placement, control from anywhere."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from kafka_async.clock import MemoryNetwork
from kafka_async.embedded import EmbeddedCluster
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.types import TopicPartition
from tests.embedded.wire import Peer

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage

pytestmark = pytest.mark.asyncio
virtual = pytest.mark.virtual_clock

ASK = MetadataRequest(topics=[])


async def test_it_starts_and_stops_in_different_tasks() -> None:
    cluster = EmbeddedCluster(2)
    await asyncio.create_task(cluster.start())
    peer = await Peer.connect(cluster, None, 2)
    assert len((await peer.ask(ASK, 12)).brokers) == 2
    await asyncio.create_task(cluster.stop())
    await peer.closed.wait()
    with pytest.raises(ConnectionRefusedError):
        await Peer.connect(cluster, None, 2)
    await cluster.stop()


@virtual
async def test_stopping_ends_what_is_parked(start_stage: StartStage) -> None:
    stage = await start_stage()
    fault = stage.cluster.faults.add(hang=True)
    peer = await stage.peer()
    waiting = peer.send(ASK, 12)
    await fault.wait()
    timer = stage.cluster.call_later(1, lambda: 1 / 0)
    await stage.cluster.stop()
    with pytest.raises(ConnectionResetError):
        await waiting
    assert timer.cancelled()


async def test_a_port_that_is_taken_is_an_error_and_nothing_stays_open() -> None:
    async with EmbeddedCluster() as first:
        taken = first.brokers[1].port
        second = EmbeddedCluster(2, ports=[0, taken])
        with pytest.raises(OSError, match=str(taken)):
            await second.start()
        with pytest.raises(ConnectionRefusedError):
            await Peer.connect(second, None, 1)


async def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError):
        EmbeddedCluster(0)
    with pytest.raises(InvalidConfigurationError):
        EmbeddedCluster(2, ports=[9092])
    with pytest.raises(InvalidConfigurationError, match="default_partitions"):
        EmbeddedCluster(default_partitions=0)


async def test_control_needs_a_started_cluster() -> None:
    with pytest.raises(ClientClosedError):
        await EmbeddedCluster().create_topic("t")


@virtual
async def test_a_cluster_that_is_forgotten_warns() -> None:
    cluster = EmbeddedCluster(network=MemoryNetwork())
    await cluster.start()
    supervisor = cluster._supervisor  # pyright: ignore[reportPrivateUsage]
    with pytest.warns(ResourceWarning, match="never stopped"):
        cluster.__del__()
    await supervisor.stop()


# -- brokers that come and go -------------------------------------------------------------------


@virtual
async def test_a_stopped_broker_drops_its_connections_and_returns_on_its_port(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(2)
    port = stage.cluster.brokers[1].port
    one, two = await stage.peer(1), await stage.peer(2)
    await stage.cluster.stop_broker(1)
    await one.closed.wait()
    assert [broker.node_id for broker in (await two.ask(ASK, 12)).brokers] == [2]
    with pytest.raises(ConnectionRefusedError):
        await stage.peer(1)
    await stage.cluster.stop_broker(1)
    await stage.cluster.start_broker(1)
    await stage.cluster.start_broker(1)
    assert stage.cluster.brokers[1].port == port
    assert len((await (await stage.peer(1)).ask(ASK, 12)).brokers) == 2


@virtual
async def test_a_stopped_broker_cancels_what_it_was_doing(start_stage: StartStage) -> None:
    stage = await start_stage()
    await stage.cluster.create_topic("t")
    fault = stage.cluster.faults.add(api="Metadata", delay=5)
    peer = await stage.peer()
    peer.send(MetadataRequest.from_dict({"topics": [{"name": "new"}]}), 12)
    await fault.wait()
    await stage.cluster.stop_broker(1)
    await asyncio.sleep(10)
    assert stage.cluster.topics.get("new") is None


async def test_a_broker_restarts_on_a_real_port_too() -> None:
    async with EmbeddedCluster() as cluster:
        for _ in range(3):
            peer = await Peer.connect(cluster, None)
            assert (await peer.ask(ASK, 12)).brokers
            await cluster.stop_broker(1)
            await peer.closed.wait()
            await cluster.start_broker(1)


@virtual
async def test_connections_can_be_reset_without_stopping_anything(start_stage: StartStage) -> None:
    stage = await start_stage(2)
    one, two = await stage.peer(1), await stage.peer(2)
    await one.ask(ASK, 12)
    assert await stage.cluster.disconnect(1) == 1
    await one.closed.wait()
    await two.ask(ASK, 12)
    assert await stage.cluster.disconnect() == 1
    await two.closed.wait()
    await (await stage.peer(1)).ask(ASK, 12)


@virtual
async def test_only_the_keys_of_a_stopped_broker_move(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    cluster = stage.cluster
    keys = [f"group-{index}" for index in range(100)]
    before = {key: cluster.coordinator_for(key) for key in keys}
    assert set(before.values()) == {1, 2, 3}
    await cluster.stop_broker(2)
    during = {key: cluster.coordinator_for(key) for key in keys}
    assert {key for key in keys if during[key] != before[key]} == {
        key for key in keys if before[key] == 2
    }
    await cluster.start_broker(2)
    assert {key: cluster.coordinator_for(key) for key in keys} == before
    for broker_id in (1, 2, 3):
        await cluster.stop_broker(broker_id)
    assert cluster.coordinator_for("group-1") is None
    assert cluster.controller_id == -1


@virtual
async def test_leaders_move_by_order(start_stage: StartStage) -> None:
    stage = await start_stage(3)
    cluster = stage.cluster
    await cluster.create_topic("t", 1, assignments={0: [1, 2]})
    tp = TopicPartition("t", 0)
    partition = cluster.topics.partition(tp)
    assert partition is not None
    assert await cluster.move_leader(tp) == 2
    assert await cluster.move_leader(tp, 3) == 3
    assert partition.replicas == (1, 2, 3)
    assert await cluster.move_leader(tp, 3) == 3
    assert partition.leader_epoch == 2
    with pytest.raises(UnknownTopicOrPartitionError):
        await cluster.move_leader(TopicPartition("t", 1))
    await cluster.stop_broker(1)
    with pytest.raises(IllegalStateError):
        await cluster.move_leader(tp, 1)


# -- control from anywhere ----------------------------------------------------------------------


async def test_control_calls_work_from_another_loop() -> None:
    async with EmbeddedCluster() as cluster:

        async def control() -> str:
            await cluster.create_topic("from-afar", 2)
            with pytest.raises(TopicExistsError):
                await cluster.create_topic("from-afar")
            return threading.current_thread().name

        name = await asyncio.to_thread(lambda: asyncio.run(control()))
        assert name != threading.current_thread().name
        assert cluster.topics.get("from-afar") is not None


@virtual
async def test_timers_keep_virtual_time(start_stage: StartStage) -> None:
    stage = await start_stage()
    loop = asyncio.get_running_loop()
    called: list[float] = []
    stage.cluster.call_later(3_600, lambda: called.append(loop.time()))
    stage.cluster.call_later(10, called.append, -1.0).cancel()
    wall = stage.cluster.now_ms()
    await asyncio.sleep(4_000)
    assert called == [3_600]
    assert stage.cluster.now_ms() - wall == 4_000_000
