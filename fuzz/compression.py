"""The target "compression": one byte selects the codec, the rest is decompressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fuzz import captured
from fuzz.oracle import RaisedError, require, result_of
from fuzz.target import Target, functions_of
from kafka_async.records import compression
from kafka_async.records.batch import BatchHeader
from kafka_async.records.compression import (
    MAX_DECOMPRESSED_BYTES_PER_BATCH,
    Codec,
    compress,
    decompress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

    from kafka_async.records.compression import Decompressed

LIMIT: Final = 256 * 1024
"""Bytes to which an input may decompress here; measurements use the client's limit."""

MAX_ROUND_TRIP_BYTES: Final = 4096
"""Decompressed bytes up to which the round trip is checked."""

CODECS: Final = tuple(Codec)
_HEADER_SIZE: Final = 61


def run(data: bytes) -> None:
    """Decompress within a limit and check every promise."""
    check(*_split_input(data))


def check(codec: Codec, data: bytes, limit: int = LIMIT) -> Decompressed | None:
    """Decompress `data` and check every promise; return None if it is corrupt."""
    plain: Any = result_of(lambda: decompress(codec, data, limit), data=data)
    if isinstance(plain, RaisedError):
        require(plain.kind == "CorruptRecordError", f"{codec.name} raised {plain.kind}")
        return None
    size = len(plain)
    require(size <= limit, f"{codec.name} gave {size} bytes, {limit} were allowed")
    # With a large window zstd may use only half of the limit; other codecs use all of it.
    room = 2 * size if codec is Codec.zstd else size
    require(decompress(codec, data, room) == plain, f"{codec.name} refuses a size that fits")
    if size:
        short = result_of(lambda: decompress(codec, data, size - 1))
        require(isinstance(short, RaisedError), f"{codec.name} gives more than it is allowed")
    if size <= MAX_ROUND_TRIP_BYTES:
        again = decompress(codec, compress(codec, plain), size)
        require(again == plain, f"{codec.name} does not come back the same")
    return plain


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that only decompresses, within the client's limit."""
    codec, packed = _split_input(data)
    return lambda: result_of(lambda: decompress(codec, packed))


def size(data: bytes) -> int:
    """Return the size of the input, or its decompressed size if that is larger."""
    codec, packed = _split_input(data)
    return max(len(packed), decompressed_size(codec, packed, MAX_DECOMPRESSED_BYTES_PER_BATCH))


def decompressed_size(codec: Codec, packed: bytes, limit: int) -> int:
    """Return the decompressed size; of corrupt data, up to twice what it decompresses to."""
    plain: Any = result_of(lambda: decompress(codec, packed, limit))
    if not isinstance(plain, RaisedError):
        return len(plain)
    held = 1024
    while held < limit and _too_large(codec, packed, held):
        held *= 2
    return min(held, limit)


def _too_large(codec: Codec, packed: bytes, limit: int) -> bool:
    error = result_of(lambda: decompress(codec, packed, limit))
    return isinstance(error, RaisedError) and "more than" in error.message


def _split_input(data: bytes) -> tuple[Codec, bytes]:
    return CODECS[data[0] % len(CODECS)] if data else Codec.none, data[1:]


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield data that Kafka's classes compressed, and data that we compress."""
    for name, raw in captured.batches().items():
        if raw[16] == 2 and (header := BatchHeader.unpack(raw)).is_compressed:
            yield f"java-{name}", bytes([header.codec]) + raw[_HEADER_SIZE : header.size]
    for codec in CODECS:
        plain = {"empty": b"", "one": b"x", "zeros": bytes(5000), "words": b"some words " * 40}
        for name, data in plain.items():
            packed = compress(codec, data)
            yield f"{codec.name}-{name}", bytes([codec]) + packed
            yield f"{codec.name}-{name}-twice", bytes([codec]) + packed * 2


def functions() -> Iterable[FunctionType]:
    """Return our functions; the compression libraries are not instrumented."""
    return functions_of(compression)


TARGET = Target(run, subject, size, seeds, functions, overhead=1024 * 1024)
