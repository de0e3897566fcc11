"""Record batch codecs of all clients with a common interface.

All clients get the same records and the same bytes. Encoding appends each record and closes the
batch with its CRC; decoding checks the CRC and creates every record. The calls of a peer are those
that its producer and its consumer make, at the innermost level that handles a whole batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from kafka_async.records.batch import compress_batch, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import Header

TOPIC = "service.events"
RecordFields = tuple[int, bytes | None, bytes, list[Header]]
"""Timestamp, key, value and headers of a record to encode."""


@dataclass(frozen=True)
class BatchClient:
    """Batch codec of a client; `consume` decodes to the records that its consumer returns."""

    client: str
    encode: Callable[[Sequence[RecordFields]], Any]
    decode: Callable[[bytes], Iterable[Any]]
    consume: Callable[[bytes], Iterable[Any]]


def ours(client: str, kernel: ModuleType) -> BatchClient:
    """Return the codec of this project with a kernel; it decodes to the records of consumers."""

    def encode(records: Sequence[RecordFields]) -> bytes:
        batch = kernel.OpenBatch(None, 1 << 30)
        append = batch.append
        for timestamp, key, value, headers in records:
            append(timestamp, key, value, headers)
        return compress_batch(batch, Codec.none).frame()

    def decode(data: bytes) -> Iterable[Any]:
        (view,) = iter_batches(data, topic=TOPIC, partition=0)
        return kernel.parse_records(view.section(), TOPIC, 0, view.header.leader_epoch)

    return BatchClient(client, encode, decode, decode)


@contextmanager
def _imported_anew(package: str) -> Generator[None]:
    """Re-import a package within the block, and restore the first import at its end."""

    def remove_modules() -> dict[str, ModuleType]:
        mine = [name for name in sys.modules if name.partition(".")[0] == package]
        return {name: sys.modules.pop(name) for name in mine}

    others = remove_modules()
    try:
        yield
    finally:
        remove_modules()
        sys.modules.update(others)


def plain_aiokafka(client: str) -> BatchClient:
    """Return the codec of aiokafka without its extensions, which are chosen at import."""
    with _imported_anew("aiokafka"):
        os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"
        try:
            return aiokafka(client)
        finally:
            del os.environ["AIOKAFKA_NO_EXTENSIONS"]


def aiokafka(client: str) -> BatchClient:
    """Return the codec of aiokafka, in Cython unless it was imported without extensions."""
    records: Any = import_module("aiokafka.consumer.fetcher").PartitionRecords
    return _peer(
        client,
        "aiokafka",
        lambda partition, data: records(partition, data, [], 0, None, None, True, 0),
    )


def kafka_python() -> BatchClient:
    """Return the codec of kafka-python 3: in Python, with the CRC in C."""
    records: Any = import_module("kafka.consumer.fetcher").Fetcher.PartitionRecords
    return _peer(
        "kafka-python", "kafka", lambda partition, data: records(0, partition, data).take()
    )


def _peer(client: str, package: str, consumed: Callable[[Any, Any], Iterable[Any]]) -> BatchClient:
    """Return the codec of a client with the record layer that both peers have in common."""
    builder: Any = import_module(f"{package}.record.default_records").DefaultRecordBatchBuilder
    reader: Any = import_module(f"{package}.record.memory_records").MemoryRecords
    partition: Any = import_module(f"{package}.structs").TopicPartition

    def encode(records: Sequence[RecordFields]) -> Any:
        # Magic, codec, transactional, producer id, epoch, sequence number and maximum size.
        batch = builder(2, 0, False, -1, -1, -1, 1 << 30)
        append = batch.append
        offset = 0
        for timestamp, key, value, headers in records:
            append(offset, timestamp, key, value, headers)
            offset += 1  # noqa: SIM113 enumerate would be slower for every peer
        return batch.build()

    def decode(data: bytes) -> Iterable[Any]:
        batch = reader(data).next_batch()
        if not batch.validate_crc():
            raise ValueError("the CRC does not match")
        return batch

    def consume(data: bytes) -> Iterable[Any]:
        return consumed(partition(TOPIC, 0), reader(data))

    return BatchClient(client, encode, decode, consume)
