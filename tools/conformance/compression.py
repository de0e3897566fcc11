"""Compares what our decompressors read with what Kafka's classes read.

Each case is a records section: the output of several writers, changed along the specification of
its format (flags, versions, lengths, checksums, joined and skippable frames, ends in wrong places)
or in a random byte. What Java decompresses we must decompress to the same bytes, and what Java
refuses we must refuse.

Two kinds of data are left out, because Java reads or refuses them depending on what is in its
buffer: zstd data that ends inside a frame after a whole one (we read it if the frame is skippable),
and snappy streams that are joined by a header with a damaged magic (we refuse them).
"""

from __future__ import annotations

import random
import struct
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import cramjam
import lz4.frame  # pyright: ignore[reportMissingTypeStubs] no stubs
import zstandard

from kafka_async.errors import CorruptRecordError
from kafka_async.records.compression import Codec, decompress, with_correct_lz4_checksum
from tools.conformance.java import JavaProcess
from tools.conformance.parts import PartResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tools.conformance.java import Query
    from tools.conformance.parts import Options

Case: TypeAlias = "tuple[Codec, int, bytes]"
"""Codec, number and data."""

CASES_PER_COUNT: Final = 20
"""Cases of each codec, for each of `--count`."""
_FLIPS: Final = 2
_XERIAL: Final = b"\x82SNAPPY\x00"
_BYTES: Final = (0, 1, 2, 4, 7, 8, 0x10, 0x40, 0x7F, 0x80, 0xFE, 0xFF)
_INTS: Final = (0, 1, 2, 3, 5, 255, 1 << 16, 1 << 24, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)


def run(options: Options) -> PartResult:
    """Compare the decompressors of all codecs that compress."""
    result = PartResult()
    read = Counter[bool]()
    with JavaProcess() as java:
        for (codec, number, data), found in java.results(cases(options)):
            theirs = b64decode(found["bytes"]) if "bytes" in found else None
            try:
                ours = bytes(decompress(codec, data))
                refusal = ""
            except CorruptRecordError as error:
                ours, refusal = None, str(error)
            read[theirs is not None] += 1
            if ours == theirs or depends_on_buffer(codec, data):
                continue
            java_has = found.get("refused") or f"{len(theirs or b''):,} bytes"
            we_have = refusal or f"{len(ours or b''):,} bytes"
            what = f"{number}, {data[:40].hex()} ({len(data):,}): {we_have}; Java: {java_has}"
            result.add_difference(options, codec.name, what)
    result.summary = f"{read.total():,} records sections ({read[False]:,} refused)"
    return result


def cases(options: Options) -> Iterator[tuple[Case, Query]]:
    """Yield cases with Java's query."""
    for codec, write in WRITERS.items():
        if not options.selects(codec.name, 0):
            continue
        chosen = random.Random(f"{options.seed} {codec.name}")
        for number in range(CASES_PER_COUNT * options.count):
            data = changed(chosen, write)
            query: dict[str, Any] = {
                "operation": "decompress",
                "codec": int(codec),
                "data": b64encode(data).decode(),
            }
            yield (codec, number, data), query


def depends_on_buffer(codec: Codec, data: bytes) -> bool:
    """Return True if what Java does with data depends on the contents of its buffer."""
    if codec is Codec.snappy:
        joined = data[struct.calcsize(">8sii") :].split(_XERIAL[:4])[1:]
        return any(not each.startswith(_XERIAL[4:]) for each in joined)
    return codec is Codec.zstd and is_cut_off(data)


def is_cut_off(data: bytes) -> bool:
    """Return True if zstd data ends inside a frame that follows a whole one."""
    whole = 0
    while data:
        if data[:4] in _SKIPPABLE_STARTS:
            (size,) = struct.unpack("<I", data[4:8].ljust(4, b"\0"))
            if len(data) < 8 + size:
                return whole > 0
            data = data[8 + size :]
        else:
            stream = zstandard.ZstdDecompressor().decompressobj()
            try:
                stream.decompress(data)
            except zstandard.ZstdError:
                return False
            if not stream.eof:
                return whole > 0
            data = stream.unused_data
        whole += 1
    return False


def changed(chosen: random.Random, write: Callable[[random.Random], bytes]) -> bytes:
    """Return data of a writer, changed in one of several ways."""
    data = write(chosen)
    kind = chosen.random()
    if kind < 0.3:  # as the writer made it
        return data
    if kind < 0.45:
        return data[: chosen.randrange(len(data) + 1)]
    if kind < 0.6:
        return data + chosen.choice(
            (write(chosen), chosen.randbytes(chosen.randrange(40)), bytes(9))
        )
    if kind < 0.7:
        return data + write(chosen)[: chosen.randrange(30)]
    flipped = bytearray(data)
    near_start = chosen.random() < 0.6
    for _ in range(chosen.randint(1, _FLIPS)):
        if flipped:
            end = min(len(flipped), 24) if near_start else len(flipped)
            flipped[chosen.randrange(end)] = chosen.choice((*_BYTES, chosen.randrange(256)))
    return bytes(flipped)


