"""Runs cases with a blocking socket, with requests encoded before the measurement, as the limit.

No Python client of one broker can be much faster. It supports clusters of one broker only, does not
parse records, and fails on the first error without a retry. Over TLS it decrypts with OpenSSL into
the same buffer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks import payload, tls
from benchmarks.peers.blocking_peer import round_trips
from benchmarks.peers.task import Figures, Stopwatch, Task, main
from kafka_async import Producer
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafka_async.records.batch import HEADER_SIZE, BatchHeader, RecordBatch, iter_batches
from kafka_async.types import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.protocol.message import Request

BATCH_BYTES: Final = 131_072
RECORD_BYTES: Final = 20
"""Maximum bytes of a record without its value."""
IN_FLIGHT: Final = 5
PRODUCE, FETCH = 12, 12
"""Last versions with topic names instead of ids."""
FETCH_BYTES: Final = 52_428_800
PARTITION_BYTES: Final = 1_048_576
PATIENCE: Final = 60.0


class RefusedError(RuntimeError):
    """The response of the broker has an error."""


class Wire:
    """Connection that sends requests and reads responses into one buffer."""

    def __init__(self, bootstrap: str, cafile: str = "") -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE)
        self._socket.settimeout(None)  # a time-out would add a poll to each call
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._flags = int(socket.MSG_WAITALL)
        if cafile:
            context = ssl.create_default_context(cafile=cafile)
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._flags = 0  # with TLS, a call returns at most one record of 16 KiB
        self._buffer = bytearray(65_536)
        self.send = self._socket.sendall
        self.close = self._socket.close

    def receive(self) -> memoryview:
        """Return the next response without its size, valid until the next call."""
        self._fill(memoryview(self._buffer)[:4])
        size = int.from_bytes(self._buffer[:4], "big")
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return view

    def _fill(self, view: memoryview) -> None:
        received, size, receive_into = 0, len(view), self._socket.recv_into
        while received < size:
            count = receive_into(view[received:], size - received, self._flags)
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count


def _encode(request: Request[Any], version: int) -> bytes:
    return b"".join(encode_request(request, version, 0, "raw-socket"))


def _produce_request(topic: str, batches: Mapping[int, bytes]) -> bytes:
    """Encode a request with a batch for each partition, which is faster than single requests."""
    data = [PartitionProduceData(index=each, records=batch) for each, batch in batches.items()]
    topic_data = [TopicProduceData(name=topic, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
    return _encode(request, PRODUCE)


def _expect_success(buffer: memoryview | bytes) -> None:
    _, response = decode_response(buffer, ProduceResponse, PRODUCE)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise RefusedError(f"{topic.name}-{partition.index}: error {partition.error_code}")


def _batch(task: Task, values: list[bytes]) -> bytes:
    records = [ProducerRecord(task.topic, value) for value in values]
    now = int(time.time() * 1000)
    return RecordBatch.build(records, task.compression, timestamp=now).frame()


def requests(task: Task) -> list[bytes]:
    """Return requests with all records, in a batch of at most 128 KiB for each partition.

    The number of records per batch is chosen so that the values repeat after some batches: equal
    requests are the same object, to save memory.
    """
    values = task.distinct_values
    fit = BATCH_BYTES // (task.size + RECORD_BYTES)
    each = max(count for count in range(1, max(1, fit) + 1) if len(values) % count == 0)
    known: dict[tuple[int, int], bytes] = {}
    made: list[bytes] = []
    for first in range(0, task.records, each * task.partitions):
        end = min(first + each * task.partitions, task.records)
        same = (first % len(values), end - first)
        if same not in known:
            chunks = [range(at, min(at + each, end)) for at in range(first, end, each)]
            batches = [_batch(task, [values[n % len(values)] for n in chunk]) for chunk in chunks]
            known[same] = _produce_request(task.topic, dict(enumerate(batches)))
        made.append(known[same])
    return made


async def _warm_up(task: Task) -> None:
    """Send a record to each partition, which returns when the broker is the leader of all.

    It needs our Producer, whose modules are therefore part of this peer's peak memory.
    """
    async with Producer(task.bootstrap, **tls.client_options(task.cafile)) as producer:
        for partition in range(task.partitions):
            await producer.send(task.topic, payload.WARM_UP, partition=partition)


@dataclass
class Reading:
    """Tracks the next offsets of a topic's partitions."""

    topic: str
    offsets: dict[int, int]
    verify: bool = False
    partition_bytes: int = PARTITION_BYTES
    count: int = 0
    checksum: int = 0
    fetches: int = 0

    def request(self) -> bytes:
        """Return the next fetch request, with rotated partitions, as in consumers."""
        numbers = list(self.offsets)
        first = self.fetches % len(numbers)
        self.fetches += 1
        partitions = [
            FetchPartition(
                partition=number,
                fetch_offset=self.offsets[number],
                partition_max_bytes=self.partition_bytes,
            )
            for number in numbers[first:] + numbers[:first]
        ]
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic=self.topic, partitions=partitions)],
        )
        return _encode(request, FETCH)

    def advance(self, buffer: memoryview) -> None:
        """Advance the offsets over the batches of a response."""
        _, response = decode_response(buffer, FetchResponse, FETCH)
        for topic in response.responses:
            for partition in topic.partitions:
                if code := response.error_code or partition.error_code:
                    raise RefusedError(f"fetch: error {code}")
                self._advance(partition.partition_index, memoryview(partition.records or b""))

    def _advance(self, partition: int, records: memoryview) -> None:
        if self.verify:
            for batch in iter_batches(records):
                self.checksum += payload.checksum(r.value or b"" for r in batch.records())
        at, end = 0, len(records)
        while at + HEADER_SIZE <= end:
            header = BatchHeader.unpack(records, at)
            at += header.size
            if at > end:
                break  # the broker truncates the last batch at the size limit of the partition
            self.count += header.records_count
            self.offsets[partition] = header.base_offset + header.last_offset_delta + 1


