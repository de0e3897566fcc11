"""Malformed records, for the tests of every level that reads them."""

from __future__ import annotations

import random

from kafka_async.kernel.shared import Corruption
from tests.kernel.wire import field, record, varint

SECRET = random.Random(64).randbytes(600)
"""Contents of the records, which can be recognised in an error."""

LONG = SECRET[:100]
FIRST = record(delta=1, value=LONG)
"""The valid record before the malformed one; the batch has the offset deltas 0 to 4."""


def framed(body: bytes) -> bytes:
    """Return a record of these bytes after its length."""
    return varint(len(body)) + body


def overlong(value: bytes, size: int) -> bytes:
    """Return a one-byte varint padded to `size` bytes."""
    return bytes([value[0] | 0x80]) + b"\x80" * (size - 2) + b"\0"


def with_length(length: int) -> bytes:
    """Return a record of 107 bytes with another length."""
    return record(delta=2, value=LONG, length=length)


def with_headers(headers: bytes) -> bytes:
    return record(delta=2, headers=headers)


RECORDS: dict[str, tuple[Corruption, bytes]] = {
    "record length negative": (Corruption.LENGTH, varint(-1) + LONG),
    "record length 0": (Corruption.TRUNCATED, varint(0)),
    "record length one too small": (Corruption.TRUNCATED, with_length(106)),
    "record length too small": (Corruption.FIELD, with_length(100)),
    "record length beyond the batch": (Corruption.LENGTH, with_length(108)),
    "record length beyond the batch, and a header's with it": (
        Corruption.LENGTH,
        record(delta=2, length=23, headers=varint(1) + field(b"a") + varint(9)),
    ),
    "record length 2^31-1": (Corruption.LENGTH, with_length(2**31 - 1)),
    "record length of 6 bytes": (Corruption.VARINT, overlong(varint(11), 6) + LONG),
    "record length cut off": (Corruption.TRUNCATED, b"\x80\x80"),
    "record length beyond 32 bits": (Corruption.VARINT, b"\xff\xff\xff\xff\x1f" + LONG),
    "offset twice": (Corruption.OFFSET_DELTA, FIRST),
    "offset going backwards": (Corruption.OFFSET_DELTA, record(delta=0, value=LONG)),
    "offset delta negative": (Corruption.OFFSET_DELTA, record(delta=-1, value=LONG)),
    "offset beyond the last": (Corruption.OFFSET_DELTA, record(delta=5, value=LONG)),
    "offset delta of 6 bytes": (
        Corruption.VARINT,
        framed(b"\0\0" + overlong(b"\4", 6) + b"\x01\x01\0"),
    ),
    "timestamp delta of 11 bytes": (
        Corruption.VARINT,
        framed(b"\0" + overlong(b"\0", 11) + b"\4\x01\x01\0"),
    ),
    "timestamp delta beyond 64 bits": (
        Corruption.VARINT,
        framed(b"\0" + b"\xff" * 9 + b"\x02" + b"\4\x01\x01\0"),
    ),
    "timestamp delta without an end": (Corruption.VARINT, framed(b"\0" + b"\xff" * 100)),
    "timestamp beyond 64 bits": (Corruption.TIMESTAMP, record(delta=2, time=2**63 - 1)),
    "key length -2": (Corruption.FIELD, framed(b"\0\0\4" + varint(-2) + LONG + b"\0" * 4)),
    "key beyond the record": (Corruption.FIELD, framed(b"\0\0\4" + varint(200) + LONG)),
    "key 2^31-1": (Corruption.FIELD, framed(b"\0\0\4" + varint(2**31 - 1) + LONG)),
    "value length -2": (Corruption.FIELD, framed(b"\0\0\4\x01" + varint(-2) + LONG + b"\0" * 3)),
    "value beyond the record": (Corruption.FIELD, framed(b"\0\0\4\x01" + varint(200) + LONG)),
    "value takes the next record": (
        Corruption.FIELD,
        framed(b"\0\0\4\x01" + varint(5) + b"\0!") + record(delta=3),
    ),
    "no header count": (Corruption.TRUNCATED, with_headers(b"")),
    "header count -1": (Corruption.HEADER_COUNT, with_headers(varint(-1) + LONG)),
    "header count -2^31": (Corruption.HEADER_COUNT, with_headers(varint(-(2**31)))),
    "header count beyond the record": (Corruption.HEADER_COUNT, with_headers(varint(1))),
    "header count 2^31-1": (Corruption.HEADER_COUNT, with_headers(varint(2**31 - 1) + LONG)),
    "null header key": (
        Corruption.HEADER,
        with_headers(varint(1) + field(None) + field(LONG)),
    ),
    "header name of length -2": (
        Corruption.HEADER,
        with_headers(varint(1) + varint(-2) + field(LONG)),
    ),
    "header name beyond the record": (
        Corruption.HEADER,
        with_headers(varint(1) + varint(200) + LONG),
    ),
    "header value of length -2": (
        Corruption.HEADER,
        with_headers(varint(1) + field(LONG) + varint(-2)),
    ),
    "header value beyond the record": (
        Corruption.HEADER,
        with_headers(varint(1) + field(b"h") + varint(200) + LONG),
    ),
    "header without a value": (
        Corruption.TRUNCATED,
        with_headers(varint(2) + field(LONG) + field(b"") + field(b"")),
    ),
    "leftover bytes in a record": (Corruption.RECORD_LEFTOVER, record(delta=2, tail=LONG)),
    "leftover bytes in the batch": (Corruption.SECTION_LEFTOVER, record(delta=2) + LONG),
}
"""The corruption and the bytes of the second record, by case."""

READABLE = {name: 2 if name == "leftover bytes in the batch" else 1 for name in RECORDS}
"""Number of records before the corruption, by case."""
