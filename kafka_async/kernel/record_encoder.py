"""Encodes the fields of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.kernel.shared import MAX_RECORD_OVERHEAD, to_bytes
from kafka_async.kernel.varints import VARINTS

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafka_async.types import Headers

NULL: Final = b"\x01"  # the length -1


def encode_headers(headers: Headers) -> bytes:
    """Encode a record's headers: their count, names and values."""
    fields: list[bytes] = []
    count = 0
    for name, value in headers:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] callers err
            raise TypeError(f"a header's name is a str, not {type(name).__name__}")
        encoded = name.encode()
        fields += (VARINTS[len(encoded)], encoded)
        if value is None:
            fields.append(NULL)
        else:
            data = value if type(value) is bytes else to_bytes(value)
            fields += (VARINTS[len(data)], data)
        count += 1
    return VARINTS[count] + b"".join(fields)


def record_size_bound(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """Return an upper bound in bytes for a batch, with its header, of this record only."""
    size = 61 + MAX_RECORD_OVERHEAD
    for field in (key, value):
        size += 0 if field is None else len(to_bytes(field))
    for name, header in headers:
        size += 10 + len(name.encode()) + (0 if header is None else len(to_bytes(header)))
    return size
