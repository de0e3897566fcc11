"""The five codecs of record batches, with decompression that a hostile batch cannot blow up.

Every decompressor stops at `limit`: it produces output piece by piece, or knows a tight bound of it
from the compressed blocks before it allocates; a size that the data merely declares is never
allocated on its word. What is not a complete, well-formed stream, to its last byte, is
CorruptRecordError. The packages behind the codecs are imported when first needed.
"""

from __future__ import annotations

import enum
import importlib
import struct
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import CorruptRecordError, InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

DEFAULT_LIMIT: Final = 128 * 1024 * 1024
"""What a batch may decompress to, in bytes, if nobody says otherwise."""


class Codec(enum.IntEnum):
    """A codec, by its number in the batch's attributes and its name in the configuration."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress a records section the way Kafka's Java clients can read it.

    `level` None is the codec's own default; none and snappy have no levels. Raises
    InvalidConfigurationError if the codec's package is not installed.
    """
    return _COMPRESSORS[codec](data, level)


def decompress(codec: Codec, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """Decompress a records section of at most `limit` bytes.

    Raises CorruptRecordError if it is larger, cut off, followed by other bytes, or no such stream;
    InvalidConfigurationError if the codec's package is not installed.
    """
    return _DECOMPRESSORS[codec](memoryview(data), limit)


def _module(name: str) -> Any:
    # Any: lz4 has no type information, and the others must not be loaded with this module.
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InvalidConfigurationError(
            f"this compression needs the package {package}: pip install {package}"
        ) from error


def _damaged(codec: Codec, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the {codec.name} data {what}")


class _Output:
    """Collects what a stream produces, in growing pieces, and never more than the limit."""

    def __init__(self, codec: Codec, limit: int, piece: int) -> None:
        self._codec = codec
        self._limit = limit
        self._piece = max(piece, 64 * 1024)
        self._total = 0
        self._parts: list[bytes] = []

    def room(self) -> int:
        """How much to ask of the stream next; one byte over the limit, to tell full from over."""
        return min(self._piece, self._limit - self._total + 1)

    def add(self, part: bytes) -> None:
        """Take what the stream gave for `room()`; nothing means that its input ran out."""
        if not part:
            raise _damaged(self._codec, "ends before its end mark")
        self._total += len(part)
        if self._total > self._limit:
            raise _damaged(self._codec, f"decompresses to more than {self._limit} bytes")
        self._piece *= 2
        self._parts.append(part)

    def join(self) -> bytes:
        """All of it."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


# -- none -----------------------------------------------------------------------------------------


def _copy(data: Buffer, level: int | None) -> bytes:
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def _take(data: memoryview, limit: int) -> bytes:
    if data.nbytes > limit:
        raise CorruptRecordError(f"the records are larger than {limit} bytes")
    return bytes(data)


# -- gzip -----------------------------------------------------------------------------------------

_GZIP_WINDOW: Final = 31  # zlib's way to say: the largest window, in gzip's framing


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    zlib = _module("zlib")
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def _gzip_decompress(data: memoryview, limit: int) -> bytes:
    zlib = _module("zlib")
    output = _Output(Codec.gzip, limit, 4 * data.nbytes)
    rest: Buffer = data
    more = True
    while more:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            try:
                part = stream.decompress(rest, output.room())
            except zlib.error as error:
                raise _damaged(Codec.gzip, f"is no gzip stream ({error})") from None
            rest = stream.unconsumed_tail
            if part or not stream.eof:
                output.add(part)
        rest = stream.unused_data
        more = bool(rest)
    return output.join()


# -- snappy ---------------------------------------------------------------------------------------

# The framing of xerial's snappy-java, which is what Kafka's Java clients read and write: a header,
# then blocks, each a big-endian length and raw snappy. librdkafka writes one raw block without it.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_VERSION: Final = 1
_XERIAL_BLOCK: Final = 32 * 1024
_BLOCK_LENGTH: Final = struct.Struct(">i")
# A copy of 64 bytes takes three: snappy cannot do better, so whoever declares more lies.
_SNAPPY_MAX_RATIO: Final = 22


def _snappy_compress(data: Buffer, level: int | None) -> bytes:
    raw = _module("cramjam").snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for at in range(0, view.nbytes, _XERIAL_BLOCK):
        block = bytes(raw(view[at : at + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit)
    if data.nbytes < _XERIAL_HEADER.size:
        raise _damaged(Codec.snappy, "ends inside its header")
    _, _, compatible = _XERIAL_HEADER.unpack_from(data)
    if compatible > _XERIAL_VERSION:
        raise _damaged(Codec.snappy, f"needs a reader of version {compatible}")
    parts: list[bytes] = []
    at = _XERIAL_HEADER.size
    while at < data.nbytes:
        if data.nbytes - at < _BLOCK_LENGTH.size:
            raise _damaged(Codec.snappy, "ends inside a block's length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= data.nbytes - at:
            raise _damaged(Codec.snappy, "has a block of an impossible length")
        parts.append(_snappy_block(data[at : at + length], limit))
        limit -= len(parts[-1])
        at += length
    return b"".join(parts)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    cramjam = _module("cramjam")
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
        if declared > limit:
            raise _damaged(Codec.snappy, f"decompresses to more than the {limit} bytes left to it")
        if declared > _SNAPPY_MAX_RATIO * block.nbytes:
            raise _damaged(Codec.snappy, "declares more than it can hold")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.snappy, f"is no snappy block ({error})") from None


# -- lz4 ------------------------------------------------------------------------------------------


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    # Java's reader takes independent blocks only.
    frame = _module("lz4.frame")
    return frame.compress(
        data,
        compression_level=level or 0,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


def _lz4_decompress(data: memoryview, limit: int) -> bytes:
    frame = _module("lz4.frame")
    output = _Output(Codec.lz4, limit, 4 * data.nbytes)
    rest: Buffer = data
    more = True
    while more:
        stream = frame.LZ4FrameDecompressor()
        while not stream.eof:
            try:
                part = stream.decompress(rest, max_length=output.room())
            except RuntimeError as error:
                raise _damaged(Codec.lz4, f"is no lz4 frame ({error})") from None
            rest = b""
            if part or not stream.eof:
                output.add(part)
        rest = stream.unused_data or b""
        more = bool(rest)
    return output.join()


# -- zstd -----------------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_MAX_BLOCK: Final = 128 * 1024
_ZSTD_RLE_BLOCK: Final = 1
_ZSTD_COMPRESSED_BLOCK: Final = 2
_ZSTD_RESERVED_BLOCK: Final = 3


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    zstandard = _module("zstandard")
    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    return zstandard.ZstdCompressor(level=level).compress(data)


def _zstd_decompress(data: memoryview, limit: int) -> bytes:
    zstandard = _module("zstandard")
    decompressor = zstandard.ZstdDecompressor()
    parts: list[bytes] = []
    at = 0
    more = True
    while more:
        try:
            end, bound, declared = _zstd_frame(data, at)
            if declared is not None and declared > min(bound, limit):
                raise _damaged(Codec.zstd, f"declares {declared} bytes, more than it may hold")
            # At least 1: to zstandard 0 means "whatever the frame declares".
            room = max(1, min(bound, limit))
            parts.append(decompressor.decompress(data[at:end], max_output_size=room))
        except zstandard.ZstdError as error:
            over = f", or decompresses to more than {limit} bytes" if limit < DEFAULT_LIMIT else ""
            raise _damaged(Codec.zstd, f"is no zstd frame ({error}){over}") from None
        limit -= len(parts[-1])
        at = end
        more = at < data.nbytes
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_frame(data: memoryview, at: int) -> tuple[int, int, int | None]:
    """Where a frame ends, the most that its blocks can hold, and what it declares to hold.

    The library's streaming readers take a cut-off frame for a complete one, and its one-shot reader
    allocates what the frame declares; walking the blocks' headers answers both.
    """
    zstandard = _module("zstandard")
    parameters = zstandard.get_frame_parameters(data[at:])
    if parameters.dict_id:
        raise _damaged(Codec.zstd, "needs a dictionary")
    at += zstandard.frame_header_size(data[at:])
    bound = 0
    last = 0
    while not last:
        if data.nbytes - at < 3:
            raise _damaged(Codec.zstd, "ends before its last block")
        block = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == _ZSTD_RESERVED_BLOCK or size > _ZSTD_MAX_BLOCK:
            raise _damaged(Codec.zstd, "has a block of an impossible kind or size")
        bound += _ZSTD_MAX_BLOCK if kind == _ZSTD_COMPRESSED_BLOCK else size
        at += 3 + (1 if kind == _ZSTD_RLE_BLOCK else size)
    at += 4 if parameters.has_checksum else 0
    if at > data.nbytes:
        raise _damaged(Codec.zstd, "ends inside a block")
    declared = parameters.content_size
    known = declared != zstandard.CONTENTSIZE_UNKNOWN
    return at, bound, declared if known else None


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.none: _copy,
    Codec.gzip: _gzip_compress,
    Codec.snappy: _snappy_compress,
    Codec.lz4: _lz4_compress,
    Codec.zstd: _zstd_compress,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[memoryview, int], bytes]]] = {
    Codec.none: _take,
    Codec.gzip: _gzip_decompress,
    Codec.snappy: _snappy_decompress,
    Codec.lz4: _lz4_decompress,
    Codec.zstd: _zstd_decompress,
}
