"""The fixture `kafka_cluster` of this suite: three brokers on every backend."""

from __future__ import annotations

import asyncio

import pytest

from kafka_async import Admin
from kafka_async.testing.backends import ExternalBackend
from kafka_async.testing.backends.probe import broker_ids
from kafka_async.testing.fixtures import ClusterHandle
from kafka_async.testing.topic_cleanup import TopicCleanup

pytestmark = pytest.mark.any_broker


def test_every_broker_has_all_three_in_its_metadata(kafka_cluster: ClusterHandle) -> None:
    servers = kafka_cluster.bootstrap_servers.split(",")
    assert len(servers) == 3
    assert [broker_ids(server, timeout=10) for server in servers] == [{1, 2, 3}] * 3


def test_listens_only_on_this_machine(kafka_cluster: ClusterHandle) -> None:
    hosts = {server.rpartition(":")[0] for server in kafka_cluster.bootstrap_servers.split(",")}
    assert hosts == {"127.0.0.1"}


STOPPED_ELSEWHERE = pytest.mark.mainly_on("embedded", reason="test_producer stops brokers on both")


@pytest.mark.parametrize(
    "end", [pytest.param("stop_broker", marks=STOPPED_ELSEWHERE), "kill_broker"]
)
def test_starts_a_broker_again_at_its_port(kafka_cluster: ClusterHandle, end: str) -> None:
    servers = kafka_cluster.bootstrap_servers.split(",")
    getattr(kafka_cluster.control, end)(3)
    try:
        with pytest.raises(OSError):  # noqa: PT011  # Refused or reset, depending on the system.
            broker_ids(servers[2], timeout=10)
    finally:
        kafka_cluster.control.start_broker(3)
    assert broker_ids(servers[2], timeout=10) == {1, 2, 3}


@pytest.mark.asyncio
async def test_produces_and_reads_a_topic(kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic("seeded")
    await kafka_cluster.produce(topic, [b"a", b"b", None])
    assert sorted(map(str, [row.value for row in await kafka_cluster.read(topic)])) == sorted(
        map(str, [b"a", b"b", None])
    )


def test_leaves_a_fault_behind(kafka_cluster: ClusterHandle) -> None:
    kafka_cluster.faults.add(api="Metadata", hang=True, count=None)


@pytest.mark.asyncio
async def test_starts_without_the_faults_of_the_previous_test(kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic("after")
    await kafka_cluster.produce(topic, [b"a"])
    assert len(await kafka_cluster.read(topic)) == 1


@pytest.mark.asyncio
async def test_deletes_the_topics_of_a_test(kafka_cluster: ClusterHandle) -> None:
    """Uses one connection for several tests, as a session does."""
    cleanup = TopicCleanup(kafka_cluster.cluster)
    kept = kafka_cluster.topic("kept")
    await kafka_cluster.produce(kept, [b"a"])
    async with Admin(kafka_cluster.bootstrap_servers) as admin:
        for _ in range(2):
            handle = ClusterHandle(kafka_cluster.cluster, cleanup)
            topic, other = handle.topic("left"), handle.topic("left-too")
            handle.topic("never-created")
            await handle.produce(topic, [b"a"])
            await handle.produce(other, [b"a"])
            assert {kept, topic, other} <= set(await admin.list_topics())
            await asyncio.to_thread(handle.__exit__)
            async with asyncio.timeout(30):
                while {topic, other} & set(await admin.list_topics()):
                    # Each broker applies a deletion when it reads it from the controller.
                    assert kafka_cluster.backend != "embedded"
                    await asyncio.sleep(0.05)
        assert kept in await admin.list_topics()
    await asyncio.to_thread(cleanup.close)


def test_logs_topics_that_cannot_be_deleted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KAFKA_ASYNC_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr("kafka_async.testing.topic_cleanup.TIMEOUT_MS", 100)
    cluster = ExternalBackend()
    cleanup = TopicCleanup(cluster)
    with ClusterHandle(cluster, cleanup) as handle:
        topic = handle.topic("orders")
    assert f"topics were not deleted: ['{topic}']" in caplog.text
    assert "127.0.0.1:1" in caplog.text
    cleanup.close()
