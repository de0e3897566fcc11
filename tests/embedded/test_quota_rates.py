"""Rates of clients with a quota of 1 MB/s, exactly, in virtual time.

A model of Kafka's formula, written for these tests, predicts the time of each request.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.quotas import load
from benchmarks.quotas.load import CONSUMER_ID, MEASURED, PRODUCER_ID, QUOTA, TOPIC, WINDOW
from kafka_async.client.metadata.request_router import Leader
from kafka_async.consumer.consumer import Consumer
from kafka_async.producer.producer import Producer
from kafka_async.protocol.header import encode_request, encode_response
from kafka_async.protocol.messages.fetch import FetchRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from kafka_async.types import TopicPartition
from tests.embedded_client import InMemory, now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

START, END = round(WINDOW * 1000), round((WINDOW + MEASURED) * 1000)
"""Milliseconds from which and until which the rate is measured: 30 s after the window is full."""
SAMPLES, SAMPLE_MS = 11, 1_000
VALUE = b"v" * 100_000
P0 = TopicPartition(TOPIC, 0)


class Model:
    """Predicts the throttle times of one client, with times in milliseconds."""

    def __init__(self, quota: int) -> None:
        self._quota = quota
        self._samples: list[list[int]] = []
        """The start, the last use and the bytes of each sample."""

    def throttle(self, size: int, now: int, *, keeps: bool) -> int:
        """Return the time after which the rate would be the quota, if nothing else were sent.

        Unless the client is throttled, or if the broker `keeps` the bytes of throttled requests,
        they count from now on.
        """
        self._samples = [each for each in self._samples if now - each[1] < SAMPLES * SAMPLE_MS]
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now, now, 0])
        sample = self._samples[-1]
        sample[1] = now
        sample[2] += size
        age = now - self._samples[0][0]
        over = max(age, (SAMPLES - 1) * SAMPLE_MS + age % SAMPLE_MS)
        total = sum(each[2] for each in self._samples)
        rate = total / (over / 1_000)
        throttle = max(0, math.floor((rate - self._quota) / self._quota * over + 0.5))
        if throttle and not keeps:
            sample[2] -= size
        return throttle

    def requests(self, size: int, *, keeps: bool) -> tuple[list[int], int]:
        """Return the times of requests that are sent as early as allowed.

        Also returns the bytes that were carried within the measured time.
        """
        times: list[int] = []
        at = carried = 0
        while at < END:
            times.append(at)
            throttle = self.throttle(size, at, keeps=keeps)
            if at >= START and (keeps or not throttle):
                carried += size
            at += throttle
        return times, carried


async def times_of(memory: InMemory, kind: type[Any], call: Callable[[], Awaitable[object]]) -> Any:
    """Repeat a call until the end; return the times of its requests, in milliseconds."""
    first, start = len(memory.received), now()

    async def repeat() -> None:
        while True:
            await call()

    calls = asyncio.create_task(repeat())
    await asyncio.sleep(END / 1_000)
    calls.cancel()
    await asyncio.wait({calls})
    rows = [row for row in memory.received[first:] if isinstance(row.request, kind)]
    return [round((row.time - start) * 1_000) for row in rows], rows


async def test_producer_sends_exactly_what_the_formula_allows() -> None:
    async with InMemory() as memory:
        servers = memory.cluster.bootstrap_servers
        await load.set_quotas(servers, QUOTA, dialer=memory.network)
        async with Producer(
            servers, client_id=PRODUCER_ID, dialer=memory.network, acks=1, enable_idempotence=False
        ) as producer:
            times, rows = await times_of(
                memory, ProduceRequest, lambda: producer.send(TOPIC, VALUE, partition=0)
            )
        header = 4 + 2 + 2 + 4 + 2 + len(PRODUCER_ID) + 1  # size, API, version, ..., tagged fields
        (size,) = {  # of the body, which is what Kafka counts
            sum(map(len, encode_request(row.request, row.version, 0, PRODUCER_ID))) - header
            for row in rows
        }
        expected, carried = Model(QUOTA).requests(size, keeps=True)
        assert times == expected
        assert size * sum(at >= START for at in times) == carried
        assert memory.cluster.throttle_log.violations() == []


async def test_consumer_reads_exactly_what_the_formula_allows() -> None:
    async with InMemory() as memory:
        servers = memory.cluster.bootstrap_servers
        await load.set_quotas(servers, QUOTA, dialer=memory.network)
        async with Producer(servers, dialer=memory.network) as producer:
            for _ in range(2 * END * QUOTA // 1_000 // len(VALUE)):
                await producer.send(TOPIC, VALUE, partition=0)
        read: list[tuple[int, int]] = []
        async with Consumer(
            servers,
            partitions=[P0],
            auto_offset_reset="earliest",
            client_id=CONSUMER_ID,
            max_partition_fetch_bytes=1,  # a batch, which has one record
            dialer=memory.network,
        ) as consumer:
            await consumer.position(P0)
            start = now()

            async def poll() -> None:
                records = await consumer.poll(timeout=60.0)
                read.append((round((now() - start) * 1_000), len(records)))

            times, rows = await times_of(memory, FetchRequest, poll)
        size = await size_of_fetch_response(memory, rows[0].version)
        expected, carried = Model(QUOTA).requests(size, keeps=False)
        assert times == expected
        assert size * sum(count for at, count in read if at >= START) == carried
        assert memory.cluster.throttle_log.violations() == []


async def size_of_fetch_response(memory: InMemory, version: int) -> int:
    """Return the size of a response with one batch that counts: its body and four bytes."""
    topics = [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1}]}]
    request = FetchRequest.from_dict({"max_bytes": 1, "session_epoch": -1, "topics": topics})
    async with memory.client() as client:  # It knows the topic by name, the consumer by id.
        response = await client.request(request, to=Leader(P0), max_version=12)
    async with memory.admin() as admin:
        response.responses[0].topic_id = (await admin.describe_topics([TOPIC]))[TOPIC].topic_id
    header = 4 + 4 + 1  # size, correlation id, tagged fields
    return sum(map(len, encode_response(response, version, 0))) - header + 4
