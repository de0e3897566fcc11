"""Client connections: request order, invalid bytes, disconnects, slow readers."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.header import decode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness
    from tests.embedded.harness import ClusterHarness

pytestmark = pytest.mark.asyncio
virtual = pytest.mark.virtual_clock


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@virtual
async def test_connection_handles_one_request_at_a_time(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    slow = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=100)])],
    )
    loop = asyncio.get_running_loop()
    began = loop.time()
    pending = connection.send(slow, 11)
    await connection.call(MetadataRequest(topics=[]), 12)
    assert pending.done()
    assert loop.time() - began == pytest.approx(5.0)
    other = await harness.connect()
    pending = connection.send(slow, 11)
    await other.call(MetadataRequest(topics=[]), 12)
    assert not pending.done()


@virtual
async def test_pipelined_requests_get_responses_in_order(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    responses = [connection.send(MetadataRequest(topics=[]), version) for version in range(1, 13)]
    assert all(response.brokers for response in await asyncio.gather(*responses))


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
        "advertised but unsupported": framed(struct.pack(">hhihhii", 0, 2, 1, -1, -1, 0, 0)),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    }.items(),
    ids=lambda item: item[0],
)
async def test_invalid_bytes_close_only_their_connection(
    harness: ClusterHarness, data: tuple[str, bytes]
) -> None:
    other, connection = await harness.connect(), await harness.connect()
    connection.write(data[1])
    await connection.closed.wait()
    assert (await other.call(MetadataRequest(topics=[]), 12)).brokers


@virtual
async def test_unsupported_api_versions_request_gets_version_0_response(
    harness: ClusterHarness,
) -> None:
    connection = await harness.connect()
    assert (await connection.send(ApiVersionsRequest(), 0)).error_code == 0
    unsupported = struct.pack(">hhih", 18, 99, 77, -1) + b"\0unknown fields"
    frame = await connection.submit(unsupported)
    correlation_id, response = decode_response(frame, ApiVersionsResponse, 0)
    assert correlation_id == 77
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in response.api_keys] == [
        (18, 0, 5)
    ]


@virtual
async def test_version_excluded_by_settings_closes_connection(start_harness: StartHarness) -> None:
    harness = await start_harness(api_versions={3: (0, 11)})
    connection = await harness.connect()
    assert (await connection.call(MetadataRequest(topics=[]), 11)).brokers
    with pytest.raises(ConnectionResetError):
        await connection.call(MetadataRequest(topics=[]), 12)


@virtual
async def test_request_without_client_id_gets_response(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    connection.client_id = None
    assert (await connection.call(MetadataRequest(topics=[]), 12)).brokers


@virtual
async def test_request_continues_after_client_disconnects(start_harness: StartHarness) -> None:
    harness = await start_harness()
    fault = harness.cluster.faults.add(api="Metadata", delay=5)
    connection = await harness.connect()
    connection.send(MetadataRequest(topics=None), 12)
    await fault.wait()
    connection.drop()
    await connection.closed.wait()
    (client_connection,) = harness.cluster.brokers[1].connections
    await asyncio.sleep(4)
    assert harness.cluster.brokers[1].connections == {client_connection}
    await asyncio.sleep(2)
    assert harness.cluster.brokers[1].connections == set()


async def test_large_requests_over_sockets() -> None:
    async with EmbeddedCluster() as cluster:
        connection = await RawConnection.open(cluster, None)
        large = MetadataRequest.from_dict({"topics": [{"name": "x" * 200}] * 1_000})
        for _ in range(3):
            response = await connection.call(large, 12)
            assert [topic.name for topic in response.topics] == ["x" * 200]
        await connection.close()
        assert cluster.failures == []


async def test_requests_wait_until_client_reads_responses() -> None:
    async with EmbeddedCluster() as cluster:
        await cluster.create_topic("t", 1)
        connection = await RawConnection.open(cluster, None)
        counter = cluster.faults.add(count=None)
        assert connection.transport is not None
        connection.transport.pause_reading()
        names = [{"name": f"{index:0200}"} for index in range(2_000)]
        large = MetadataRequest.from_dict({"topics": names, "allow_auto_topic_creation": False})
        for _ in range(40):  # 16 MB of responses: more than the socket buffers
            connection.send(large, 12)
        before = -1
        while counter.hits != before:
            before = counter.hits
            for _ in range(200):
                await asyncio.sleep(0)
        assert 0 < counter.hits < 40
        await connection.close()
