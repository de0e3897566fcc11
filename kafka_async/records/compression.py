"""The five codecs of record batches, with decompression that a hostile batch cannot blow up.

Every decompressor stops at `limit`: it produces output piece by piece, or knows a tight bound of it
from the compressed blocks before it allocates; a size that the data merely declares is never
allocated on its word, and nothing large is held twice. Output is always fresh, and cut to what was
produced (CVE-2025-66566). What is not a complete, well-formed stream, to its last byte, is
CorruptRecordError. The packages behind the codecs are imported when first needed.
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
"""A decompressed records section; nobody changes it."""

MAX_DECOMPRESSED_BYTES_PER_BATCH: Final = 128 * 1024 * 1024
"""What a batch may decompress to, in bytes, if nobody says otherwise."""
MAX_DECOMPRESSED_BYTES_PER_CALL: Final = 4 * MAX_DECOMPRESSED_BYTES_PER_BATCH
"""What the batches that are read in one call may decompress to, in bytes, all together."""
MAX_SCANNED_BLOCKS: Final = 64
"""Blocks that are looked at to learn a size: a batch of 1 MiB has 8 of zstd, 32 of snappy."""


class Codec(enum.IntEnum):
    """A codec, by its number in the batch's attributes and its name in the configuration."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


_EFFORTS: Final[dict[int, int]] = {Codec.gzip: 16, Codec.snappy: 4, Codec.lz4: 2}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress a records section the way Kafka's Java clients can read it.

    `level` None is the codec's own default; none and snappy have no levels. Raises
    InvalidConfigurationError if the codec's package is not installed.
    """
    return _COMPRESSORS[codec](data, level)


def decompress(
    codec: Codec, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES_PER_BATCH
) -> Decompressed:
    """Decompress a records section of at most `limit` bytes.

    Raises CorruptRecordError if it is larger, cut off, followed by other bytes, or no such stream;
    InvalidConfigurationError if the codec's package is not installed.
    """
    return _DECOMPRESSORS[codec](memoryview(data), limit)


def content_size(
    codec: int, data: memoryview, limit: int = MAX_DECOMPRESSED_BYTES_PER_BATCH
) -> int:
    """What the data decompresses to, in bytes, if `decompress_frames` may have it; else 0.

    That is one zstd frame that says its size: at most `limit`, and what its blocks can hold. Of
    more than WALKED blocks it is not known: looking at each takes the caller's time.
    """
    if codec != Codec.zstd:
        return 0
    try:
        frame = _zstd_alone(data)
    except InvalidConfigurationError:
        return 0
    if frame is None or "multi_decompress_to_buffer" not in _module("zstandard").backend_features:
        return 0
    size = frame.declared or 0
    sound = frame.window <= _ZSTD_WINDOW and size <= min(limit, frame.bound)
    return size if sound else 0


def decompress_frames(frames: Sequence[memoryview], sizes: Sequence[int]) -> list[memoryview]:
    """What each of some zstd frames decompresses to, all in one piece of memory.

    Python's lock is free in the meantime: a thread that decompressed one after the other would wait
    for it after each, while the event loop works. `sizes` are what `content_size` says. Raises
    CorruptRecordError if one is damaged, or has another size.
    """
    zstandard = _module("zstandard")
    try:
        made: Any = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
            list(frames), decompressed_sizes=struct.pack(f"={len(sizes)}Q", *sizes)
        )
    except zstandard.ZstdError as error:
        raise _damaged(Codec.zstd, f"holds a damaged frame ({error})") from None
    return [memoryview(segment) for segment in made]


def decompression_cost(codec: int, data: memoryview) -> int:
    """About how long decompressing takes at most: as long as zstd takes for the bytes given.

    What the data becomes is not known; most batches become several times as large. Of zstd it is
    what the blocks can hold. It is DEFAULT_LIMIT where there are too many pieces to look at: small
    ones take much longer than their bytes.
    """
    try:
        if codec == Codec.zstd:
            frame = _zstd_alone(data)
            return MAX_DECOMPRESSED_BYTES_PER_BATCH if frame is None else frame.bound
        if codec == Codec.snappy:
            _snappy_blocks(data, MAX_SCANNED_BLOCKS)
        least = _lz4_least(data) if codec == Codec.lz4 else 0
    except CorruptRecordError:
        return MAX_DECOMPRESSED_BYTES_PER_BATCH
    except InvalidConfigurationError:
        return 0
    return max(least, data.nbytes * _EFFORTS.get(codec, 0))


_LOADED: Final[dict[str, Any]] = {}


def _module(name: str) -> Any:
    # Any: lz4 has no type information, and the others must not be loaded with this module.
    loaded = _LOADED.get(name)  # import_module takes a while to find that out
    if loaded is not None:
        return loaded
    try:
        # Not from sys.modules: what another thread is importing stands there half made.
        loaded = _LOADED[name] = importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise InvalidConfigurationError(
            f"this compression needs the package {package}: pip install {package}"
        ) from error
    return loaded


def _damaged(codec: Codec, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the {codec.name} data {what}")


_MIB: Final = 1024 * 1024
_PIECE: Final = 2 * _MIB  # the most of output that is asked for at once
_SLICE: Final = _MIB // 4  # the most of input that is given at once: what is not consumed is copied
_BEGINNING: Final = 64  # and that with which a stream behind another begins: it may be as short


class _Output:
    """Collects what a stream produces, in growing pieces, and never more than the limit."""

    def __init__(self, codec: Codec, limit: int, piece: int = 0) -> None:
        self._codec = codec
        self._limit = limit
        self._piece = min(max(piece, 64 * 1024), _PIECE)
        self._total = 0
        self._parts: list[bytes] = []
        self._whole: bytearray | None = None  # of a large one, which is not to be held twice

    @property
    def left(self) -> int:
        """How much more there may be."""
        return self._limit - self._total

    def room(self) -> int:
        """How much to ask of the stream next; one byte over the limit, to tell full from over."""
        return min(self._piece, self._limit - self._total + 1)

    def add(self, part: bytes) -> None:
        """Take what the stream gave; raises CorruptRecordError if it is more than it may."""
        self._total += len(part)
        if self._total > self._limit:
            raise _damaged(self._codec, f"decompresses to more than {self._limit} bytes")
        self._piece = min(2 * self._piece, _PIECE)
        if self._whole is not None:
            self._whole += part
            return
        self._parts.append(part)
        if self._total > _PIECE and len(self._parts) > 1:
            self._whole = bytearray().join(self._parts)
            self._parts.clear()

    def join(self) -> Decompressed:
        """All of it."""
        if self._whole is not None:
            return self._whole
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


def _gzip_decompress(data: memoryview, limit: int) -> Decompressed:
    zlib = _module("zlib")
    output = _Output(Codec.gzip, limit, 4 * data.nbytes)
    at = 0
    most = _SLICE
    more = True
    while more:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            given = data[at : at + most]
            most = min(2 * most, _SLICE)
            try:
                part = stream.decompress(given, output.room())
            except zlib.error as error:
                raise _damaged(Codec.gzip, f"is no gzip stream ({error})") from None
            left = stream.unused_data if stream.eof else stream.unconsumed_tail
            consumed = given.nbytes - len(left)
            at += consumed
            if part:
                output.add(part)
            elif not (consumed or stream.eof):
                raise _damaged(Codec.gzip, "ends before its end mark")
        most = _BEGINNING
        more = at < data.nbytes
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


def _snappy_decompress(data: memoryview, limit: int) -> Decompressed:
    # What the blocks declare is added up before any is read: too much is refused at no cost.
    cramjam = _module("cramjam")
    snappy = cramjam.snappy
    blocks = _snappy_blocks(data)
    sizes = [_snappy_size(cramjam, block) for block in blocks]
    total = sum(sizes)
    if total > limit:
        raise _damaged(Codec.snappy, f"decompresses to more than {limit} bytes")
    try:
        if len(blocks) == 1 and total <= _PIECE:
            return bytes(snappy.decompress_raw(blocks[0]))
        whole = bytearray(total)
        room = memoryview(whole)
        for block, size in zip(blocks, sizes, strict=True):
            snappy.decompress_raw_into(block, room[:size])  # all of it, or it is an error
            room = room[size:]
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.snappy, f"is no snappy block ({error})") from None
    return whole


def _snappy_blocks(data: memoryview, most: int = sys.maxsize) -> list[memoryview]:
    """The blocks of raw snappy, if they are no more."""
    if data[: len(_XERIAL_MAGIC)].tobytes() != _XERIAL_MAGIC:
        return [data]
    if data.nbytes < _XERIAL_HEADER.size:
        raise _damaged(Codec.snappy, "ends inside its header")
    _, _, compatible = _XERIAL_HEADER.unpack_from(data)
    if compatible > _XERIAL_VERSION:
        raise _damaged(Codec.snappy, f"needs a reader of version {compatible}")
    blocks: list[memoryview] = []
    at = _XERIAL_HEADER.size
    while at < data.nbytes:
        if data.nbytes - at < _BLOCK_LENGTH.size:
            raise _damaged(Codec.snappy, "ends inside a block's length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 < length <= data.nbytes - at:
            raise _damaged(Codec.snappy, "has a block of an impossible length")
        blocks.append(data[at : at + length])
        at += length
        if len(blocks) > most:
            raise _damaged(Codec.snappy, "has too many blocks")
    return blocks


def _snappy_size(cramjam: Any, block: memoryview) -> int:
    """What a block declares to hold, if it can."""
    try:
        declared = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.snappy, f"is no snappy block ({error})") from None
    if declared > _SNAPPY_MAX_RATIO * block.nbytes:
        raise _damaged(Codec.snappy, "declares more than it can hold")
    return declared


# -- lz4 ------------------------------------------------------------------------------------------


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    # Java's reader takes independent blocks only, of any of the four sizes. Of 64 KiB, as it writes
    # them itself, they take lz4 twice the time a byte: it looks for shorter matches in them.
    frame = _module("lz4.frame")
    return frame.compress(
        data,
        compression_level=level or 0,
        block_size=frame.BLOCKSIZE_MAX256KB,
        block_linked=False,
        store_size=False,
    )


_LZ4_FLAGS_AT: Final = 4  # after the frame's magic number
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_HAS_CHECKSUM: Final = 0x04
_LZ4_HAS_SIZE: Final = 0x08
_LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_START: Final = struct.Struct("<4xBB")
_LZ4_BLOCK: Final = struct.Struct("<I")


def _lz4_decompress(data: memoryview, limit: int) -> Decompressed:
    frame = _module("lz4.frame")
    output = _Output(Codec.lz4, limit, 4 * data.nbytes)
    at = 0
    most = _SLICE
    more = True
    while more:
        # The library passes over the dictionary's id and decodes without it.
        if at + _LZ4_FLAGS_AT < data.nbytes and data[at + _LZ4_FLAGS_AT] & _LZ4_HAS_DICTIONARY:
            raise _damaged(Codec.lz4, "needs a dictionary")
        stream = frame.LZ4FrameDecompressor()
        while not stream.eof:
            given = data[at : at + most] if stream.needs_input else data[:0]
            most = min(2 * most, _SLICE)
            try:
                part = stream.decompress(given, max_length=output.room())
            except RuntimeError as error:
                raise _damaged(Codec.lz4, f"is no lz4 frame ({error})") from None
            at += given.nbytes
            if part:
                output.add(part)
            elif at == data.nbytes and stream.needs_input and not stream.eof:
                raise _damaged(Codec.lz4, "ends before its end mark")
        at -= len(stream.unused_data or b"")
        most = _BEGINNING
        more = at < data.nbytes
    return output.join()


def _lz4_least(data: memoryview) -> int:
    """What one frame of few blocks holds at least: all but the last of them are full.

    Raises CorruptRecordError if the data is not that.
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
            at += (length & 0x7FFF_FFFF) + trailer
    except struct.error:  # it ends before
        pass
    raise _damaged(Codec.lz4, "is not one frame of few blocks")


