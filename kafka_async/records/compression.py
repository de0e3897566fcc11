"""Compresses and decompresses record batches with Kafka's codecs, within memory limits.

Every decompressor stops at `limit`: it produces output in pieces, or computes a tight bound of the
size from the compressed blocks before it allocates. A merely declared size is never allocated, and
nothing large is held twice. Output is always a new object of exactly the produced bytes
(CVE-2025-66566). Data that is not a complete, well-formed stream to its last byte raises
CorruptRecordError. The packages of the codecs are imported when first needed.
"""

from __future__ import annotations

import enum
import importlib
import struct
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kafka_async.errors import CorruptRecordError, InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

Decompressed: TypeAlias = "bytes | bytearray"
"""A decompressed records section; it must not be changed."""

MAX_DECOMPRESSED_BYTES_PER_BATCH: Final = 128 * 1024 * 1024
"""Default limit for the decompressed bytes of one batch."""
MAX_DECOMPRESSED_BYTES_PER_CALL: Final = 4 * MAX_DECOMPRESSED_BYTES_PER_BATCH
"""Limit for the decompressed bytes of all batches read in one call."""
MAX_SCANNED_BLOCKS: Final = 64
"""Blocks scanned to find a size; a batch of 1 MiB has 8 blocks of zstd or 32 of snappy."""


class Codec(enum.IntEnum):
    """Codecs, by their number in a batch's attributes and their name in the configuration."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


_COST_FACTORS: Final[dict[int, int]] = {Codec.gzip: 16, Codec.snappy: 4, Codec.lz4: 2}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress a records section in the format that Kafka's Java clients read.

    A `level` of None is the codec's default; none and snappy have no levels. Raises
    InvalidConfigurationError if the codec's package is not installed.
    """
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Codec, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES_PER_BATCH
) -> Decompressed:
    """Decompress a records section of at most `limit` bytes.

    Raises CorruptRecordError if it is larger, truncated, followed by other bytes, or not in the
    codec's format; InvalidConfigurationError if the codec's package is not installed.
    """
    return _DECOMPRESSORS[codec](memoryview(data), limit)


def content_size(
    codec: int, data: memoryview, limit: int = MAX_DECOMPRESSED_BYTES_PER_BATCH
) -> int:
    """Return the decompressed size in bytes if `decompress_frames` accepts the data, else 0.

    Accepted is one zstd frame whose declared size is at most `limit` and at most the capacity of
    its blocks. A frame of more than `MAX_SCANNED_BLOCKS` blocks is not accepted, since the caller
    has to scan each block.
    """
    if codec != Codec.zstd:
        return 0
    try:
        frame = _single_zstd_frame(data)
    except InvalidConfigurationError:
        return 0
    if frame is None or "multi_decompress_to_buffer" not in _module("zstandard").backend_features:
        return 0
    size = frame.declared or 0
    accepted = frame.window <= _ZSTD_WINDOW and size <= min(limit, frame.bound)
    return size if accepted else 0


def decompress_frames(frames: Sequence[memoryview], sizes: Sequence[int]) -> list[memoryview]:
    """Decompress several zstd frames into one block of memory.

    The GIL is released until all are done: a thread that decompressed them one by one would wait
    for the event loop after each. `sizes` come from `content_size`. Raises CorruptRecordError if a
    frame is corrupt or has another size.
    """
    zstandard = _module("zstandard")
    try:
        made: Any = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
            list(frames), decompressed_sizes=struct.pack(f"={len(sizes)}Q", *sizes)
        )
    except zstandard.ZstdError as error:
        raise _corrupt(Codec.zstd, f"holds a damaged frame ({error})") from None
    return [memoryview(segment) for segment in made]


