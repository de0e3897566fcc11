"""Tests of interoperability: other clients read our batches, and we read theirs."""

from __future__ import annotations

import pytest

from kafka_async.records.batch import RecordBatch, assign_offsets, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import ProducerRecord
from tests.records.other_clients import record_module
from tests.rows import row

pytestmark = pytest.mark.usefixtures("kernel")

TIME = 1_700_000_000_000
ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", []),
    (None, b"no key", [("h", b"x"), ("h", None)]),
    (b"", b"", [("\u00fcml\u00e4ut", b"")]),
    (b"no value", None, []),
    (b"k" * 300, b"some text " * 20_000, []),
]
CLIENTS = ["kafka", "aiokafka"]
# kafka-python needs another snappy package than we use; aiokafka needs the same.
PAIRS = [(client, codec) for client in CLIENTS for codec in Codec]
PAIRS.remove(("kafka", Codec.snappy))


def test_other_clients_read_our_batches() -> None:
    for client, codec in PAIRS:
        with row(client, codec):
            check_other_clients_read_our_batches(client, codec)


def check_other_clients_read_our_batches(client: str, codec: Codec) -> None:
    batch = RecordBatch.build(
        [ProducerRecord("t", v, k, h, timestamp=TIME - n) for n, (k, v, h) in enumerate(ROWS)],
        codec.name,
    )
    ours = batch.frame(producer_id=42, producer_epoch=3, base_sequence=17, transactional=True)
    reader = record_module(client, "memory_records").MemoryRecords(assign_offsets(ours, 1000, 5))
    theirs = reader.next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (42, 3, 17)
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [(1000 + n, TIME - n, k, v, h) for n, (k, v, h) in enumerate(ROWS)]
    assert not reader.has_next()


def batch_of(client: str, codec: Codec, *, transactional: bool) -> bytes:
    """Return a batch of ROWS as another client encodes it."""
    builder = record_module(client, "default_records").DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        producer_id=42,
        producer_epoch=3,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for n, (key, value, headers) in enumerate(ROWS):
        builder.append(n, TIME - n, key, value, headers)
    return bytes(builder.build())


def test_reads_batches_of_other_clients() -> None:
    for client, codec in PAIRS:
        with row(client, codec):
            check_reads_batches_of_other_clients(client, codec)


def check_reads_batches_of_other_clients(client: str, codec: Codec) -> None:
    built = batch_of(client, codec, transactional=True)
    (view,) = iter_batches(built, topic="t", partition=0)
    assert view.header.codec is codec
    assert (view.producer_id, view.header.base_sequence, view.is_transactional) == (42, 17, True)
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in view.records()]
    assert read == [(n, TIME - n, k, v, h) for n, (k, v, h) in enumerate(ROWS)]


@pytest.mark.parametrize("client", CLIENTS)
def test_writes_the_same_uncompressed_bytes_as_other_clients(client: str) -> None:
    ours = RecordBatch.build(
        [ProducerRecord("t", v, k, h, timestamp=TIME - n) for n, (k, v, h) in enumerate(ROWS)]
    ).frame(producer_id=42, producer_epoch=3, base_sequence=17)
    # The broker sets the leader epoch (bytes 12 to 16), which differs between clients.
    theirs = batch_of(client, Codec.none, transactional=False)
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])
