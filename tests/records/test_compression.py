"""Tests of the codecs: round trips, limits and malformed streams."""

from __future__ import annotations

import os
import random
import struct
import sys
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import lz4.frame  # pyright: ignore[reportMissingTypeStubs] it has none
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.errors import CorruptRecordError, InvalidConfigurationError
from kafka_async.records import compression
from kafka_async.records.compression import Codec, compress, decompress

CODECS = list(Codec)
PACKED = CODECS[1:]
MIB = 1 << 20
WORDS = b"the quick brown fox jumps over the lazy dog " * 5000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 64 * 1024, 200_001])
def test_round_trip_of_every_codec(codec: Codec, size: int) -> None:
    noise = random.randbytes(size)
    for data in (WORDS[:size], noise):
        packed = compress(codec, data)
        assert decompress(codec, packed) == data
        assert decompress(codec, memoryview(bytearray(packed))) == data
        assert decompress(codec, packed, limit=len(data)) == data


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=2000))
def test_round_trip_of_arbitrary_data(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, memoryview(data))) == data


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.gzip, 1, 9), (Codec.lz4, 1, 12), (Codec.zstd, 1, 19)]
)
def test_levels_change_only_the_size(codec: Codec, low: int, high: int) -> None:
    text = "".join(random.choices(["alpha", "beta", "gamma", "delta ", "x"], k=20_000)).encode()
    quick, small = compress(codec, text, low), compress(codec, text, high)
    assert len(small) < len(quick)
    assert decompress(codec, quick) == decompress(codec, small) == text


@pytest.mark.parametrize("codec", PACKED)
def test_output_beyond_the_limit_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, WORDS)
    with pytest.raises(CorruptRecordError):
        decompress(codec, packed, limit=len(WORDS) - 1)
    with pytest.raises(CorruptRecordError):
        decompress(codec, packed, limit=0)


def test_uncompressed_data_beyond_the_limit_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Codec.none, b"12345", limit=4)


@pytest.mark.parametrize("codec", PACKED)
def test_every_truncation_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"some text, some text, some text, and then some more")
    for cut in range(len(packed)):
        if codec is Codec.snappy and cut == 16:
            continue  # a header without blocks is a complete empty stream
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("tail", [b"\0", b"garbage", b"\0" * 100])
def test_trailing_bytes_are_corrupt(codec: Codec, tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, compress(codec, b"some text") + tail)


@pytest.mark.parametrize("codec", PACKED)
def test_random_bytes_are_corrupt(codec: Codec) -> None:
    for size in (1, 2, 3, 10, 20, 100, 1000):
        with pytest.raises(CorruptRecordError):
            decompress(codec, b"\xfe" + random.randbytes(size))


@given(codec=st.sampled_from(PACKED), at=st.integers(0, 200), byte=st.integers(0, 255))
def test_changed_byte_gives_data_or_corrupt(codec: Codec, at: int, byte: int) -> None:
    packed = bytearray(compress(codec, WORDS[:500]))
    packed[at % len(packed)] = byte
    with suppress(CorruptRecordError):
        assert len(decompress(codec, packed, limit=MIB)) <= MIB


@pytest.mark.parametrize("codec", [Codec.gzip, Codec.lz4, Codec.zstd])
def test_concatenated_streams_are_one(codec: Codec) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"") + compress(codec, b"second")
    assert decompress(codec, packed) == b"first second"
    with pytest.raises(CorruptRecordError):
        decompress(codec, packed, limit=11)


# -- decompression bombs --------------------------------------------------------------------------


