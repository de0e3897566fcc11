"""Each client's record batches behind one face: records to a batch, and a batch to records.

All get the same records and the same bytes. Encoding is appending each record and closing the
batch, CRC included; decoding is checking the CRC and making every record. A peer is asked the way
its own producer and consumer ask it, at the innermost place where a whole batch passes.
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
Given = tuple[int, bytes | None, bytes, list[Header]]
"""Timestamp, key, value and headers of a record to write."""


@dataclass(frozen=True)
class BatchClient:
    """How a client writes and reads a batch.

    Attributes:
        client: whose it is.
        encode: records to the bytes of a batch, uncompressed.
        decode: the bytes of a batch to its records, as they leave the client's record layer.
        consume: the same to the records that its consumer hands out.
    """

    client: str
    encode: Callable[[Sequence[Given]], Any]
    decode: Callable[[bytes], Iterable[Any]]
    consume: Callable[[bytes], Iterable[Any]]


def ours(client: str, kernel: ModuleType) -> BatchClient:
    """This project's, on one of its two kernels; what is decoded is what consumers hand out."""

    def encode(records: Sequence[Given]) -> bytes:
        batch = kernel.OpenBatch(None, 1 << 30)
        append = batch.append
        for timestamp, key, value, headers in records:
            append(timestamp, key, value, headers)
        return RecordBatch.seal(batch, Codec.none).frame()

    def decode(data: bytes) -> Iterable[Any]:
        (view,) = iter_batches(data, topic=TOPIC, partition=0)
        return kernel.parse_records(view.section(), TOPIC, 0, view.header.leader_epoch)

    return BatchClient(client, encode, decode, decode)


@contextmanager
def _imported_anew(package: str) -> Generator[None]:
    """A package imported in here is another one than that which is imported elsewhere."""

    def taken_out() -> dict[str, ModuleType]:
        mine = [name for name in sys.modules if name.partition(".")[0] == package]
        return {name: sys.modules.pop(name) for name in mine}

    elsewhere = taken_out()
    try:
        yield
    finally:
        taken_out()
        sys.modules.update(elsewhere)


def plain_aiokafka(client: str) -> BatchClient:
    """aiokafka without its extensions, which its import decides; beside the one that has them."""
    with _imported_anew("aiokafka"):
        os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"
        try:
            return aiokafka(client)
        finally:
            del os.environ["AIOKAFKA_NO_EXTENSIONS"]


def aiokafka(client: str) -> BatchClient:
    """aiokafka, in Cython unless its import was told otherwise."""
    from aiokafka.consumer.fetcher import PartitionRecords
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords
    from aiokafka.structs import TopicPartition

    builder: Any = DefaultRecordBatchBuilder

    def encode(records: Sequence[Given]) -> Any:
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
    """kafka-python 3: in Python, its CRC in C."""
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

    def encode(records: Sequence[Given]) -> Any:
        return _append(builder(2, 0, False, -1, -1, -1, 1 << 30), records).build()

    def decode(data: bytes) -> Iterable[Any]:
        return _checked(reader(data).next_batch())

    def consume(data: bytes) -> Iterable[Any]:
        records = fetcher.PartitionRecords(0, TopicPartition(TOPIC, 0), reader(data))
        return records.take()

    return BatchClient("kafka-python", encode, decode, consume)


def _append(batch: Any, records: Sequence[Given]) -> Any:
    append = batch.append
    offset = 0
    for timestamp, key, value, headers in records:
        append(offset, timestamp, key, value, headers)
        offset += 1  # noqa: SIM113 enumerate would cost every peer more
    return batch


def _checked(batch: Any) -> Any:
    if not batch.validate_crc():
        raise ValueError("the CRC does not match")
    return batch