# -- zstd -----------------------------------------------------------------------------------------

_ZSTD_DEFAULT_LEVEL: Final = 3
_ZSTD_MAX_BLOCK: Final = 128 * 1024
_ZSTD_WINDOW: Final = 8 * _MIB  # that of level 19; the levels above it have up to 128 MiB
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
    more = True
    while more:
        over = ""
        try:
            frame = _zstd_frame(data, at)
            # The library keeps a window beside its output, as large as the frame asks for.
            most = output.left if frame.window <= _ZSTD_WINDOW else output.left // 2
            if frame.declared is not None and frame.declared > min(frame.bound, most):
                raise _damaged(
                    Codec.zstd, f"declares {frame.declared} bytes, more than it may hold"
                )
            if frame.bound > most:
                over = f", or decompresses to more than {most} bytes"
            # At least 1: to zstandard 0 means "whatever the frame declares".
            room = max(1, min(frame.bound, most))
            output.add(decompressor.decompress(data[at : frame.end], max_output_size=room))
        except zstandard.ZstdError as error:
            raise _damaged(Codec.zstd, f"is no zstd frame ({error}){over}") from None
        at = frame.end
        more = at < data.nbytes
    return output.join()


class _ZstdFrame(NamedTuple):
    """Where a frame ends, the most that its blocks can hold, what it declares, its window."""

    end: int
    bound: int
    declared: int | None
    window: int


