"""Other clients as judges: they read what we write, and we read what they write."""

from __future__ import annotations

import pytest

from kafka_async.records.batch import RecordBatch, assign_offsets, iter_batches
from kafka_async.records.compression import Codec
from kafka_async.types import ProducerRecord
from tests.records.judges import module

pytestmark = pytest.mark.usefixtures("kernel")

TIME = 1_700_000_000_000
ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b"value", []),
    (None, b"no key", [("h", b"x"), ("h", None)]),
    (b"", b"", [("\u00fcml\u00e4ut", b"")]),
    (b"no value", None, []),
    (b"k" * 300, b"some text " * 20_000, []),
]
JUDGES = ["kafka", "aiokafka"]
# kafka-python reads snappy only with a package of its own; aiokafka with the one that we use.
PAIRS = [(judge, codec) for judge in JUDGES for codec in Codec]
PAIRS.remove(("kafka", Codec.snappy))


@pytest.mark.parametrize(("judge", "codec"), PAIRS)
def test_they_read_ours(judge: str, codec: Codec) -> None:
    batch = RecordBatch.build(
        [ProducerRecord("t", v, k, h, timestamp=TIME - n) for n, (k, v, h) in enumerate(ROWS)],
        codec.name,
    )
    ours = batch.frame(producer_id=42, producer_epoch=3, base_sequence=17, transactional=True)
    reader = module(judge, "memory_records").MemoryRecords(assign_offsets(ours, 1000, 5))
    theirs = reader.next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (42, 3, 17)
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [(1000 + n, TIME - n, k, v, h) for n, (k, v, h) in enumerate(ROWS)]
    assert not reader.has_next()


@pytest.mark.parametrize(("judge", "codec"), PAIRS)
def test_we_read_theirs(judge: str, codec: Codec) -> None:
    builder = module(judge, "default_records").DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=42,
        producer_epoch=3,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for n, (key, value, headers) in enumerate(ROWS):
        builder.append(n, TIME - n, key, value, headers)
    (view,) = iter_batches(bytes(builder.build()), topic="t", partition=0)
    assert view.header.codec is codec
    assert (view.producer_id, view.header.base_sequence, view.is_transactional) == (42, 17, True)
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in view.records()]
    assert read == [(n, TIME - n, k, v, h) for n, (k, v, h) in enumerate(ROWS)]


@pytest.mark.parametrize("judge", JUDGES)
def test_uncompressed_we_write_the_same_bytes(judge: str) -> None:
    builder = module(judge, "default_records").DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=42,
        producer_epoch=3,
        base_sequence=17,
        batch_size=1 << 20,
    )
    for n, (key, value, headers) in enumerate(ROWS):
        builder.append(n, TIME + n, key, value, headers)
    ours = RecordBatch.build(
        [ProducerRecord("t", v, k, h, timestamp=TIME + n) for n, (k, v, h) in enumerate(ROWS)]
    ).frame(producer_id=42, producer_epoch=3, base_sequence=17)
    # The leader epoch (bytes 12 to 16) is the broker's to set; what a client puts there varies.
    theirs = bytes(builder.build())
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])