def text_of(chosen: random.Random) -> bytes:
    """Return contents: nothing, words, zeros, noise, or several blocks of a mixture."""
    words = b"records section %d " % chosen.randrange(10) * chosen.randrange(30)
    noise = chosen.randbytes(chosen.randrange(300))
    many = words * 200 + bytes(chosen.randrange(200_000)) + noise * 100
    return chosen.choice(
        (b"", words, words, bytes(chosen.randrange(5_000)), noise, words + noise, many)
    )


def _snappy(chosen: random.Random) -> bytes:
    parts: list[bytes] = []
    text = text_of(chosen)
    raw = bytes(cramjam.snappy.compress_raw(text))
    if chosen.random() < 0.2:
        return raw
    for _ in range(1 if chosen.random() < 0.8 else 2):
        versions = [1, 1] if chosen.random() < 0.5 else chosen.choices(_INTS, k=2)
        parts.append(_XERIAL + struct.pack(chosen.choice((">II", ">II", "<II")), *versions))
        block = chosen.choice((100, 1000, 32 * 1024))
        for at in range(0, len(text), block):
            raw = bytes(cramjam.snappy.compress_raw(text[at : at + block]))
            parts += (struct.pack(">I", len(raw)), raw)
        if chosen.random() < 0.1:
            parts.append(struct.pack(">I", chosen.choice(_INTS)))
    return b"".join(parts)


def _lz4(chosen: random.Random) -> bytes:
    frame: Any = lz4.frame
    made = bytearray(
        frame.compress(
            text_of(chosen),
            block_size=chosen.choice((4, 5, 6, 7)),
            block_linked=chosen.random() < 0.3,
            content_checksum=chosen.random() < 0.5,
            block_checksum=chosen.random() < 0.3,
            store_size=chosen.random() < 0.5,
        )
    )
    change = chosen.random()
    if change < 0.1:  # flags and block size
        made[chosen.choice((4, 5))] ^= 1 << chosen.randrange(8)
    elif change < 0.15 and made[4] & 8:  # the declared size
        made[6] ^= 1
    elif change < 0.2 and made[4] & 4:  # the checksum of the contents
        made[-1] ^= 1
    elif change < 0.3:  # the end mark, or the length of the last block
        made[-4 if not made[4] & 4 else -8 :] = struct.pack("<I", chosen.choice(_INTS))
    return with_correct_lz4_checksum(bytes(made)) if change < 0.4 else bytes(made)


def _gzip(chosen: random.Random) -> bytes:
    text = text_of(chosen)
    stream = zlib.compressobj(chosen.randint(0, 9), zlib.DEFLATED, -chosen.randint(9, 15))
    flags = 0 if chosen.random() < 0.4 else chosen.randrange(256)
    header = bytearray(struct.pack("<HBBIBB", 0x8B1F, 8, flags, chosen.choice(_INTS), 0, 255))
    if flags & 4:
        header += struct.pack("<H", 5) + b"extra"
    for flag in (8, 16):
        if flags & flag:
            header += b"name" * chosen.randrange(30) + b"\0"
    if flags & 2:
        wrong = chosen.random() < 0.2
        header += struct.pack("<H", (zlib.crc32(header) ^ wrong) & 0xFFFF)
    trailer = struct.pack("<II", zlib.crc32(text), len(text) ^ (chosen.random() < 0.1))
    return bytes(header) + stream.compress(text) + stream.flush() + trailer


def _zstd(chosen: random.Random) -> bytes:
    parts: list[bytes] = []
    for _ in range(chosen.choice((1, 1, 1, 2, 3))):
        if chosen.random() < 0.3:
            start = chosen.choice(_SKIPPABLE_STARTS)
            size = chosen.choice((0, 0, 3, 100))
            parts.append(start + struct.pack("<I", size) + bytes(size))
            continue
        parameters_class: Any = zstandard.ZstdCompressionParameters
        parameters = parameters_class.from_level(
            chosen.choice((-5, 1, 3, 9)),
            window_log=chosen.choice((10, 17, 20, 23)),
            write_content_size=chosen.random() < 0.7,
            write_checksum=chosen.random() < 0.5,
        )
        parts.append(
            zstandard.ZstdCompressor(compression_params=parameters).compress(text_of(chosen))
        )
    return b"".join(parts)


_SKIPPABLE_STARTS: Final = tuple(struct.pack("<I", 0x184D2A50 + each) for each in range(16))
WRITERS: Final[dict[Codec, Callable[[random.Random], bytes]]] = {
    Codec.gzip: _gzip,
    Codec.snappy: _snappy,
    Codec.lz4: _lz4,
    Codec.zstd: _zstd,
}