def decompression_cost(codec: int, data: memoryview) -> int:
    """Estimate the decompression time, in bytes that zstd would decompress in that time.

    For zstd it is the capacity of the blocks. For other codecs the decompressed size is estimated
    from the compressed size. If there are too many blocks to scan, it is
    `MAX_DECOMPRESSED_BYTES_PER_BATCH`, because small blocks take much longer than their bytes
    suggest.
    """
    try:
        if codec == Codec.zstd:
            frame = _single_zstd_frame(data)
            return MAX_DECOMPRESSED_BYTES_PER_BATCH if frame is None else frame.bound
        if codec == Codec.snappy:
            _snappy_blocks(data, MAX_SCANNED_BLOCKS)
        min_size = _lz4_min_size(data) if codec == Codec.lz4 else 0
    except CorruptRecordError:
        return MAX_DECOMPRESSED_BYTES_PER_BATCH
    except InvalidConfigurationError:
        return 0
    return max(min_size, data.nbytes * _COST_FACTORS.get(codec, 0))


_LOADED: Final[dict[str, Any]] = {}


def _module(name: str) -> Any:
    # Any: lz4 has no type information, and importing this module must not load the others.
    loaded = _LOADED.get(name)  # much faster than import_module
    if loaded is not None:
        return loaded
    try:
        # sys.modules may contain a module that another thread is still importing.
        loaded = _LOADED[name] = importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InvalidConfigurationError(
            f"this compression needs the package {package}: pip install {package}"
        ) from error
    return loaded


def _corrupt(codec: Codec, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"the {codec.name} data {reason}")


_MIB: Final = 1024 * 1024
_MAX_PIECE: Final = 2 * _MIB
"""Maximum bytes of output per call of a decompressor."""
_MAX_SLICE: Final = _MIB // 4
"""Maximum bytes of input per call of a decompressor, which copies the unused input."""
_FIRST_SLICE: Final = 64
"""Bytes of input in the first call for a further stream, which may be that short."""


class _Output:
    """Collects the output of a stream in growing pieces, up to a limit."""

    def __init__(self, codec: Codec, limit: int, piece: int = 0) -> None:
        self._codec = codec
        self._limit = limit
        self._piece = min(max(piece, 64 * 1024), _MAX_PIECE)
        self._total = 0
        self._parts: list[bytes] = []
        self._whole: bytearray | None = None  # large output in one piece

    @property
    def left(self) -> int:
        """Bytes up to the limit."""
        return self._limit - self._total

    def room(self) -> int:
        """Return the maximum size of the next piece.

        It may exceed the limit by one byte, to detect output that is too large.
        """
        return min(self._piece, self._limit - self._total + 1)

    def add(self, part: bytes) -> None:
        """Add a piece; raise CorruptRecordError if the output exceeds the limit."""
        self._total += len(part)
        if self._total > self._limit:
            raise _corrupt(self._codec, f"decompresses to more than {self._limit} bytes")
        self._piece = min(2 * self._piece, _MAX_PIECE)
        if self._whole is not None:
            self._whole += part
            return
        self._parts.append(part)
        if self._total > _MAX_PIECE and len(self._parts) > 1:
            self._whole = bytearray().join(self._parts)
            self._parts.clear()

    def join(self) -> Decompressed:
        """Return the whole output."""
        if self._whole is not None:
            return self._whole
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


# -- none -----------------------------------------------------------------------------------------


def _copy(data: Buffer, level: int | None) -> bytes:
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def _check_size(data: memoryview, limit: int) -> bytes:
    if data.nbytes > limit:
        raise CorruptRecordError(f"the records are larger than {limit} bytes")
    return bytes(data)


# -- gzip -----------------------------------------------------------------------------------------

