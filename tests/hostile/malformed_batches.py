"""Batches with one malformed field and a valid CRC."""

from __future__ import annotations

import struct

import crc32c

from kafka_async.records.batch import assign_offsets, encode_batch
from kafka_async.records.compression import Codec, compress
from tests.kernel.malformed_records import SECRET
from tests.kernel.wire import record

LENGTH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA, TIME, COUNT = 8, 16, 17, 21, 23, 27, 57


def records(count: int = 5) -> list[bytes]:
    """Return records with deltas from 0 on, each with 100 secret bytes."""
    return [record(delta=n, value=SECRET[100 * n : 100 * n + 100]) for n in range(count)]


def batch(
    *parts: bytes,
    base: int = 5,
    count: int | None = None,
    codec: Codec = Codec.none,
    payload: bytes | None = None,
) -> bytes:
    """Return a batch with five offsets from `base` on; `payload` replaces its records."""
    section = b"".join(parts or records())
    made = encode_batch(
        compress(codec, section) if payload is None else payload,
        codec=codec,
        count=(len(parts) or 5) if count is None else count,
        base_timestamp=5_000,
        max_timestamp=9_000,
    )
    return assign_offsets(with_field(made, LAST_DELTA, ">i", 4), base, 0)


def with_field(made: bytes, at: int, code: str, value: int) -> bytes:
    """Return a batch with one field changed and the CRC updated."""
    out = bytearray(made)
    struct.pack_into(code, out, at, value)
    struct.pack_into(">I", out, CRC, crc32c.crc32c(bytes(out[ATTRIBUTES:])))
    return bytes(out)


def flipped(data: bytes, at: int) -> bytes:
    """Return the bytes with one bit changed."""
    out = bytearray(data)
    out[at] ^= 0x40
    return bytes(out)