def bomb(codec: Codec, size: int) -> bytes:
    if codec is Codec.zstd:  # without its size, which would be rejected at once
        return zstandard.ZstdCompressor(write_content_size=False).compress(bytes(size))
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", PACKED)
def test_decompression_bomb_stops_at_the_limit(codec: Codec) -> None:
    packed = bomb(codec, 64 * MIB)
    decompress(codec, compress(codec, b"load the package first"))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed, limit=MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_decompression_bomb_of_many_streams_stops_at_the_limit() -> None:
    for codec in (Codec.gzip, Codec.lz4, Codec.zstd):
        with pytest.raises(CorruptRecordError):
            decompress(codec, bomb(codec, MIB // 4) * 10, limit=MIB)


@pytest.mark.parametrize("codec", PACKED)
def test_small_batch_allocates_little_memory(codec: Codec) -> None:
    packed = bomb(codec, 1000)
    decompress(codec, packed)
    tracemalloc.start()
    try:
        decompress(codec, packed)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


# -- snappy's framing -----------------------------------------------------------------------------

XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def test_snappy_framing_matches_java() -> None:
    packed = compress(Codec.snappy, WORDS[:40_000])
    assert packed[:16] == XERIAL
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == WORDS[: 32 * 1024]


def test_reads_snappy_without_framing() -> None:
    assert decompress(Codec.snappy, raw_snappy(WORDS)) == WORDS


@pytest.mark.parametrize(
    "tail",
    [
        b"\0",
        b"\0\0\0",
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 5) + b"abcd",
        struct.pack(">i", (1 << 31) - 1) + b"abcd",
        struct.pack(">i", 4) + b"\xff\xff\xff\xff",
    ],
)
def test_malformed_snappy_blocks_are_corrupt(tail: bytes) -> None:
    good = raw_snappy(b"good")
    with pytest.raises(CorruptRecordError):
        decompress(Codec.snappy, XERIAL + struct.pack(">i", len(good)) + good + tail)


def test_newer_snappy_framing_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="version 2"):
        decompress(Codec.snappy, b"\x82SNAPPY\0" + struct.pack(">ii", 2, 2))


def test_snappy_declaring_impossible_size_is_corrupt() -> None:
    declared = b"\xff\xff\xff\x1f"  # 64 MiB
    with pytest.raises(CorruptRecordError, match="more than it can hold"):
        decompress(Codec.snappy, declared + b"\0" * 100)


# -- lz4 and zstd ---------------------------------------------------------------------------------


def test_lz4_blocks_are_independent_for_java() -> None:
    flags = compress(Codec.lz4, WORDS)[4]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert not flags & 0x08


@pytest.mark.parametrize(("size", "block"), [(60_000, 4), (128 * 1024, 5), (1 << 20, 5)])
def test_default_size_batch_is_one_lz4_block(size: int, block: int) -> None:
    # 4 is 64 KiB and 5 is 256 KiB: reading a small batch allocates no more than its size.
    assert compress(Codec.lz4, bytes(size))[5] >> 4 == block


@pytest.mark.parametrize("size", [10, (1 << 63) - 1])
def test_wrong_declared_size_is_corrupt(size: int) -> None:
    frame = bytearray(lz4.frame.compress(WORDS, store_size=True))  # pyright: ignore
    struct.pack_into("<Q", frame, 6, size)
    with pytest.raises(CorruptRecordError):
        decompress(Codec.lz4, frame)
    packed = bytearray(zstandard.ZstdCompressor().compress(bytes(300_000)))
    assert packed[4] >> 6 == 2  # a size of four bytes
    struct.pack_into("<I", packed, 5 + (0 if packed[4] & 0x20 else 1), min(size, (1 << 32) - 1))
    with pytest.raises(CorruptRecordError):
        decompress(Codec.zstd, packed)


def test_reads_zstd_of_the_highest_level() -> None:
    stream = zstandard.ZstdCompressor(level=22, write_content_size=False).compressobj()
    packed = stream.compress(WORDS) + stream.flush()
    assert decompress(Codec.zstd, packed, limit=MIB) == WORDS


def test_reads_zstd_with_checksum() -> None:
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(WORDS)
    assert decompress(Codec.zstd, packed) == WORDS
    with pytest.raises(CorruptRecordError):
        decompress(Codec.zstd, packed[:-1])
    with pytest.raises(CorruptRecordError):
        decompress(Codec.zstd, packed[:-1] + bytes([packed[-1] ^ 1]))


def test_zstd_with_dictionary_is_corrupt() -> None:
    samples: list[bytes | bytearray | memoryview] = [
        os.urandom(8).hex().encode() * 20 for _ in range(200)
    ]
    trained = zstandard.train_dictionary(4096, samples)
    packed = zstandard.ZstdCompressor(dict_data=trained).compress(samples[0])
    with pytest.raises(CorruptRecordError, match="dictionary"):
        decompress(Codec.zstd, packed)


def test_zlib_stream_is_not_gzip() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Codec.gzip, zlib.compress(WORDS))


def test_error_names_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_LOADED", {})
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(InvalidConfigurationError, match="pip install lz4"):
        compress(Codec.lz4, b"")