class RawSocketPeer:
    """Peer without a client."""

    def produce(self, task: Task) -> Figures:
        """Produce with five requests in flight, each with a batch for every partition."""
        wire = Wire(task.bootstrap, task.cafile)
        ready = requests(task)
        asyncio.run(_warm_up(task))
        responses: list[bytes] = []
        send, receive = wire.send, wire.receive
        with Stopwatch() as watch:
            for number, request in enumerate(ready):
                if number >= IN_FLIGHT:
                    responses.append(bytes(receive()))
                send(request)
            while len(responses) < len(ready):
                responses.append(bytes(receive()))
        wire.close()
        for response in responses:
            _expect_success(response)
        settings = {"acks": "all", "batch bytes": BATCH_BYTES, "requests in flight": IN_FLIGHT}
        return watch.figures(task.records, settings)

    def round_trip(self, task: Task) -> Figures:
        """Send a request with one record, and wait for its response."""
        wire = Wire(task.bootstrap, task.cafile)
        request = _produce_request(task.topic, {0: _batch(task, task.distinct_values[:1])})
        asyncio.run(_warm_up(task))
        send, receive = wire.send, wire.receive
        last: memoryview | bytes = b""

        def send_and_receive(_: bytes) -> None:
            nonlocal last
            send(request)
            last = receive()

        figures = round_trips(send_and_receive, task, {"acks": "all"})
        _expect_success(last)
        wire.close()
        return figures

    def consume(self, task: Task) -> Figures:
        """Fetch all partitions repeatedly, reading only the headers of batches."""
        wire = Wire(task.bootstrap, task.cafile)
        offsets = dict.fromkeys(range(task.partitions), 0)
        partition_bytes = tls.FETCH_BYTES if task.cafile else PARTITION_BYTES
        reading = Reading(task.topic, offsets, task.verify, partition_bytes)
        with Stopwatch() as watch:
            while reading.count < task.records:
                wire.send(reading.request())
                reading.advance(wire.receive())
        wire.close()
        checksum = reading.checksum if task.verify else None
        settings = {"max_bytes": FETCH_BYTES, "partition_max_bytes": partition_bytes}
        return watch.figures(reading.count, settings, checksum=checksum)


if __name__ == "__main__":
    main(RawSocketPeer())
