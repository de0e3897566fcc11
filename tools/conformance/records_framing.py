"""Extracts the framing of compressed data, as far as all writers must agree on it.

The compression of a block may differ between writers. The headers and the sizes of blocks may not:
other clients depend on them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafka_async.records.compression import Codec, xxh32

if TYPE_CHECKING:
    from collections.abc import Callable

_XERIAL_HEADER: Final = 16
_LENGTH: Final = struct.Struct(">i")
_LZ4_FLAGS_AT: Final = 4
_LZ4_BLOCK_SIZE_AT: Final = 5
_LZ4_BLOCK_SIZES: Final = (0x40, 0x50, 0x60, 0x70)
_GZIP_HEADER: Final = 4
_ZSTD_MAGIC: Final = 4


def framing(codec: Codec, data: bytes) -> dict[str, Any]:
    """Return the properties that must be equal in two writers' compressed data."""
    return _FRAMINGS[codec](data)


def _snappy(data: bytes) -> dict[str, Any]:
    """Return the header of snappy-java and the uncompressed size of each block."""
    sizes: list[int] = []
    at = _XERIAL_HEADER
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        sizes.append(_varint(data, at))
        at += length
    return {"header": data[:_XERIAL_HEADER], "blocks": sizes}


def _varint(data: bytes, at: int) -> int:
    """Read the uncompressed size at the beginning of a snappy block."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value
        at, shift = at + 1, shift + 7


def _lz4(data: bytes) -> dict[str, Any]:
    """Return the frame's magic and flags, and the validity of block size and header checksum.

    Readers accept all four block sizes: Java writes 64 KiB, we write 256 KiB in larger batches.
    """
    block_size, checksum = data[_LZ4_BLOCK_SIZE_AT : _LZ4_BLOCK_SIZE_AT + 2]
    return {
        "header": data[:_LZ4_BLOCK_SIZE_AT],
        "valid block size": block_size in _LZ4_BLOCK_SIZES,
        "valid checksum": checksum
        == xxh32(data[_LZ4_FLAGS_AT : _LZ4_BLOCK_SIZE_AT + 1]) >> 8 & 0xFF,
    }


def _gzip(data: bytes) -> dict[str, Any]:
    """Return magic, method and flags; the rest of the header depends on the writer and the time."""
    return {"header": data[:_GZIP_HEADER]}


def _zstd(data: bytes) -> dict[str, Any]:
    return {"magic": data[:_ZSTD_MAGIC]}


_FRAMINGS: Final[dict[Codec, Callable[[bytes], dict[str, Any]]]] = {
    Codec.gzip: _gzip,
    Codec.snappy: _snappy,
    Codec.lz4: _lz4,
    Codec.zstd: _zstd,
}