# As in Java's GZIPInputStream, bytes after a member that are not a header are ignored.
_GZIP_WINDOW: Final = 31  # zlib's wbits for the largest window and gzip's header
_GZIP_RAW: Final = -15  # and for the largest window without a header
_GZIP_HEADER: Final = struct.Struct("<HBB6x")
_GZIP_TRAILER: Final = struct.Struct("<II")
_GZIP_MAGIC: Final = 0x8B1F
_GZIP_DEFLATED: Final = 8
_GZIP_HAS_HEADER_CHECKSUM: Final = 0x02
_GZIP_HAS_EXTRA: Final = 0x04
_GZIP_HAS_NAME: Final = 0x08
_GZIP_HAS_COMMENT: Final = 0x10
_GZIP_MAX_IGNORED: Final = 18
"""Bytes after a member that are ignored: a member is longer."""


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    zlib = _module("zlib")
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: memoryview, limit: int) -> Decompressed:
    output = _Output(Codec.gzip, limit, 4 * data.nbytes)
    at = _gzip_member(data, _gzip_header(data, 0), output, _MAX_SLICE)
    while data.nbytes - at > _GZIP_MAX_IGNORED:
        try:
            start = _gzip_header(data, at)
        except CorruptRecordError:
            break
        at = _gzip_member(data, start, output, _FIRST_SLICE)
    return output.join()


def _gzip_header(data: memoryview, at: int) -> int:
    """Return the end of the header at `at`; reserved flags are ignored."""
    start = at
    if data.nbytes - at < _GZIP_HEADER.size:
        raise _corrupt(Codec.gzip, "ends inside a header")
    magic, method, flags = _GZIP_HEADER.unpack_from(data, at)
    if magic != _GZIP_MAGIC or method != _GZIP_DEFLATED:
        raise _corrupt(Codec.gzip, "is no gzip stream")
    at += _GZIP_HEADER.size
    if flags & _GZIP_HAS_EXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (_GZIP_HAS_NAME, _GZIP_HAS_COMMENT):
        if flags & flag:
            at = _gzip_text_end(data, at)
    if flags & _GZIP_HAS_HEADER_CHECKSUM:
        declared = int.from_bytes(data[at : at + 2], "little")
        if declared != _module("zlib").crc32(data[start:at]) & 0xFFFF:
            raise _corrupt(Codec.gzip, "has a damaged header")
        at += 2
    if at > data.nbytes:
        raise _corrupt(Codec.gzip, "ends inside a header")
    return at


def _gzip_text_end(data: memoryview, at: int) -> int:
    """Return the position after a zero-terminated text."""
    while at < data.nbytes:
        found = bytes(data[at : at + _FIRST_SLICE]).find(0)
        if found >= 0:
            return at + found + 1
        at += _FIRST_SLICE
    raise _corrupt(Codec.gzip, "ends inside a header")


def _gzip_member(data: memoryview, at: int, output: _Output, chunk_size: int) -> int:
    """Add the contents of a member, whose header ends at `at`, to the output; return its end."""
    zlib = _module("zlib")
    stream = zlib.decompressobj(_GZIP_RAW)
    size = checksum = 0
    while not stream.eof:
        # Each call takes a slice of input, since zlib copies the input that it does not use, and
        # returns at most `room` bytes. A call without input, output or the end mark can only mean
        # truncated data.
        chunk = data[at : at + chunk_size]
        chunk_size = min(2 * chunk_size, _MAX_SLICE)
        try:
            part = stream.decompress(chunk, output.room())
        except zlib.error as error:
            raise _corrupt(Codec.gzip, f"is no gzip stream ({error})") from None
        left = stream.unused_data if stream.eof else stream.unconsumed_tail
        consumed = chunk.nbytes - len(left)
        at += consumed
        if part:
            output.add(part)
            size += len(part)
            checksum = zlib.crc32(part, checksum)
        elif not (consumed or stream.eof):
            raise _corrupt(Codec.gzip, "ends before its end mark")
    if data.nbytes - at < _GZIP_TRAILER.size:
        raise _corrupt(Codec.gzip, "ends before its checksum")
    if _GZIP_TRAILER.unpack_from(data, at) != (checksum, size & 0xFFFF_FFFF):
        raise _corrupt(Codec.gzip, "has a wrong checksum or size")
    return at + _GZIP_TRAILER.size


