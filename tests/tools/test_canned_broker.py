"""The broker of the counted paths: it responds to produce requests without storing records."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from struct import unpack_from

import pytest

from kafka_async.producer.producer import Producer
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tools.instructions.canned_broker import CannedBroker
from tools.instructions.paths import TOPIC, cluster

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]
VERSION = 12


def request(number: int, records: bytes = b"") -> bytes:
    data = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    produce = ProduceRequest(acks=-1, timeout_ms=1, topic_data=topics)
    return b"".join(encode_request(produce, VERSION, number, "test"))


class Client(asyncio.BufferedProtocol):
    """Collects received frames."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._buffer = bytearray(65_536)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        at = 0
        while at < nbytes:
            (size,) = unpack_from(">i", self._buffer, at)
            self.frames.append(bytes(self._buffer[at + 4 : at + 4 + size]))
            at += 4 + size


async def test_acknowledges_all_records_and_stores_none() -> None:
    async with cluster() as (address, network):
        async with Producer(address, dialer=CannedBroker(network)) as producer:
            handles = [await producer.enqueue(TOPIC, b"x" * 100_000) for _ in range(20)]
            await producer.flush()
            assert {(await handle).partition for handle in handles} == {0}
        async with Producer(address, dialer=network) as producer:
            assert (await producer.send(TOPIC, b"the first")).offset == 0


@pytest.mark.parametrize("splits", [(), (60,), (60, 120, 500, 501), (200, 400)])
async def test_responds_once_to_each_request_in_any_segmentation(splits: tuple[int, ...]) -> None:
    client = Client()
    async with cluster() as (address, network):
        host, _, port = address.rpartition(":")
        transport, _ = await CannedBroker(network).dial(lambda: client, host, int(port))
        stream = b"".join(request(number, b"r" * 100) for number in (7, 8, 9, 10))
        for begin, end in pairwise((0, *splits, len(stream))):
            transport.write(stream[begin:end])
        await asyncio.sleep(1)
        transport.close()
    responses = [decode_response(frame, ProduceResponse, VERSION) for frame in client.frames]
    assert [number for number, _ in responses] == [7, 8, 9, 10]
    parts = [response.responses[0].partition_responses[0] for _, response in responses]
    assert {(part.index, part.error_code) for part in parts} == {(0, 0)}
