"""The decompressors: one byte chooses the codec, the rest is what a hostile batch would hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fuzz import captured
from fuzz.oracle import promise, refused_in_few_words
from fuzz.target import Target, functions_of
from kafka_async.errors import CorruptRecordError
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
"""What an input may decompress to here; what is measured has the product's own limit."""

_COMES_BACK: Final = 4096
"""Bytes up to which what was decompressed is compressed again."""

CODECS: Final = tuple(Codec)
_HEADER_SIZE: Final = 61


def run(data: bytes) -> None:
    """Decompress within a limit; what comes out must be all that comes out."""
    check(*_parted(data))


def check(codec: Codec, data: bytes, limit: int = LIMIT) -> Decompressed | None:
    """What `data` decompresses to, None if it is refused; every promise is held against it."""
    try:
        plain = decompress(codec, data, limit)
    except CorruptRecordError as error:
        refused_in_few_words(error, data)
        return None
    size = len(plain)
    promise(size <= limit, f"{codec.name} gave {size} bytes, {limit} were allowed")
    # Beside a large window zstd has half the room; all others take their exact size.
    room = 2 * size if codec is Codec.zstd else size
    promise(decompress(codec, data, room) == plain, f"{codec.name} refuses a size that fits")
    if size:
        promise(_refuses(codec, data, size - 1), f"{codec.name} gives more than it is allowed")
    if size <= _COMES_BACK:
        again = decompress(codec, compress(codec, plain), size)
        promise(again == plain, f"{codec.name} does not come back the same")
    return plain


def _refuses(codec: Codec, data: bytes, limit: int) -> bool:
    try:
        decompress(codec, data, limit)
    except CorruptRecordError:
        return True
    return False


def subject(data: bytes) -> Callable[[], object]:
    """Decompressing alone, within the product's own limit."""
    codec, packed = _parted(data)

    def unpack() -> object:
        try:
            return decompress(codec, packed)
        except CorruptRecordError:
            return None

    return unpack


def size(data: bytes) -> int:
    """Bytes of the input, or of what it decompresses to if that is more."""
    codec, packed = _parted(data)
    return max(len(packed), unpacked_size(codec, packed, MAX_DECOMPRESSED_BYTES_PER_BATCH))


def unpacked_size(codec: Codec, packed: bytes, limit: int) -> int:
    """Bytes that come out; of what is refused, about twice as many as come out before that."""
    try:
        return len(decompress(codec, packed, limit))
    except CorruptRecordError:
        pass
    held = 1024
    while held < limit and _too_large(codec, packed, held):
        held *= 2
    return min(held, limit)


def _too_large(codec: Codec, packed: bytes, limit: int) -> bool:
    try:
        decompress(codec, packed, limit)
    except CorruptRecordError as error:
        return "more than" in str(error)
    return False


def _parted(data: bytes) -> tuple[Codec, bytes]:
    return CODECS[data[0] % len(CODECS)] if data else Codec.none, data[1:]


def seeds() -> Iterator[tuple[str, bytes]]:
    """What Kafka's classes compressed, and our own of several kinds of data."""
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
    """What is ours of the decompressors; the libraries below are not instrumented."""
    return functions_of(compression)


TARGET = Target("compression", run, subject, size, seeds, functions, overhead=1024 * 1024)
