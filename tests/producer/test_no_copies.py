"""A large batch reaches the transport without being copied."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kafka_async import Producer, ProducerRecord, RecordBatch, TopicPartition
from kafka_async.client.connection.transport import MAX_JOINED_BYTES
from kafka_async.foundation.memory_network import MemoryTransport
from kafka_async.producer.buffer.partition_queue import ProducerBatch
from tests.producer.bench import Bench, record_calls

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

BATCH = 2 * MAX_JOINED_BYTES
PARTITIONS = 3
VALUES = [random.Random(number).randbytes(1000) for number in range(PARTITIONS * BATCH // 1100)]


async def enqueued(producer: Producer) -> None:
    for number, value in enumerate(VALUES):
        await producer.enqueue("clicks", value, partition=number % PARTITIONS)


async def ready_made(producer: Producer) -> None:
    batch = RecordBatch.build([ProducerRecord("", value) for value in VALUES[: BATCH // 1100]])
    for partition in range(PARTITIONS):
        await producer.send_batch(TopicPartition("clicks", partition), batch)


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("write", [enqueued, ready_made])
async def test_transport_gets_the_bytes_of_the_closed_batch(
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Producer], Coroutine[Any, Any, None]],
    compression: Any,
) -> None:
    written = record_calls(monkeypatch, MemoryTransport, "write")
    payloads: list[bytes] = []
    frame = ProducerBatch.frame

    def recorded_frame(batch: ProducerBatch, *, transactional: bool) -> tuple[bytes, bytes]:
        payloads.append(batch.record_batch.payload)
        return frame(batch, transactional=transactional)

    monkeypatch.setattr(ProducerBatch, "frame", recorded_frame)
    options: Any = {"batch_size": BATCH, "linger_ms": 50, "compression_type": compression}
    async with Bench({"clicks": [1] * PARTITIONS}, **options) as bench:
        await write(bench.producer)
        await bench.producer.flush()
    large = [payload for payload in payloads if len(payload) >= MAX_JOINED_BYTES]
    assert len(large) >= PARTITIONS
    identities = {id(data) for _, data in written}
    assert all(id(payload) in identities for payload in large)
