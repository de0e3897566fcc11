"""The framing that codecs put around their blocks, as far as every writer must agree on it.

How well a block is compressed is each writer's own affair; in what blocks, and with which header,
decides whether other clients can read it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafka_async.records.compression import Codec
from kafka_async.records.lz4_header import xxh32

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
    """What must be equal in two writers' data of the same contents."""
    return _FRAMINGS[codec](data)


def _snappy(data: bytes) -> dict[str, Any]:
    """Snappy-java's header, and the size of what each of its blocks holds."""
    sizes: list[int] = []
    at = _XERIAL_HEADER
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        sizes.append(_varint(data, at))
        at += length
    return {"header": data[:_XERIAL_HEADER], "blocks": sizes}


def _varint(data: bytes, at: int) -> int:
    """The size that a block of snappy begins with."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value
        at, shift = at + 1, shift + 7


def _lz4(data: bytes) -> dict[str, Any]:
    """The frame's magic and flags, and that block size and header checksum are legal.

    Readers take blocks of any of the four sizes: Java writes 64 KiB, we 256 where a batch has more.
    """
    block_size, checksum = data[_LZ4_BLOCK_SIZE_AT : _LZ4_BLOCK_SIZE_AT + 2]
    return {
        "header": data[:_LZ4_BLOCK_SIZE_AT],
        "legal block size": block_size in _LZ4_BLOCK_SIZES,
        "right checksum": checksum
        == xxh32(data[_LZ4_FLAGS_AT : _LZ4_BLOCK_SIZE_AT + 1]) >> 8 & 0xFF,
    }


def _gzip(data: bytes) -> dict[str, Any]:
    """Magic, method and flags; the rest says who wrote it and when."""
    return {"header": data[:_GZIP_HEADER]}


def _zstd(data: bytes) -> dict[str, Any]:
    return {"magic": data[:_ZSTD_MAGIC]}


_FRAMINGS: Final[dict[Codec, Callable[[bytes], dict[str, Any]]]] = {
    Codec.gzip: _gzip,
    Codec.snappy: _snappy,
    Codec.lz4: _lz4,
    Codec.zstd: _zstd,
}
