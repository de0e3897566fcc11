"""Malformed compressed batches and decompression bombs are rejected within the memory limit."""

from __future__ import annotations

import functools
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cramjam
import lz4.frame  # pyright: ignore[reportMissingTypeStubs] no stubs
import pytest
import zstandard

from kafka_async.consumer.buffer.fetch_buffer import (
    LARGE_BATCH_COST,
    MAX_DECOMPRESSED_BYTES_PER_POLL,
)
from kafka_async.consumer.delivery.partition_batch import PartitionBatch
from kafka_async.errors import CorruptRecordError, RecordTooLargeError
from kafka_async.kernel import Section
from kafka_async.records import arrow
from kafka_async.records.batch import BatchView, iter_batches
from kafka_async.records.compression import (
    MAX_DECOMPRESSED_BYTES_PER_BATCH,
    MAX_DECOMPRESSED_BYTES_PER_CALL,
    MAX_SCANNED_BLOCKS,
    Codec,
    compress,
    content_size,
    decompress,
    decompress_frames,
)
from tests.hostile.malformed_batches import SECRET, batch, flipped, records
from tests.hostile.measure import MIB, allocates_at_most, grows_at_most
from tests.hostile.scripted_fetch import BAD, GOOD, ScriptedFetch, check_consumer_continues
from tests.kernel.wire import record
from tests.records.test_legacy import entry, wrapped
from tests.rows import row

if TYPE_CHECKING:
    from kafka_async.types import Headers

COMPRESSED_CODECS = [Codec.gzip, Codec.snappy, Codec.lz4, Codec.zstd]
DATA = b"".join(records())
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
CAP = 128 * MIB
LIMIT = 32 * MIB
"""Limit of the tests that measure memory; the default, CAP, takes four times as long."""
BOMB = 96 * MIB
"""Decompressed bytes of a bomb."""
PEAK = LIMIT + 24 * MIB
"""Bytes that a process may grow by at the limit: with windows, and copies of a frame."""

pytestmark = pytest.mark.one_kernel  # no kernel decompresses


def test_limit_is_128_mib() -> None:
    assert MAX_DECOMPRESSED_BYTES_PER_BATCH == CAP
    assert MAX_DECOMPRESSED_BYTES_PER_CALL == 4 * CAP
    assert MAX_DECOMPRESSED_BYTES_PER_POLL == CAP


# -- bombs ----------------------------------------------------------------------------------------


def gzip_bomb(size: int) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [stream.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*parts, stream.flush()])


def zstd_bomb(size: int, window_log: int = 21) -> bytes:
    """Return zeros compressed without the content size, which would reveal the bomb."""
    made = zstandard.ZstdCompressionParameters(window_log=window_log, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=made).compressobj()
    parts = [stream.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*parts, stream.flush()])


