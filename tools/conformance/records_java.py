"""Record batches as Kafka's record classes write and read them."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from tools.conformance.java import JavaProcess

if TYPE_CHECKING:
    from tools.conformance.records_plan import Plan

ReadRecord = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value and headers."""


class ReadBatch(NamedTuple):
    """Decoded batch; fields that are not present are -1."""

    size: int
    magic: int
    codec: int
    timestamp_type: int
    transactional: bool
    control: bool
    base_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    horizon: int
    records_count: int
    records: list[ReadRecord]
    control_type: int
    coordinator_epoch: int


class JavaRecords(JavaProcess):
    """Kafka's record classes in a Java process, until the end of the `with` block."""

    def write(self, plan: Plan) -> bytes:
        """Return the planned batch as Java writes it."""
        return self.make("write", **asdict(plan))

    def make(self, operation: str, **arguments: Any) -> bytes:
        """Return the batches that an operation of Records.java makes."""
        return b64decode(self.call(operation, **arguments))

    def read(self, batches: bytes) -> list[ReadBatch]:
        """Return the batches as Java reads them; raise JavaError if it refuses them."""
        rows = self.call("read", batches=batches)
        for row in rows:
            row["records"] = list(map(_record, row["records"]))
        return [ReadBatch(**row) for row in rows]


def _record(row: Any) -> ReadRecord:
    offset, timestamp, key, value, headers = row
    pairs = tuple((name, _data(text)) for name, text in headers)
    return offset, timestamp, _data(key), _data(value), pairs


def _data(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
