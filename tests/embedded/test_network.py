"""Connections: one request at a time, hostile bytes, clients that go or do not read."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.codes import Code
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.embedded.wire import Peer

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage
    from tests.embedded.stage import Stage

pytestmark = pytest.mark.asyncio
virtual = pytest.mark.virtual_clock


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@virtual
async def test_a_connection_is_answered_one_request_at_a_time(stage: Stage) -> None:
    peer = await stage.peer()
    slow = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=100)])],
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    parked = peer.send(slow, 11)
    await peer.ask(MetadataRequest(topics=[]), 12)
    assert parked.done()
    assert loop.time() - began == pytest.approx(5.0)
    other = await stage.peer()
    parked = peer.send(slow, 11)
    await other.ask(MetadataRequest(topics=[]), 12)
    assert not parked.done()


@virtual
async def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    peer = await stage.peer()
    answers = [peer.send(MetadataRequest(topics=[]), version) for version in range(1, 13)]
    assert all(response.brokers for response in await asyncio.gather(*answers))


@virtual
@pytest.mark.parametrize(
    "data",
    {
        "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "negative size": struct.pack(">i", -5),
        "empty frame": framed(b""),
        "short header": framed(b"\0\3\0"),
        "no such API": framed(struct.pack(">hhih", 999, 0, 1, -1)),
        "removed API": framed(struct.pack(">hhih", 4, 0, 1, -1)),
        "no such version": framed(struct.pack(">hhih", 3, 99, 1, -1)),
        "garbled body": framed(struct.pack(">hhihi", 3, 1, 1, -1, 1_000_000)),
        "advertised but refused": framed(struct.pack(">hhihhii", 0, 2, 1, -1, -1, 0, 0)),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    }.items(),
    ids=lambda item: item[0],
)
async def test_hostile_bytes_end_their_connection_and_nothing_else(
    stage: Stage, data: tuple[str, bytes]
) -> None:
    other, peer = await stage.peer(), await stage.peer()
    peer.write(data[1])
    await peer.closed.wait()
    assert (await other.ask(MetadataRequest(topics=[]), 12)).brokers


@virtual
async def test_api_versions_from_the_future_is_answered_with_version_0(stage: Stage) -> None:
    peer = await stage.peer()
    answer = peer.send(ApiVersionsRequest(), 0)  # expects an answer of version 0 ...
    assert (await answer).error_code == 0
    future = asyncio.get_running_loop().create_future()
    peer.waiting.append((ApiVersionsResponse, 0, 77, future))
    peer.write(framed(struct.pack(">hhih", 18, 99, 77, -1) + b"\0what nobody knows yet"))
    response = await future
    assert response.error_code == Code.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [
        (18, 0, 5)
    ]


@virtual
async def test_a_version_that_the_settings_exclude_ends_the_connection(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(api_versions={3: (0, 11)})
    peer = await stage.peer()
    assert (await peer.ask(MetadataRequest(topics=[]), 11)).brokers
    with pytest.raises(ConnectionResetError):
        await peer.ask(MetadataRequest(topics=[]), 12)


@virtual
async def test_a_request_without_client_id_is_answered(stage: Stage) -> None:
    peer = await stage.peer()
    peer.client_id = None
    assert (await peer.ask(MetadataRequest(topics=[]), 12)).brokers


@virtual
async def test_a_request_goes_on_when_its_client_has_gone(start_stage: StartStage) -> None:
    stage = await start_stage()
    fault = stage.cluster.faults.add(api="Metadata", delay=5)
    peer = await stage.peer()
    peer.send(MetadataRequest(topics=None), 12)
    await fault.wait()
    peer.drop()
    await peer.closed.wait()
    (connection,) = stage.cluster.brokers[1].connections
    await asyncio.sleep(4)
    assert stage.cluster.brokers[1].connections == {connection}
    await asyncio.sleep(2)
    assert stage.cluster.brokers[1].connections == set()


async def test_the_same_over_sockets() -> None:
    async with EmbeddedCluster() as cluster:
        peer = await Peer.connect(cluster, None)
        large = MetadataRequest.from_dict({"topics": [{"name": "x" * 200}] * 1_000})
        for _ in range(3):
            response = await peer.ask(large, 12)
            assert [topic.name for topic in response.topics] == ["x" * 200]
        await peer.close()
        assert cluster.failures == []


async def test_a_client_that_does_not_read_stops_being_answered() -> None:
    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("t", 1)
        peer = await Peer.connect(cluster, None)
        counter = cluster.faults.add(count=None)
        assert peer.transport is not None
        peer.transport.pause_reading()
        names = [{"name": f"{index:0200}"} for index in range(2_000)]
        large = MetadataRequest.from_dict({"topics": names, "allow_auto_topic_creation": False})
        for _ in range(40):  # 16 MB of answers: more than the sockets' buffers hold
            peer.send(large, 12)
        before = -1
        while counter.hits != before:
            before = counter.hits
            for _ in range(200):
                await asyncio.sleep(0)
        assert 0 < counter.hits < 40
        await peer.close()