def lz4_bomb(size: int) -> bytes:
    return lz4.frame.compress(bytes(size), store_size=False, block_linked=False)  # pyright: ignore


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def many_streams(codec: Codec) -> Callable[[int], bytes]:
    """Return a function that makes streams of 8 MiB each, one after the other."""
    make = {Codec.gzip: gzip_bomb, Codec.zstd: zstd_bomb}[codec]
    return lambda size: make(8 * MIB) * (size // (8 * MIB))


# The codec, the compressed bytes and the minimum ratio. The highest possible ratio is zstd's
# 32,768 to 1; data that claims more is malformed (below).
BOMBS: dict[str, tuple[Codec, Callable[[int], bytes], int]] = {
    "gzip bomb 1:1,000": (Codec.gzip, gzip_bomb, 1_000),
    "gzip bomb of many members": (Codec.gzip, many_streams(Codec.gzip), 1_000),
    "snappy bomb 1:20": (Codec.snappy, lambda size: raw_snappy(bytes(size)), 20),
    "snappy bomb of many blocks": (
        Codec.snappy,
        lambda size: compress(Codec.snappy, bytes(size)),
        20,
    ),
    "lz4 bomb 1:240": (Codec.lz4, lz4_bomb, 240),
    "zstd bomb 1:32,000": (Codec.zstd, zstd_bomb, 32_000),
    "zstd bomb of many frames": (Codec.zstd, many_streams(Codec.zstd), 20_000),
    "zstd bomb with a window of 128 MiB": (Codec.zstd, lambda size: zstd_bomb(size, 27), 32_000),
}


@functools.cache
def bomb(name: str, size: int = BOMB) -> bytes:
    return BOMBS[name][1](size)


@pytest.mark.parametrize("name", BOMBS)
def test_bomb_stops_at_limit_with_bounded_memory(name: str) -> None:
    codec, _, ratio = BOMBS[name]
    compressed = bomb(name)
    assert BOMB // len(compressed) >= ratio
    with grows_at_most(PEAK), pytest.raises(CorruptRecordError, match=codec.name):
        decompress(codec, compressed, LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED_CODECS)
def test_batch_below_limit_takes_its_size(codec: Codec) -> None:
    size = LIMIT - MIB
    compressed = zstd_bomb(size) if codec is Codec.zstd else compress(codec, bytes(size))
    with grows_at_most(PEAK):
        assert len(decompress(codec, compressed, LIMIT)) == size


def test_bombs_have_no_content_size() -> None:
    for name, (codec, _, _) in BOMBS.items():
        assert content_size(codec, memoryview(bomb(name))) == 0
    size = MAX_SCANNED_BLOCKS * BLOCK
    fits = memoryview(compress(Codec.zstd, bytes(size)))
    assert content_size(Codec.zstd, fits) == size
    assert content_size(Codec.zstd, fits, size - 1) == 0
    assert content_size(Codec.zstd, memoryview(compress(Codec.zstd, bytes(size + 1)))) == 0


# -- event loop -----------------------------------------------------------------------------------

BLOCK = 128 * 1024  # maximum of a zstd block


def zstd_of_empty_blocks(count: int) -> bytes:
    """Return a frame of one byte in its last block, after empty blocks."""
    header = b"\x28\xb5\x2f\xfd" + b"\xa0" + struct.pack("<I", 1)  # one segment, 4 bytes of size
    return header + bytes(3 * (count - 1)) + ((1 << 3) | 1).to_bytes(3, "little") + b"x"


def c_calls(function: Callable[[], object]) -> int:
    """Return the number of C functions that a call uses; scanning a block uses at least one."""
    seen: list[str] = []

    def note(_: object, event: str, __: object) -> None:
        if event == "c_call":
            seen.append(event)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return len(seen)


def view_of(compressed: bytes, codec: Codec = Codec.zstd) -> BatchView:
    (view,) = iter_batches(batch(codec=codec, payload=compressed), topic="t", partition=0)
    return view


LZ4_HEADER = compress(Codec.lz4, b"x")[:7]

# This many empty pieces, in the smallest encoding, and one of a single byte.
PIECES: dict[Codec, Callable[[int], bytes]] = {
    Codec.snappy: lambda count: XERIAL + count * b"\0\0\0\1\0" + xerial_block(b"x"),
    Codec.lz4: lambda count: LZ4_HEADER + count * b"\1\0\0\0\0" + b"\1\0\0\x80x" + bytes(4),
    Codec.zstd: lambda count: zstd_of_empty_blocks(count + 1),
}


def xerial_block(data: bytes) -> bytes:
    compressed = raw_snappy(data)
    return struct.pack(">i", len(compressed)) + compressed


@pytest.mark.parametrize("codec", PIECES)
@pytest.mark.parametrize("pieces", [MAX_SCANNED_BLOCKS, 20_000])
def test_scan_of_many_blocks_is_limited(codec: Codec, pieces: int) -> None:
    compressed = PIECES[codec](pieces)
    assert decompress(codec, compressed) == b"x"
    view = view_of(compressed, codec)
    assert c_calls(lambda: view.content_size) <= 2 * MAX_SCANNED_BLOCKS
    assert c_calls(lambda: view.decompression_cost) <= 6 * MAX_SCANNED_BLOCKS
    assert c_calls(lambda: view.decompression_cost) <= 6  # once is enough
    assert view.content_size == 0
    assert view.decompression_cost >= LARGE_BATCH_COST


def test_many_short_streams_are_copied_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = 5_000 * compress(Codec.gzip, b"x")
    copied = 0
    make: Any = zlib.decompressobj

    class CountingStream:
        def __init__(self, *options: int) -> None:
            self._stream = make(*options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

        def decompress(self, data: memoryview, *limit: int, **named: int) -> bytes:
            nonlocal copied
            part = self._stream.decompress(data, *limit, **named)
            copied += len(self._stream.unused_data or b"")
            return part

    monkeypatch.setattr(zlib, "decompressobj", CountingStream)
    assert decompress(Codec.gzip, compressed) == 5_000 * b"x"
    assert 0 < copied <= 8 * len(compressed)


def test_few_blocks_have_content_size() -> None:
    view = view_of(zstd_of_empty_blocks(MAX_SCANNED_BLOCKS))
    assert (view.content_size, view.decompression_cost) == (1, 1)


EXPENSIVE: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "a large zstd frame that says its size": (
        Codec.zstd,
        lambda: compress(Codec.zstd, bytes(CAP)),
    ),
    "a zstd frame that does not": (Codec.zstd, lambda: zstd_bomb(2 * MIB)),
    "two zstd frames": (Codec.zstd, lambda: 2 * compress(Codec.zstd, b"")),
    "two lz4 frames": (Codec.lz4, lambda: 2 * compress(Codec.lz4, b"")),
    "a large lz4 frame": (Codec.lz4, lambda: compress(Codec.lz4, bytes(2 * MIB))),
    "large blocks of lz4": (Codec.lz4, lambda: lz4_frame(bytes(8 * MIB), 7)),
    "an lz4 frame that is cut off": (Codec.lz4, lambda: compress(Codec.lz4, b"x")[:-1]),
    "an lz4 header that is cut off": (Codec.lz4, lambda: compress(Codec.lz4, b"x")[:5]),
    "too much of snappy": (Codec.snappy, lambda: compress(Codec.snappy, bytes(3 * MIB))),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_expensive_batch_is_decompressed_in_thread(name: str) -> None:
    codec, make = EXPENSIVE[name]
    assert view_of(make(), codec).decompression_cost >= LARGE_BATCH_COST


def lz4_frame(data: bytes, size: int = 4, *, sums: bool = False) -> bytes:
    return lz4.frame.compress(  # pyright: ignore
        data, block_size=size, block_checksum=sums, content_checksum=sums, store_size=sums
    )


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_small_lz4_batch_is_decompressed_in_event_loop(size: int, sums: bool) -> None:
    """The maximum block size is 64 KiB to 4 MiB; some clients declare the largest."""
    view = view_of(lz4_frame(bytes(300_000), size, sums=sums), Codec.lz4)
    assert 0 < view.decompression_cost <= 300_000 < LARGE_BATCH_COST


def test_small_java_zstd_batch_is_decompressed_in_event_loop() -> None:
    """Java writes no content size; 16 KiB is its default batch size."""
    made = zstandard.ZstdCompressor(write_content_size=False)
    view = view_of(made.compress(random.Random(1).randbytes(8 * 1024).hex().encode()))
    assert view.content_size == 0
    assert 0 < view.decompression_cost <= BLOCK


# -- malformed data -------------------------------------------------------------------------------


def zstd_with_content_size(size: int) -> bytes:
    """Return a frame of one block of one byte, repeated once, that declares `size` bytes."""
    header = b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", size)  # one segment, 8-byte size
    return header + ((1 << 3) | (1 << 1) | 1).to_bytes(3, "little") + b"x"


def zstd_blocks(size: int) -> bytes:
    """Return a frame of 63 blocks of one byte each, repeated `size` times."""
    first = ((size << 3) | (1 << 1)).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\0\x58" + 62 * first + bytes([first[0] | 1]) + first[1:]


def zstd_with_window(exponent: int) -> bytes:
    """Return a frame of one byte with a window of 2**(10 + exponent) bytes."""
    return b"\x28\xb5\x2f\xfd\0" + bytes([exponent << 3]) + b"\x09\0\0x"


def zstd_with_dictionary(dictionary: int) -> bytes:
    return b"\x28\xb5\x2f\xfd\x03" + b"\x58" + struct.pack("<I", dictionary) + b"\x09\0\0x"


def lz4_with_content_size(size: int) -> bytes:
    frame = bytearray(lz4.frame.compress(DATA, store_size=True))  # pyright: ignore
    struct.pack_into("<Q", frame, 6, size)
    return with_checksum(frame, 14)


def lz4_with_dictionary(dictionary: int) -> bytes:
    frame = bytearray(lz4.frame.compress(DATA, store_size=False))  # pyright: ignore
    frame[4] |= 1
    frame[6:6] = struct.pack("<I", dictionary)
    return with_checksum(frame, 10)


def with_checksum(frame: bytearray, end: int) -> bytes:
    """Return the frame with the valid header checksum, found among all 256."""
    for value in range(256):
        frame[end] = value
        try:
            lz4.frame.get_frame_info(bytes(frame))  # pyright: ignore
        except RuntimeError:
            continue
        return bytes(frame)
    raise AssertionError("no checksum fits")


def blocks(*lengths_and_data: tuple[int, bytes]) -> bytes:
    return XERIAL + b"".join(struct.pack(">i", n) + data for n, data in lengths_and_data)


GZIP, SNAPPY, LZ4, ZSTD = (compress(codec, DATA) for codec in COMPRESSED_CODECS)
BLOCK_OF_DATA = raw_snappy(DATA)
SKIPPABLE = struct.pack("<II", 0x184D2A5F, 5) + b"hello"
EMPTY_ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(b"")
LZ4_CHECKED = bytes(lz4.frame.compress(DATA, content_checksum=True))  # pyright: ignore
LZ4_OF_DEPENDENT_BLOCKS: bytes = lz4.frame.compress(bytes(100_000), block_linked=True)  # pyright: ignore
BAD_BLOCK = b"\x80\x01" + BLOCK_OF_DATA[2:]
HUGE = b"\xff\xff\xff\xff\x0f"  # 2^32-1 in snappy's preamble
ZSTD_HEADER = b"\x28\xb5\x2f\xfd\0\x58"
GARBAGE = SECRET[6:]  # without the flag of a dictionary

NO_MARK = "ends before its end mark"
NO_GZIP = "is no gzip stream"
NO_ZSTD = "is no zstd frame .*frame parameters"
WRONG_TRAILER = "wrong checksum or size"
WRONG_LENGTH = "block of an impossible length"
WRONG_BLOCK = "is no snappy block .*literal"
WRONG_KIND = "impossible kind or size"
TOO_LARGE = "declares .*more than it (may|can) hold"
TOO_MUCH_MEMORY = "Frame requires too much memory"

MALFORMED: dict[Codec, dict[str, tuple[bytes, str]]] = {
    Codec.gzip: {
        "cut off": (GZIP[:-10], NO_MARK),
        "of nothing": (b"", "ends inside a header"),
        "of random bytes": (GARBAGE, NO_GZIP),
        "with a damaged block": (GZIP[:10] + b"\x07" + GZIP[11:], "is no gzip stream .*block type"),
        "without its checksum": (GZIP[:-8], "ends before its checksum"),
        "with a wrong length": (flipped(GZIP, -1), WRONG_TRAILER),
        "with a wrong CRC": (flipped(GZIP, -8), WRONG_TRAILER),
        "with a second header only": (GZIP + GZIP[:10] + bytes(99), "is no gzip stream .*Error"),
        "with a name that does not end": (GZIP[:3] + b"\x08" + GZIP[4:10] + b"x" * 99, "header"),
    },
    Codec.snappy: {
        "cut off": (SNAPPY[:-10], WRONG_LENGTH),
        "of nothing": (b"", "is no snappy block .*empty"),
        "with trailing garbage": (SNAPPY + GARBAGE[:99], WRONG_LENGTH),
        "of random bytes": (GARBAGE, "is no snappy block .*corrupt"),
        "with a negative block": (blocks((-1, BLOCK_OF_DATA)), WRONG_LENGTH),
        "with a block of 0 bytes": (blocks((0, b"")), WRONG_LENGTH),
        "with a block of 2^31-1 bytes": (blocks((2**31 - 1, BLOCK_OF_DATA)), WRONG_LENGTH),
        "with a block beyond the end": (
            blocks((len(BLOCK_OF_DATA) + 1, BLOCK_OF_DATA)),
            WRONG_LENGTH,
        ),
        "with an invalid block after a good one": (
            blocks((len(BLOCK_OF_DATA), BLOCK_OF_DATA), (len(BAD_BLOCK), BAD_BLOCK)),
            WRONG_BLOCK,
        ),
        "joined with a stream of version 0": (SNAPPY + XERIAL[:8] + bytes(8), "has version 0"),
        "with wrong size 2^32-1": (HUGE + BLOCK_OF_DATA, TOO_LARGE),
        "with wrong size 1:1,000,000": (b"\x80\x80\x80\x20" + SECRET[:60], TOO_LARGE),
        "with wrong size too large": (b"\x80\x20" + BLOCK_OF_DATA[2:], "block .*mismatch"),
        "with wrong size too small": (BAD_BLOCK, WRONG_BLOCK),
    },
    Codec.lz4: {
        "cut off": (LZ4[:-10], NO_MARK),
        "of nothing": (b"", "ends inside its header"),
        "of random bytes": (GARBAGE, "needs a dictionary, or has an unknown flag"),
        "without its end mark": (LZ4[:-4], NO_MARK),
        "with a wrong header checksum": (flipped(LZ4, 6), "damaged header"),
        "with a wrong magic number": (flipped(LZ4, 0), "is no lz4 frame .*frameType"),
        "with a damaged block": (LZ4_HEADER + b"\1\0\0\0\xff" + bytes(4), "is no lz4 frame"),
        "without its content checksum": (LZ4_CHECKED[:-1], "before its checksum"),
        "of dependent blocks": (LZ4_OF_DEPENDENT_BLOCKS, "blocks that depend on each other"),
        "with a dictionary id": (lz4_with_dictionary(7), "needs a dictionary"),
    },
    Codec.zstd: {
        "cut off": (ZSTD[:-10], "ends inside a block"),
        "of a skippable frame cut off": (SKIPPABLE[:-1], "ends inside a skippable frame"),
        "with a damaged frame that declares 0 bytes": (flipped(EMPTY_ZSTD, -1), "checksum"),
        "with trailing garbage": (ZSTD + GARBAGE[:99], NO_ZSTD),
        "of random bytes": (GARBAGE, NO_ZSTD),
        "without its last block": (ZSTD_HEADER + b"\x08\0\0x", "ends before its last block"),
        "with a reserved block": (ZSTD_HEADER + b"\x0f\0\0x", WRONG_KIND),
        "with blocks of 2 MiB": (zstd_blocks(2 * MIB - 1), WRONG_KIND),
        "with wrong content size 2": (zstd_with_content_size(2), TOO_LARGE),
        "with wrong content size 1:1,000,000": (zstd_with_content_size(17 * 10**6), TOO_LARGE),
        "with wrong content size 2^63-1": (zstd_with_content_size(2**63 - 1), TOO_LARGE),
        "with a window of 2^41": (zstd_with_window(31), f"frame parameters: {TOO_MUCH_MEMORY}"),
        "with a window of 2^28": (zstd_with_window(18), f"error: {TOO_MUCH_MEMORY}"),
        "with a dictionary id": (zstd_with_dictionary(7), "needs a dictionary"),
    },
}
CASES = {
    f"{codec.name} {name}": (codec, *case)
    for codec, cases in MALFORMED.items()
    for name, case in cases.items()
}
"""The codec, the malformed bytes and the error's message, by case."""


UNUSUAL: dict[str, tuple[Codec, bytes]] = {
    "gzip with trailing garbage": (Codec.gzip, GZIP + GARBAGE[:99]),
    "gzip with a second header cut off": (Codec.gzip, GZIP + GZIP[:18]),
    "gzip with reserved flags": (Codec.gzip, GZIP[:3] + b"\xe0" + GZIP[4:]),
    "snappy of a newer version": (
        Codec.snappy,
        XERIAL[:8] + struct.pack(">ii", 2, 2) + SNAPPY[16:],
    ),
    "snappy of a little-endian version": (
        Codec.snappy,
        XERIAL[:8] + struct.pack("<ii", 1, 1) + SNAPPY[16:],
    ),
    "snappy joined with an empty stream": (Codec.snappy, XERIAL + SNAPPY + XERIAL),
    "snappy cut off in a block's length": (Codec.snappy, SNAPPY + b"\0\0"),
    "lz4 with trailing garbage": (Codec.lz4, LZ4 + GARBAGE[:99]),
    "lz4 with a second frame": (Codec.lz4, LZ4 + LZ4),
    "lz4 with a wrong content checksum": (Codec.lz4, flipped(LZ4_CHECKED, -1)),
    "lz4 with content size 10": (Codec.lz4, lz4_with_content_size(10)),
    "lz4 with content size 2^63-1": (Codec.lz4, lz4_with_content_size(2**63 - 1)),
    "lz4 with an uncompressed block as its end": (Codec.lz4, LZ4[:-1] + b"\x80"),
    "zstd after a skippable frame": (Codec.zstd, SKIPPABLE + ZSTD),
    "zstd before skippable frames": (Codec.zstd, ZSTD + SKIPPABLE + SKIPPABLE),
    "zstd before a skippable frame cut off": (Codec.zstd, ZSTD + SKIPPABLE[:-1]),
    "zstd with an empty frame": (Codec.zstd, ZSTD + EMPTY_ZSTD),
}
"""Data that Java reads; tools.conformance.compression has the comparison."""


def test_unusual_stream_is_read_as_in_java_and_allocates_little() -> None:
    for name in UNUSUAL:
        with row(name):
            codec, compressed = UNUSUAL[name]
            decompress(codec, compress(codec, b"load the package first"))
            with allocates_at_most(2 * MIB):
                assert decompress(codec, compressed) == DATA
            with pytest.raises(CorruptRecordError, match="more than"):
                decompress(codec, compressed, limit=len(DATA) - 1)


@pytest.mark.parametrize("empty", [b"", SKIPPABLE, EMPTY_ZSTD])
def test_zstd_data_without_contents_is_empty(empty: bytes) -> None:
    assert decompress(Codec.zstd, empty) == b""


def test_malformed_data_has_no_content_size() -> None:
    assert [n for n, (c, data, _) in CASES.items() if content_size(c, memoryview(data))] == []


@pytest.mark.parametrize("wrong", [-1, 1, MIB])
def test_wrong_content_size_is_corrupt(wrong: int) -> None:
    compressed, size = memoryview(compress(Codec.zstd, DATA)), len(DATA)
    assert content_size(Codec.zstd, compressed) == size
    assert [bytes(made) for made in decompress_frames([compressed] * 2, [size] * 2)] == [DATA] * 2
    with pytest.raises(CorruptRecordError, match="damaged frame"):
        decompress_frames([compressed] * 2, [size, size + wrong])


def test_malformed_stream_is_corrupt_and_allocates_little() -> None:
    for name in CASES:
        with row(name):
            codec, compressed, expected_message = CASES[name]
            decompress(codec, compress(codec, b"load the package first"))
            with (
                allocates_at_most(2 * MIB),
                pytest.raises(CorruptRecordError, match=expected_message) as caught,
            ):
                decompress(codec, compressed)
            assert caught.value.message.startswith(f"the {codec.name} data ")


def test_malformed_stream_in_batch_has_position(kernel: ModuleType) -> None:
    for name in CASES:
        with row(name):
            codec, compressed, expected_message = CASES[name]
            (view,) = iter_batches(batch(codec=codec, payload=compressed), topic="t", partition=3)
            with pytest.raises(CorruptRecordError, match=expected_message) as caught:
                view.records()
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 3, 5)


def test_reads_largest_window_of_java() -> None:
    """Level 22 of zstd uses a window of 128 MiB if it does not know the size."""
    stream = zstandard.ZstdCompressor(level=22, write_content_size=False).compressobj()
    assert decompress(Codec.zstd, stream.compress(DATA) + stream.flush()) == DATA


def test_output_has_only_decompressed_bytes() -> None:
    """CVE-2025-66566: the output ended with old contents of a reused buffer."""
    for codec in COMPRESSED_CODECS:
        first = decompress(codec, compress(codec, SECRET))
        second = decompress(codec, compress(codec, b"ab"))
        assert bytes(first) == SECRET
        assert bytes(second) == b"ab"


# -- through a consumer ---------------------------------------------------------------------------


def bomb_of_each_codec() -> Iterator[Any]:
    """Yield a bomb of each codec; those of gzip and lz4 take seconds and are slow tests."""
    for name in BOMBS:
        if "1:" in name:
            slow = name.startswith(("gzip", "lz4"))
            yield pytest.param(name, marks=pytest.mark.slow if slow else ())


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", [*CASES, *bomb_of_each_codec()])
async def test_consumer_raises_at_malformed_batch_and_continues(name: str) -> None:
    if name in CASES:
        codec, compressed, _ = CASES[name]
    else:
        codec, compressed = BOMBS[name][0], bomb(name, 2 * CAP)
    malformed = batch(base=0) + batch(codec=codec, payload=compressed)
    errors = await check_consumer_continues([0, 1, 2, 3, 4], malformed, (10, batch(base=10)))
    assert {error.offset for error in errors} == {5}


# -- many batches below the limit -----------------------------------------------------------------


@functools.cache
def large_message_set(base: int, in_key: bool) -> bytes:
    """Return the same as `large_batch` in magic 1; the 100 MiB are the key or the value."""
    large = bytes(100 * MIB)
    one = entry(0, None, key=large) if in_key else entry(0, large)
    return wrapped(base, one)


@functools.cache
def message_set_before(base: int) -> bytes:
    """Return a message set with a record of 100 MiB before `base` and a small one at it."""
    return wrapped(base, entry(0, bytes(100 * MIB)), entry(1, b"value", key=b"key"))


@functools.cache
def large_batch(base: int) -> bytes:
    """Return a few kilobytes that decompress to one record of 100 MiB."""
    section = record(value=bytes(100 * MIB))
    return batch(base=base, count=1, codec=Codec.zstd, payload=compress(Codec.zstd, section))


LARGE: dict[str, Callable[[int], bytes]] = {
    "a value": large_batch,
    "a value of magic 1": lambda base: large_message_set(base, in_key=False),
    "a key of magic 1": lambda base: large_message_set(base, in_key=True),
}


def identity(topic: str, headers: Headers, data: bytes | None) -> bytes | None:
    return data


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("deserializes", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.slow if "magic 1" in name else ())
        for name, make in LARGE.items()
    ],
)
async def test_poll_decompresses_limit_and_one_batch(
    make: Callable[[int], bytes], deserializes: bool
) -> None:
    script = ScriptedFetch()
    for partition in (BAD, GOOD):
        script.data[partition] = {0: b"".join(make(5 * n) for n in range(4))}
    options = {"value_deserializer": identity} if deserializes else {}
    async with script.consumer(**options) as consumer:
        taken = 0
        while taken < 8:
            records = await consumer.poll(max_records=100, timeout=5)
            assert 1 <= len(records) <= 2
            taken += len(records)


