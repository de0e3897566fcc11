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
from types import ModuleType
from typing import Any

from kafka_async.records.batch import RecordBatch, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import Header

TOPIC = "service.events"
RecordFields = tuple[int, bytes | None, bytes, list[Header]]
"""Timestamp, key, value and headers of a record to encode."""


@dataclass(frozen=True)
class BatchClient:
    """Batch codec of a client.

    Attributes:
        client: the name of the client.
        encode: encodes records as an uncompressed batch.
        decode: decodes a batch to the records of the client's record layer.
        consume: decodes a batch to the records that the client's consumer returns.
    """

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
        return RecordBatch.from_open_batch(batch, Codec.none).frame()

    def decode(data: bytes) -> Iterable[Any]:
        (view,) = iter_batches(data, topic=TOPIC, partition=0)
        return kernel.parse_records(view.section(), TOPIC, 0, view.header.leader_epoch)

    return BatchClient(client, encode, decode, decode)


@contextmanager
def _imported_anew(package: str) -> Generator[None]:
    """Import a package anew within the block, and restore the other import at its end."""

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
    from aiokafka.consumer.fetcher import PartitionRecords
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords
    from aiokafka.structs import TopicPartition

    builder: Any = DefaultRecordBatchBuilder

    def encode(records: Sequence[RecordFields]) -> Any:
        batch = builder(
            2,
            0,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 30,
        )
        return _append(batch, records).build()

    def decode(data: bytes) -> Iterable[Any]:
        return _checked(MemoryRecords(data).next_batch())

    def consume(data: bytes) -> Iterable[Any]:
        records: Any = PartitionRecords
        return records(TopicPartition(TOPIC, 0), MemoryRecords(data), [], 0, None, None, True, 0)

    return BatchClient(client, encode, decode, consume)


def kafka_python() -> BatchClient:
    """Return the codec of kafka-python 3: in Python, with the CRC in C."""
    from kafka.consumer.fetcher import Fetcher  # pyright: ignore[reportMissingTypeStubs]
    from kafka.record.default_records import (  # pyright: ignore[reportMissingTypeStubs]
        DefaultRecordBatchBuilder,
    )
    from kafka.record.memory_records import (  # pyright: ignore[reportMissingTypeStubs]
        MemoryRecords,
    )
    from kafka.structs import TopicPartition  # pyright: ignore[reportMissingTypeStubs]

    builder: Any = DefaultRecordBatchBuilder
    reader: Any = MemoryRecords
    fetcher: Any = Fetcher

    def encode(records: Sequence[RecordFields]) -> Any:
        return _append(builder(2, 0, False, -1, -1, -1, 1 << 30), records).build()

    def decode(data: bytes) -> Iterable[Any]:
        return _checked(reader(data).next_batch())

    def consume(data: bytes) -> Iterable[Any]:
        records = fetcher.PartitionRecords(0, TopicPartition(TOPIC, 0), reader(data))
        return records.take()

    return BatchClient("kafka-python", encode, decode, consume)


def _append(batch: Any, records: Sequence[RecordFields]) -> Any:
    append = batch.append
    offset = 0
    for timestamp, key, value, headers in records:
        append(offset, timestamp, key, value, headers)
        offset += 1  # noqa: SIM113 enumerate would be slower for every peer
    return batch


def _checked(batch: Any) -> Any:
    if not batch.validate_crc():
        raise ValueError("the CRC does not match")
    return batch
