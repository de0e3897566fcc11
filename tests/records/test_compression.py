"""Tests of the codecs: round trips, limits and malformed streams."""

from __future__ import annotations

import random
import struct
import sys
import zlib

import cramjam
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_async.errors import CorruptRecordError, InvalidConfigurationError
from kafka_async.records import compression
from kafka_async.records.compression import Codec, compress, decompress
from tests.hostile.measure import MIB, allocates_at_most

CODECS = list(Codec)
PACKED = CODECS[1:]
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


@given(codec=st.sampled_from(CODECS), data=st.binary(), times=st.integers(1, 1_000))
@settings(deadline=None)
def test_any_data_comes_back(codec: Codec, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times)) == data * times


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
        if codec is Codec.snappy and 16 <= cut < 20:
            continue  # a header without blocks is a complete empty stream, as in Java
        if codec is Codec.zstd and not cut:
            continue  # no frame at all is, too
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[:cut])


@pytest.mark.parametrize("codec", [Codec.gzip, Codec.snappy, Codec.zstd])
def test_concatenated_streams_are_one(codec: Codec) -> None:
    packed = compress(codec, b"first ") + compress(codec, b"") + compress(codec, b"second")
    assert decompress(codec, packed) == b"first second"
    with pytest.raises(CorruptRecordError):
        decompress(codec, packed, limit=11)


@pytest.mark.parametrize("codec", PACKED)
def test_small_batch_allocates_little_memory(codec: Codec) -> None:
    packed = compress(codec, bytes(1000))
    if codec is Codec.zstd:  # without its size, which would be rejected at once
        packed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))
    decompress(codec, packed)
    with allocates_at_most(MIB):
        decompress(codec, packed)


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


def test_reads_zstd_with_checksum() -> None:
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(WORDS)
    assert decompress(Codec.zstd, packed) == WORDS
    with pytest.raises(CorruptRecordError):
        decompress(Codec.zstd, packed[:-1])
    with pytest.raises(CorruptRecordError):
        decompress(Codec.zstd, packed[:-1] + bytes([packed[-1] ^ 1]))


def test_zlib_stream_is_not_gzip() -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Codec.gzip, zlib.compress(WORDS))


def test_error_names_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_LOADED", {})
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(InvalidConfigurationError, match="pip install lz4"):
        compress(Codec.lz4, b"")
