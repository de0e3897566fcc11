"""The embedded cluster: start and stop, brokers, leaders, control methods."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import EmbeddedCluster, Listener
from kafka_async.embedded.cluster import HOST
from kafka_async.errors import (
    ClientClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.types import TopicPartition
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness

pytestmark = pytest.mark.asyncio
virtual = pytest.mark.virtual_clock

METADATA_REQUEST = MetadataRequest(topics=[])


async def test_starts_and_stops_in_different_tasks() -> None:
    cluster = EmbeddedCluster(2)
    await asyncio.create_task(cluster.start())
    connection = await RawConnection.open(cluster, None, 2)
    assert len((await connection.call(METADATA_REQUEST, 12)).brokers) == 2
    await asyncio.create_task(cluster.stop())
    await connection.closed.wait()
    with pytest.raises(ConnectionRefusedError):
        await RawConnection.open(cluster, None, 2)
    await cluster.stop()


async def test_unknown_option_is_refused_by_the_name_of_the_cluster() -> None:
    options: dict[str, Any] = {"port": 1}
    with pytest.raises(TypeError, match=r"^EmbeddedCluster got an unexpected .* 'port'"):
        EmbeddedCluster(**options)


@virtual
async def test_stop_ends_pending_requests_and_timers(start_harness: StartHarness) -> None:
    harness = await start_harness()
    fault = harness.cluster.faults.add(hang=True)
    connection = await harness.connect()
    waiting = connection.send(METADATA_REQUEST, 12)
    await fault.wait()
    timer = harness.cluster.scheduler.call_later(1, lambda: 1 / 0)
    await harness.cluster.stop()
    with pytest.raises(ConnectionResetError):
        await waiting
    assert timer.cancelled()


async def test_stop_ends_start_in_progress() -> None:
    cluster = EmbeddedCluster(3)
    starting = asyncio.create_task(cluster.start())
    await cluster.stop()
    with pytest.raises(ClientClosedError, match="was stopped while it started"):
        await starting


async def test_start_fails_and_closes_listeners_if_port_is_in_use() -> None:
    async with EmbeddedCluster() as first:
        used_port = first.brokers[1].port
        second = EmbeddedCluster(2, ports=[0, used_port])
        with pytest.raises(OSError, match=str(used_port)):
            await second.start()
        with pytest.raises(ConnectionRefusedError):
            await RawConnection.open(second, None, 1)


@virtual
async def test_broker_opens_no_listener_if_one_of_its_ports_is_in_use() -> None:
    network = MemoryNetwork()
    listeners = {
        "FIRST": Listener(security_protocol="PLAINTEXT"),
        "SECOND": Listener(security_protocol="PLAINTEXT"),
    }
    async with EmbeddedCluster(listeners=listeners, network=network) as cluster:
        former = dict(cluster.brokers[1].ports)
        await cluster.stop_broker(1)
        network.listen(asyncio.Protocol, HOST, former["SECOND"])
        for port in (None, 9999):
            with pytest.raises(OSError, match=f"{former['SECOND']} is in use"):
                await cluster.start_broker(1, port=port)
        assert cluster.brokers[1].ports == former
        for closed in (former["FIRST"], 9999):
            with pytest.raises(ConnectionRefusedError):
                await network.dial(asyncio.Protocol, HOST, closed)
        network.close(HOST, former["SECOND"])
        await cluster.start_broker(1, port=9999)
        assert cluster.brokers[1].ports == {**former, "FIRST": 9999}


async def test_rejects_invalid_arguments() -> None:
    with pytest.raises(InvalidConfigurationError):
        EmbeddedCluster(0)
    with pytest.raises(InvalidConfigurationError):
        EmbeddedCluster(2, ports=[9092])
    with pytest.raises(InvalidConfigurationError, match="default_partitions"):
        EmbeddedCluster(default_partitions=0)


async def test_control_methods_require_started_cluster() -> None:
    with pytest.raises(ClientClosedError):
        await EmbeddedCluster().create_topic("t")
    with pytest.raises(ClientClosedError):
        EmbeddedCluster().scheduler.now_ms()


@virtual
async def test_unstopped_cluster_warns() -> None:
    cluster = EmbeddedCluster(network=MemoryNetwork())
    await cluster.start()
    supervisor = cluster._supervisor  # pyright: ignore[reportPrivateUsage]
    with pytest.warns(ResourceWarning, match="never stopped"):
        cluster.__del__()
    await supervisor.stop()


# -- starting and stopping brokers ----------------------------------------------------------------


@virtual
async def test_stopped_broker_resets_connections_and_restarts_on_its_port(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(2)
    port = harness.cluster.brokers[1].port
    one, two = await harness.connect(1), await harness.connect(2)
    await harness.cluster.stop_broker(1)
    await one.closed.wait()
    assert [broker.node_id for broker in (await two.call(METADATA_REQUEST, 12)).brokers] == [2]
    with pytest.raises(ConnectionRefusedError):
        await harness.connect(1)
    await harness.cluster.stop_broker(1)
    await harness.cluster.start_broker(1)
    await harness.cluster.start_broker(1)
    assert harness.cluster.brokers[1].port == port
    assert len((await (await harness.connect(1)).call(METADATA_REQUEST, 12)).brokers) == 2


@virtual
async def test_stopping_broker_cancels_pending_requests(start_harness: StartHarness) -> None:
    harness = await start_harness()
    await harness.cluster.create_topic("t")
    fault = harness.cluster.faults.add(api="Metadata", delay=5)
    connection = await harness.connect()
    connection.send(MetadataRequest.from_dict({"topics": [{"name": "new"}]}), 12)
    await fault.wait()
    await harness.cluster.stop_broker(1)
    await asyncio.sleep(10)
    assert harness.cluster.topics.get("new") is None


async def test_broker_restarts_on_socket() -> None:
    async with EmbeddedCluster() as cluster:
        for _ in range(3):
            connection = await RawConnection.open(cluster, None)
            assert (await connection.call(METADATA_REQUEST, 12)).brokers
            await cluster.stop_broker(1)
            await connection.closed.wait()
            await cluster.start_broker(1)


@virtual
async def test_disconnect_resets_connections_of_running_brokers(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(2)
    one, two = await harness.connect(1), await harness.connect(2)
    await one.call(METADATA_REQUEST, 12)
    assert await harness.cluster.disconnect(1) == 1
    await one.closed.wait()
    await two.call(METADATA_REQUEST, 12)
    assert await harness.cluster.disconnect() == 1
    await two.closed.wait()
    await (await harness.connect(1)).call(METADATA_REQUEST, 12)


@virtual
async def test_only_keys_of_stopped_broker_change_coordinator(start_harness: StartHarness) -> None:
    harness = await start_harness(3)
    cluster = harness.cluster
    keys = [f"group-{index}" for index in range(100)]
    before = {key: cluster.brokers.coordinator_for(key) for key in keys}
    assert set(before.values()) == {1, 2, 3}
    await cluster.stop_broker(2)
    during = {key: cluster.brokers.coordinator_for(key) for key in keys}
    connection = await harness.connect(1)
    response = await connection.call(FindCoordinatorRequest(coordinator_keys=keys))
    for found in response.coordinators:
        broker = cluster.brokers[found.node_id]
        assert found.node_id == during[found.key]
        assert (found.host, found.port) == (broker.host, broker.port)
    assert {key for key in keys if during[key] != before[key]} == {
        key for key in keys if before[key] == 2
    }
    await cluster.start_broker(2)
    assert {key: cluster.brokers.coordinator_for(key) for key in keys} == before
    for broker_id in (1, 2, 3):
        await cluster.stop_broker(broker_id)
    assert cluster.brokers.coordinator_for("group-1") is None
    assert cluster.brokers.controller_id == -1


@virtual
async def test_move_leader_elects_requested_broker(start_harness: StartHarness) -> None:
    harness = await start_harness(3)
    cluster = harness.cluster
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


# -- control methods ------------------------------------------------------------------------------


async def test_control_methods_work_from_other_event_loop() -> None:
    async with EmbeddedCluster() as cluster:

        async def control() -> str:
            await cluster.create_topic("remote", 2)
            with pytest.raises(TopicExistsError):
                await cluster.create_topic("remote")
            return threading.current_thread().name

        name = await asyncio.to_thread(lambda: asyncio.run(control()))
        assert name != threading.current_thread().name
        assert cluster.topics.get("remote") is not None


@virtual
async def test_timers_follow_virtual_time(start_harness: StartHarness) -> None:
    harness = await start_harness()
    loop = asyncio.get_running_loop()
    called: list[float] = []
    harness.cluster.scheduler.call_later(3_600, lambda: called.append(loop.time()))
    harness.cluster.scheduler.call_later(10, called.append, -1.0).cancel()
    wall = harness.cluster.scheduler.now_ms()
    await asyncio.sleep(4_000)
    assert called == [3_600]
    assert harness.cluster.scheduler.now_ms() - wall == 4_000_000
