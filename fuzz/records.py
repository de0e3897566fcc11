"""Encoded records for the seeds, and libFuzzer's dictionary."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka_async.records.batch import encode_batch
from tests.kernel.wire import encoded_headers, field, record, varint

if TYPE_CHECKING:
    from kafka_async.records.compression import Codec

TIME: Final = 1_700_000_000_000
LARGE: Final = 64 * 1024


def framed(payload: bytes, codec: Codec, count: int) -> bytes:
    """Return a batch of records that are already compressed."""
    return encode_batch(
        payload, codec=codec, count=count, base_timestamp=TIME, max_timestamp=TIME + 4
    )


def large_sections(large: int = LARGE) -> Iterator[tuple[bytes, int]]:
    """Yield records of `large` bytes and their number, the worst of each kind."""
    for key, value in ((None, None), (b"", b""), (b"ab", b"cd"), (b"x" * 100, b"y" * 1000)):
        records: list[bytes] = []
        size = 0
        while size < large - 1200:
            records.append(record(key=key, value=value, delta=len(records)))
            size += len(records[-1])
        yield b"".join(records), len(records)
    # Headers grow most when they become objects: from two bytes to a tuple. Consecutive headers
    # differ, because the kernel shares the objects of equal ones.
    high = [bytes([byte]) for byte in range(0x80, 0x100)]  # none is valid UTF-8
    short = [b"%02x" % number for number in range(256)]
    kinds: list[tuple[list[bytes], list[bytes | None]]] = [
        ([b""], [None]),
        ([b"n", b"m"], [b"v"]),
        ([b"", b"a", b"b"], [None, b""]),
        (short, [None]),
        (high, [None]),
        (high, [b"v"]),
        (high, [*short]),
        ([b"\xc4" + one for one in high[:64]], [None]),
        ([b"\xc4" + one for one in high[:64]], [b"vw"]),
        ([one + other for one in high for other in high], [None]),
        ([b"%03x" % number for number in range(4096)], [None]),
    ]
    for names, values in kinds:
        count = (large - 100) // (len(field(names[-1])) + len(field(values[-1])))
        pairs = zip(itertools.cycle(names), itertools.cycle(values), strict=False)
        headers = encoded_headers(*itertools.islice(pairs, count))
        yield record(value=None, headers=headers), 1
    yield record(value=b"v" * (large - 100)), 1


def dictionary() -> str:
    """Return libFuzzer's dictionary: varints, fields and boundary values."""
    edges = [0, -1, 1, -2, 63, 64, -64, 127, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
    words = [varint(edge) for edge in edges]
    words += [struct.pack("<q", edge) for edge in edges]
    words += [struct.pack(">i", edge) for edge in edges if -(1 << 31) <= edge < 1 << 31]
    words += [b"\x80", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x02"]
    words += [record(value=None), record(key=b"k", value=b"v")]
    words += [record(value=None, headers=encoded_headers((b"h", b"v"), (b"\xff", None)))]
    escaped = ("".join(f"\\x{byte:02x}" for byte in word) for word in dict.fromkeys(words))
    return "".join(f'"{word}"\n' for word in escaped)
