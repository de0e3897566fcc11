"""Encodes records field by field, so that tests can make each field invalid."""

from __future__ import annotations

from kafka_async.kernel import Section


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def encoded_headers(*headers: tuple[str | bytes, bytes | None]) -> bytes:
    """Encode the number of headers and the headers."""
    names = [name.encode() if isinstance(name, str) else name for name, _ in headers]
    fields = [field(name) + field(value) for name, (_, value) in zip(names, headers, strict=True)]
    return varint(len(headers)) + b"".join(fields)


def record(
    *,
    delta: int = 0,
    time: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"value",
    headers: bytes = b"\0",
    tail: bytes = b"",
    length: int | None = None,
) -> bytes:
    """Encode a record; `headers` includes their count, `length` replaces the correct length."""
    body = b"\0" + varint(time) + varint(delta) + field(key) + field(value) + headers + tail
    return varint(len(body) if length is None else length) + body


def section(*records: bytes, count: int | None = None, base: int = 1000, last: int = 99) -> Section:
    """Return a section that allows gaps between offsets, as compaction leaves them."""
    number = len(records) if count is None else count
    return Section(b"".join(records), number, base, last, 5_000, 9_000, 0)
