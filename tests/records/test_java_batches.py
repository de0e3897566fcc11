"""Tests of reading batches that Kafka's Java classes wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_async.records.batch import BatchView, RecordBatch, iter_batches
from kafka_async.records.compression import Codec, decompress
from tests.rows import row

pytestmark = pytest.mark.usefixtures("kernel")

DATA = Path(__file__).parent / "data"
CASES: dict[str, Any] = json.loads((DATA / "java_batches.json").read_text())["cases"]
LARGE: dict[str, str] = json.loads((DATA / "java_large_batches.json").read_text())


def views(name: str) -> list[BatchView]:
    return list(iter_batches(bytes.fromhex(CASES[name]["hex"]), topic="t", partition=4))


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_reads_the_same_records_as_java() -> None:
    for name in CASES:
        with row(name):
            check_reads_the_same_records_as_java(name)


def check_reads_the_same_records_as_java(name: str) -> None:
    for view, batch in zip(views(name), CASES[name]["batches"], strict=True):
        epoch = batch["leader_epoch"] if batch["leader_epoch"] >= 0 else None
        read = [
            (r.offset, r.timestamp, r.key, r.value, r.headers, r.timestamp_type, r.leader_epoch)
            for r in view.records()
        ]
        assert read == [
            (
                offset,
                timestamp,
                unhex(key),
                unhex(value),
                tuple((header, unhex(data)) for header, data in headers),
                batch["timestamp_type"],
                epoch,
            )
            for offset, timestamp, key, value, headers in batch["records"]
        ]
        assert all((r.topic, r.partition) == ("t", 4) for r in view.records())


def test_reads_the_same_batch_headers_as_java() -> None:
    for name in CASES:
        with row(name):
            check_reads_the_same_batch_headers_as_java(name)


def check_reads_the_same_batch_headers_as_java(name: str) -> None:
    for view, batch in zip(views(name), CASES[name]["batches"], strict=True):
        assert view.last_offset == batch["last_offset"]
        assert view.next_offset == batch["last_offset"] + 1
        assert view.is_control == batch["control"]
        assert view.is_transactional == batch["transactional"]
        assert view.producer_id == batch["producer_id"]
        assert view.header.producer_epoch == batch["producer_epoch"]
        assert view.header.base_sequence == batch["base_sequence"]
        assert view.header.leader_epoch == batch["leader_epoch"]
        assert view.header.magic == batch["magic"]
        assert view.header.codec == batch["codec"]
        if batch["magic"] == 2:
            assert view.base_offset == batch["base_offset"]


@pytest.mark.parametrize(
    ("name", "marker"),
    [
        ("v2-commit", ("commit", 15)),
        ("v2-abort", ("abort", 16)),
        ("v2-leader-change", ("other", -1)),
    ],
)
def test_reads_markers_written_by_java(name: str, marker: tuple[str, int]) -> None:
    (view,) = views(name)
    assert view.control() == marker


def test_writes_the_same_bytes_as_java() -> None:
    """An uncompressed batch has one encoding: Java's records are written as the same bytes."""
    for name in ("v2-none", "v2-idempotent", "v2-transactional"):
        (view,) = views(name)
        batch = RecordBatch.build(view.records())
        written = batch.frame(
            producer_id=view.producer_id,
            producer_epoch=view.header.producer_epoch,
            base_sequence=view.header.base_sequence,
            transactional=view.is_transactional,
        )
        (ours,) = iter_batches(written)
        section = view.raw[61:]
        plain = decompress(view.header.codec, section)
        assert bytes(ours.raw[61:]) == plain
        if view.header.codec is Codec.none:
            assert bytes(ours.raw[17:]) == bytes(view.raw[17:])


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
def test_reads_batches_of_many_compressed_blocks(codec: str) -> None:
    (view,) = iter_batches(bytes.fromhex(LARGE[codec]), topic="t", partition=0)
    assert view.header.codec is Codec[codec]
    read = [(r.offset, r.timestamp, r.key, r.value) for r in view.records()]
    assert read == [
        (
            10_000 + n,
            1_700_000_000_000 + n * 37 % 1000,
            None if n % 3 == 0 else b"key-%d" % (n % 50),
            b"value number %d of a batch that spans several blocks of every codec" % n,
        )
        for n in range(1000)
    ]