def test_skipped_records_count_towards_limit() -> None:
    (view,) = iter_batches(message_set_before(6), topic="t", partition=0)
    assert [record.offset for record in view.records(start=6)] == [6]
    assert view.decompressed_bytes > 100 * MIB


def views(count: int) -> PartitionBatch:
    data = b"".join(large_batch(5 * n) for n in range(count))
    return PartitionBatch(BAD, list(iter_batches(data, topic="t", partition=0)), 0, 5 * count)


def test_batches_are_decompressed_one_at_a_time() -> None:
    read = views(5)
    with allocates_at_most(350 * MIB):  # a record, the next batch and its record
        for number, record in enumerate(read.records()):
            assert record.offset == 5 * number


def test_to_arrow_limits_decompressed_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_DECOMPRESSED_BYTES_PER_CALL", 150 * MIB)
    with pytest.raises(RecordTooLargeError, match="narrow them with start and end") as caught:
        views(3).to_arrow()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 5)
    for number in range(3):  # batches outside the range are not decompressed
        rows = views(3).to_arrow(start=5 * number, end=5 * number + 5)
        assert rows.num_rows == 1


def test_record_count_is_checked_against_decompressed_bytes(kernel: ModuleType) -> None:
    section = Section(DATA, 10**6, 5, 4, 0, 0, 0)
    with allocates_at_most(64 * 1024), pytest.raises(CorruptRecordError):
        kernel.parse_records(section, "t", 0)