# -- snappy ---------------------------------------------------------------------------------------

# Kafka's Java clients read and write the framing of xerial's snappy-java: a header, then blocks,
# each a big-endian length and raw snappy. librdkafka writes one raw block without the framing, and
# Redpanda before 2025 wrote little-endian versions: Java reads any version in the first header.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_VERSION: Final = 1
_XERIAL_BLOCK: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")
# Snappy's best compression is a copy of 64 bytes in three bytes: a declared size above that ratio
# is false.
_SNAPPY_MAX_RATIO: Final = 22


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    raw = _module("cramjam").snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for at in range(0, view.nbytes, _XERIAL_BLOCK):
        block = bytes(raw(view[at : at + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, limit: int) -> Decompressed:
    # Add up the declared sizes before reading a block: output that is too large then costs nothing.
    cramjam = _module("cramjam")
    snappy = cramjam.snappy
    blocks = _snappy_blocks(data)
    sizes = [_snappy_size(cramjam, block) for block in blocks]
    total = sum(sizes)
    if total > limit:
        raise _corrupt(Codec.snappy, f"decompresses to more than {limit} bytes")
    try:
        if len(blocks) == 1 and total <= _MAX_PIECE:
            return bytes(snappy.decompress_raw(blocks[0]))
        whole = bytearray(total)
        room = memoryview(whole)
        for block, size in zip(blocks, sizes, strict=True):
            snappy.decompress_raw_into(block, room[:size])  # raises unless it fills the room
            room = room[size:]
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.snappy, f"is no snappy block ({error})") from None
    return whole


def _snappy_blocks(data: memoryview, max_blocks: int = sys.maxsize) -> list[memoryview]:
    """Return the blocks of raw snappy; raise CorruptRecordError beyond `max_blocks`.

    A header may stand in place of a block's length (concatenated streams). A truncated length is
    ignored, as in Java.
    """
    if data.nbytes < _XERIAL_HEADER.size or not _is_xerial_header(data, 0):
        return [data]
    blocks: list[memoryview] = []
    at = _XERIAL_HEADER.size
    while data.nbytes - at >= _BLOCK_LENGTH.size:
        if data.nbytes - at >= _XERIAL_HEADER.size and _is_xerial_header(data, at):
            # Concatenated streams: Java checks the version of later headers only.
            _, version, _ = _XERIAL_HEADER.unpack_from(data, at)
            if version < _XERIAL_VERSION:
                raise _corrupt(Codec.snappy, f"has version {version}, which does not exist")
            at += _XERIAL_HEADER.size
            continue
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= data.nbytes - at:
            raise _corrupt(Codec.snappy, "has a block of an impossible length")
        blocks.append(data[at : at + length])
        at += length
        if len(blocks) > max_blocks:
            raise _corrupt(Codec.snappy, "has too many blocks")
    return blocks


def _is_xerial_header(data: memoryview, at: int) -> bool:
    return data[at : at + len(_XERIAL_MAGIC)].tobytes() == _XERIAL_MAGIC


def _snappy_size(cramjam: Any, block: memoryview) -> int:
    """Return a block's declared size; raise CorruptRecordError if the block cannot hold it."""
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _corrupt(Codec.snappy, f"is no snappy block ({error})") from None
    if declared > _SNAPPY_MAX_RATIO * block.nbytes:
        raise _corrupt(Codec.snappy, "declares more than it can hold")
    return declared


# -- lz4 ------------------------------------------------------------------------------------------


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    # Java's reader accepts independent blocks only, of any of the four sizes. In blocks of 64 KiB,
    # which Java writes, lz4 searches for shorter matches and takes twice the time per byte.
    frame = _module("lz4.frame")
    return frame.compress(
        data,
        compression_level=level or 0,
        block_size=frame.BLOCKSIZE_MAX256KB,
        block_linked=False,
        store_size=False,
    )


# As in Java's Lz4BlockInputStream, one frame of independent blocks is read; the declared size, the
# content checksum and everything after the frame are ignored.
_LZ4_FLAGS_AT: Final = 4  # after the frame's magic number
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_RESERVED: Final = 0x03
_LZ4_HAS_CHECKSUM: Final = 0x04
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_START: Final = struct.Struct("<4xBB")
_LZ4_BLOCK: Final = struct.Struct("<I")
_LZ4_LENGTH: Final = 0x7FFF_FFFF
"""Mask of a block's length; the highest bit marks an uncompressed block."""
_LZ4_END: Final = bytes(_LZ4_BLOCK.size)


def _lz4_decompress(data: memoryview, limit: int) -> Decompressed:
    output = _Output(Codec.lz4, limit, 4 * data.nbytes)
    header, at = _lz4_header(data)
    end = _lz4_blocks_end(data, at)
    stream = _module("lz4.frame").LZ4FrameDecompressor()
    chunk = memoryview(header)
    while not stream.eof:
        try:
            part = stream.decompress(chunk, max_length=output.room())
        except RuntimeError as error:
            raise _corrupt(Codec.lz4, f"is no lz4 frame ({error})") from None
        if part:
            output.add(part)
        # Pass no input while output is pending, then the next slice, and after the last block an
        # end mark, so that no checksum of the contents is read.
        if not stream.needs_input:
            chunk = data[:0]
        elif at < end:
            chunk = data[at : min(at + _MAX_SLICE, end)]
            at += chunk.nbytes
        else:
            chunk = memoryview(_LZ4_END)
    return output.join()


def _lz4_header(data: memoryview) -> tuple[bytes, int]:
    """Return the frame's header without declared size and content checksum, and its end."""
    if data.nbytes < _LZ4_START.size:
        raise _corrupt(Codec.lz4, "ends inside its header")
    flags, kind = _LZ4_START.unpack_from(data)
    if flags & _LZ4_RESERVED:
        raise _corrupt(Codec.lz4, "needs a dictionary, or has an unknown flag")
    if not flags & _LZ4_INDEPENDENT:
        raise _corrupt(Codec.lz4, "has blocks that depend on each other")
    end = _LZ4_START.size + (8 if flags & _LZ4_HAS_SIZE else 0)
    if data.nbytes <= end:
        raise _corrupt(Codec.lz4, "ends inside its header")
    if data[end] != _lz4_header_checksum(bytes(data[_LZ4_FLAGS_AT:end])):
        raise _corrupt(Codec.lz4, "has a damaged header")
    kept = bytes([flags & ~(_LZ4_HAS_SIZE | _LZ4_HAS_CHECKSUM), kind])
    checksum = _lz4_header_checksum(kept)
    return b"".join((data[:_LZ4_FLAGS_AT], kept, bytes([checksum]))), end + 1


def _lz4_blocks_end(data: memoryview, at: int) -> int:
    """Return the position of the end mark, an empty block."""
    (flags, _) = _LZ4_START.unpack_from(data)
    trailer = 4 if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 0
    try:
        while length := _LZ4_BLOCK.unpack_from(data, at)[0] & _LZ4_LENGTH:
            at += _LZ4_BLOCK.size + length + trailer
    except struct.error:
        raise _corrupt(Codec.lz4, "ends before its end mark") from None
    if data.nbytes - at - _LZ4_BLOCK.size < (4 if flags & _LZ4_HAS_CHECKSUM else 0):
        raise _corrupt(Codec.lz4, "ends before its checksum")
    return at


def _lz4_min_size(data: memoryview) -> int:
    """Return the minimum decompressed size of one frame: all blocks but the last are full.

    Raises CorruptRecordError if the data is not one frame of at most `MAX_SCANNED_BLOCKS` blocks.
    """
    try:
        flags, kind = _LZ4_START.unpack_from(data)
        trailer = 4 if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 0
        at = _LZ4_START.size + (8 if flags & _LZ4_HAS_SIZE else 0) + 1
        for before in range(MAX_SCANNED_BLOCKS):
            (length,) = _LZ4_BLOCK.unpack_from(data, at)
            at += _LZ4_BLOCK.size
            if not length:
                if at + (4 if flags & _LZ4_HAS_CHECKSUM else 0) != data.nbytes:
                    break
                return max(0, before - 1) * (1 << 8 + 2 * (kind >> 4 & 7))
            at += (length & _LZ4_LENGTH) + trailer
    except struct.error:  # the data is truncated
        pass
    raise _corrupt(Codec.lz4, "is not one frame of few blocks")


_XXH_MASK: Final = 0xFFFF_FFFF
_XXH_PRIMES: Final = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


def with_correct_lz4_checksum(frame: Buffer) -> bytes:
    """Return the frame with a correct header checksum: Kafka wrote wrong ones in magic 0."""
    fixed = bytearray(frame)
    flags = fixed[_LZ4_FLAGS_AT] if len(fixed) > _LZ4_FLAGS_AT else 0
    at = _LZ4_START.size
    at += (8 if flags & _LZ4_HAS_SIZE else 0) + (4 if flags & _LZ4_HAS_DICTIONARY else 0)
    if at < len(fixed):
        fixed[at] = _lz4_header_checksum(fixed[_LZ4_FLAGS_AT:at])
    return bytes(fixed)


def _lz4_header_checksum(descriptor: bytes | bytearray) -> int:
    return xxh32(descriptor) >> 8 & 0xFF


def xxh32(data: bytes | bytearray) -> int:
    """Return XXH32 with the seed 0 of fewer than 16 bytes; a header has at most 14."""
    state = _XXH_PRIMES[4] + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state = state + int.from_bytes(data[at : at + 4], "little") * _XXH_PRIMES[2] & _XXH_MASK
        state = (state << 17 | state >> 15) * _XXH_PRIMES[3] & _XXH_MASK
    for byte in data[whole:]:
        state = state + byte * _XXH_PRIMES[4] & _XXH_MASK
        state = (state << 11 | state >> 21) * _XXH_PRIMES[0] & _XXH_MASK
    state = (state ^ state >> 15) * _XXH_PRIMES[1] & _XXH_MASK
    state = (state ^ state >> 13) * _XXH_PRIMES[2] & _XXH_MASK
    return state ^ state >> 16


# -- zstd -----------------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_MAX_BLOCK: Final = 128 * 1024
_ZSTD_WINDOW: Final = 8 * _MIB  # of level 19; higher levels have up to 128 MiB
_ZSTD_SKIPPABLE: Final = struct.Struct("<II")
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50  # and the next 15 numbers
_ZSTD_RLE_BLOCK: Final = 1
_ZSTD_COMPRESSED_BLOCK: Final = 2
_ZSTD_RESERVED_BLOCK: Final = 3


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    zstandard = _module("zstandard")
    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    return zstandard.ZstdCompressor(level=level).compress(data)


def _zstd_decompress(data: memoryview, limit: int) -> Decompressed:
    zstandard = _module("zstandard")
    decompressor = zstandard.ZstdDecompressor()
    output = _Output(Codec.zstd, limit)
    at = 0
    while at < data.nbytes:
        # Each frame is a skippable one, or is decompressed at once: with its bound from the block
        # headers, the output buffer is never larger than the data can fill.
        if (end := _zstd_skippable_end(data, at)) is not None:
            at = end
            continue
        over = ""
        try:
            frame = _zstd_frame(data, at)
            # In addition to its output, the library allocates a window of the declared size.
            max_size = output.left if frame.window <= _ZSTD_WINDOW else output.left // 2
            if frame.declared is not None and frame.declared > min(frame.bound, max_size):
                raise _corrupt(
                    Codec.zstd, f"declares {frame.declared} bytes, more than it may hold"
                )
            if frame.bound > max_size:
                over = f", or decompresses to more than {max_size} bytes"
            # At least 1: to zstandard, 0 means the declared size.
            room = max(1, min(frame.bound, max_size))
            whole = data[at : frame.end]
            if frame.declared == 0:  # `decompress` would ignore the rest of the frame
                output.add(decompressor.decompressobj().decompress(whole))
            else:
                output.add(decompressor.decompress(whole, max_output_size=room))
        except zstandard.ZstdError as error:
            raise _corrupt(Codec.zstd, f"is no zstd frame ({error}){over}") from None
        at = frame.end
    return output.join()


def _zstd_skippable_end(data: memoryview, at: int) -> int | None:
    """Return the end of a skippable frame (RFC 8878, 3.1.2), or None for another frame.

    A skippable frame after other frames may be truncated, as in Java: its content is not read.
    """
    if data.nbytes - at < _ZSTD_SKIPPABLE.size:
        return None
    magic, size = _ZSTD_SKIPPABLE.unpack_from(data, at)
    if magic & ~0xF != _ZSTD_SKIPPABLE_MAGIC:
        return None
    end = at + _ZSTD_SKIPPABLE.size + size
    if end > data.nbytes and not at:
        raise _corrupt(Codec.zstd, "ends inside a skippable frame")
    return end


class _ZstdFrame(NamedTuple):
    """Describes a frame: its end, the capacity of its blocks, its declared size and its window."""

    end: int
    bound: int
    declared: int | None
    window: int


def _single_zstd_frame(data: memoryview) -> _ZstdFrame | None:
    """Scan data that is a single frame; return None for other data or too many blocks."""
    zstandard = _module("zstandard")
    try:
        frame = _zstd_frame(data, 0, MAX_SCANNED_BLOCKS)
    except (CorruptRecordError, zstandard.ZstdError):
        return None
    return frame if frame.end == data.nbytes else None


def _zstd_frame(data: memoryview, at: int, blocks: int = sys.maxsize) -> _ZstdFrame:
    """Scan the frame at `at`, which may have at most `blocks` blocks, without decompressing it.

    The library's streaming readers accept a truncated frame, and its one-shot reader allocates the
    declared size. Scanning the headers of the blocks avoids both.
    """
    zstandard = _module("zstandard")
    parameters = zstandard.get_frame_parameters(data[at:])
    if parameters.dict_id:
        raise _corrupt(Codec.zstd, "needs a dictionary")
    at += zstandard.frame_header_size(data[at:])
    bound = 0
    last = 0
    while not last:
        if not blocks:
            raise _corrupt(Codec.zstd, "has too many blocks")
        blocks -= 1
        if data.nbytes - at < 3:
            raise _corrupt(Codec.zstd, "ends before its last block")
        # A block header: one bit marks the last block, two bits are the kind, the rest is the size.
        # The size of an RLE block is its output's; it takes one byte.
        block = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == _ZSTD_RESERVED_BLOCK or size > _ZSTD_MAX_BLOCK:
            raise _corrupt(Codec.zstd, "has a block of an impossible kind or size")
        bound += _ZSTD_MAX_BLOCK if kind == _ZSTD_COMPRESSED_BLOCK else size
        at += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
    at += 4 if parameters.has_checksum else 0
    if at > data.nbytes:
        raise _corrupt(Codec.zstd, "ends inside a block")
    declared = parameters.content_size
    known = declared != zstandard.CONTENTSIZE_UNKNOWN
    return _ZstdFrame(at, bound, declared if known else None, parameters.window_size)


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.none: _copy,
    Codec.gzip: _gzip_compress,
    Codec.snappy: _snappy_compress,
    Codec.lz4: _lz4_compress,
    Codec.zstd: _zstd_compress,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[memoryview, int], Decompressed]]] = {
    Codec.none: _check_size,
    Codec.gzip: _gzip_decompress,
    Codec.snappy: _snappy_decompress,
    Codec.lz4: _lz4_decompress,
    Codec.zstd: _zstd_decompress,
}
