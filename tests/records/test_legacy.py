"""Tests of message sets of magic 0 and 1, mostly malformed ones; see also test_java_batches.py."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest

from kafka_async.errors import CorruptRecordError, UnsupportedForMessageFormatError
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import Codec, compress
from tests.records import other_clients
from tests.rows import row

pytestmark = pytest.mark.usefixtures("kernel")

TIME = 1_400_000_000_000


def field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def entry(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    key: bytes | None = None,
    time: int = TIME,
    tail: bytes = b"",
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", time) if magic else b""
    body += field(key) + field(value) + tail
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapped(offset: int, *entries: bytes, magic: int = 1, codec: int = 1, flags: int = 0) -> bytes:
    data = compress(Codec(codec), b"".join(entries)) if codec <= 4 else b""
    return entry(offset, data, magic=magic, attributes=codec | flags)


def views(data: bytes) -> list[BatchView]:
    return list(iter_batches(data, topic="t", partition=3))


def read(data: bytes, start: int = 0) -> list[tuple[Any, ...]]:
    return [
        (r.offset, r.timestamp, r.key, r.value) for v in views(data) for r in v.records(start=start)
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_reads_consecutive_entries(magic: int) -> None:
    data = entry(5, b"a", magic=magic, key=b"k") + entry(7, None, magic=magic)
    time = TIME if magic else -1
    assert read(data) == [(5, time, b"k", b"a"), (7, time, None, None)]
    assert [(view.base_offset, view.next_offset) for view in views(data)] == [(5, 6), (7, 8)]
    assert read(data, start=6) == [(7, time, None, None)]


def test_relative_offsets_end_at_the_wrappers_offset() -> None:
    # Compaction has removed the second of four messages.
    data = wrapped(103, entry(0, b"a"), entry(2, b"c"), entry(3, b"d"))
    assert [offset for offset, *_ in read(data)] == [100, 102, 103]
    assert [offset for offset, *_ in read(data, start=102)] == [102, 103]
    (view,) = views(data)
    assert view.next_offset == 104


def test_magic_0_offsets_are_absolute() -> None:
    data = wrapped(103, entry(100, b"a", magic=0), entry(103, b"d", magic=0), magic=0)
    assert [offset for offset, *_ in read(data)] == [100, 103]


def test_wrapper_timestamp_applies_for_log_append_time() -> None:
    data = wrapped(1, entry(0, b"a", time=5), entry(1, b"b", time=6), flags=0x08)
    (view,) = views(data)
    assert [(r.timestamp, r.timestamp_type) for r in view.records()] == [(TIME, 1)] * 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip])
def test_reads_message_sets_of_other_writers(magic: int, codec: int) -> None:
    legacy = other_clients.record_module("kafka", "legacy_records")
    builder = legacy.LegacyRecordBatchBuilder(magic, codec, batch_size=10_000)
    for n in range(10):
        builder.append(n, TIME + n, b"k%d" % n, b"v%d" % n)
    data = bytes(builder.build())
    if codec and magic:
        # A producer sets the wrapper's offset to zero, a broker to that of the last message.
        data = struct.pack(">q", 9) + data[8:]
    time = TIME if magic else -1
    expected = [(n, time + n * magic, b"k%d" % n, b"v%d" % n) for n in range(10)]
    assert read(data) == expected


# -- corruption -----------------------------------------------------------------------------------


def corrupt(data: bytes, match: str) -> None:
    (view,) = views(data)
    with pytest.raises(CorruptRecordError, match=match) as caught:
        view.records()
    assert (caught.value.topic, caught.value.partition) == ("t", 3)
    assert caught.value.offset == 9


def test_wrong_crc_is_corrupt() -> None:
    data = bytearray(entry(9, b"value"))
    data[-1] ^= 1
    corrupt(bytes(data), "CRC")


def test_wrong_inner_crc_is_corrupt() -> None:
    inner = bytearray(entry(0, b"value"))
    inner[-1] ^= 1
    corrupt(wrapped(9, bytes(inner)), "CRC")


def test_malformed_inner_message_set_is_corrupt() -> None:
    for data, match in [
        (entry(9, b"value", tail=b"!"), "left over"),
        (wrapped(9), "holds none"),
        (wrapped(9, entry(0, b"a")[:-1]), "impossible"),
        (wrapped(9, entry(0, b"a")[:10]), "ends inside an entry"),
        (wrapped(9, entry(0, b"a", magic=0)), "another kind"),
        (wrapped(9, wrapped(0, entry(0, b"a"))), "another kind"),
        (wrapped(9, entry(1, b"a"), entry(1, b"b")), "do not ascend"),
        (wrapped(9, entry(0, b"a"), entry(10, b"b")), "impossible"),
        (wrapped(9, entry((1 << 63) - 1, b"a", magic=0), magic=0), "impossible"),
        (wrapped(9, entry(0, b"a"), codec=4), "no codec"),
        (wrapped(9, codec=7), "no codec"),
        (entry(9, None, attributes=1), "no codec"),
        (entry(9, b"no gzip", attributes=1), "gzip"),
    ]:
        with row(data, match):
            corrupt(data, match)


@pytest.mark.parametrize(("at", "length"), [(26, 100), (26, -2), (30, 100), (30, -2)])
def test_wrong_field_lengths_are_corrupt(at: int, length: int) -> None:
    data = bytearray(entry(9, b"value"))
    struct.pack_into(">i", data, at, length)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    corrupt(bytes(data), "impossible length")


def test_truncated_last_entry_is_legal() -> None:
    for cut in range(len(entry(9, b"value", key=b"key"))):
        with row(cut):
            assert len(views(entry(8, b"first") + entry(9, b"value", key=b"key")[:cut])) == 1


@pytest.mark.parametrize(("magic", "size"), [(0, 13), (1, 21), (0, -1), (1, 0)])
def test_too_small_size_is_corrupt(magic: int, size: int) -> None:
    data = bytearray(entry(9, b"value", magic=magic))
    struct.pack_into(">i", data, 8, size)
    with pytest.raises(CorruptRecordError, match="impossible length"):
        views(bytes(data))


def test_limit_applies_to_inner_message_set() -> None:
    (view,) = views(wrapped(9, entry(0, bytes(10_000))))
    with pytest.raises(CorruptRecordError, match="more than 1000"):
        view.records(limit=1000)


def test_section_of_message_set_is_not_supported() -> None:
    (view,) = views(entry(9, b"value"))
    with pytest.raises(UnsupportedForMessageFormatError):
        view.section()