def _zstd_alone(data: memoryview) -> _ZstdFrame | None:
    """What there is to know of the one frame that the data is; None if that is not soon known."""
    zstandard = _module("zstandard")
    try:
        frame = _zstd_frame(data, 0, MAX_SCANNED_BLOCKS)
    except (CorruptRecordError, zstandard.ZstdError):
        return None
    return frame if frame.end == data.nbytes else None


def _zstd_frame(data: memoryview, at: int, blocks: int = sys.maxsize) -> _ZstdFrame:
    """What there is to know of the frame at `at` before it is read, if it has no more blocks.

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
        if not blocks:
            raise _damaged(Codec.zstd, "has too many blocks")
        blocks -= 1
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
    return _ZstdFrame(at, bound, declared if known else None, parameters.window_size)


_COMPRESSORS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.none: _copy,
    Codec.gzip: _gzip_compress,
    Codec.snappy: _snappy_compress,
    Codec.lz4: _lz4_compress,
    Codec.zstd: _zstd_compress,
}
_DECOMPRESSORS: Final[dict[Codec, Callable[[memoryview, int], Decompressed]]] = {
    Codec.none: _take,
    Codec.gzip: _gzip_decompress,
    Codec.snappy: _snappy_decompress,
    Codec.lz4: _lz4_decompress,
    Codec.zstd: _zstd_decompress,
}
