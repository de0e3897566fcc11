"""Batches as compaction leaves them: without some of their records, also the last ones."""

from __future__ import annotations

import struct

from kafka_async.records.checksum import load_crc32c


def end_later(batch: bytes, last_offset_delta: int) -> bytes:
    """Return a batch whose last offset is behind its last record."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 23, last_offset_delta)
    struct.pack_into(">I", out, 17, load_crc32c()(out[21:]))
    return bytes(out)
