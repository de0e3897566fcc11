"""Queries to Records.java about batches, and their results.

A query is a letter and fields in network byte order; byte strings have a length prefix of four
bytes, -1 for null. The operations: W writes a batch, A assigns offsets like a leader, M, C and E
write transaction markers, other control batches and empty batches, F compacts, R reads.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tools.conformance.java import JavaProcess, compile_java

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.conformance.records_plan import Plan

_WRITE: Final = struct.Struct(">cbbbqqqqhi?iqi")
_PLACE: Final = struct.Struct(">qq")
_ASSIGN: Final = struct.Struct(">cqiq")
_MARKER: Final = struct.Struct(">cqqiqh?i")
_CONTROL: Final = struct.Struct(">chqqi")
_EMPTY: Final = struct.Struct(">cbqqqqhi?i?")
_FILTER: Final = struct.Struct(">cqqi")
_HEADER: Final = struct.Struct(">ibbb??qqqqhiiqi")
_CONTROL_FIELDS: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">i")

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


@dataclass(frozen=True)
class EmptyBatch:
    """Header fields of a batch without records."""

    timestamp_type: int
    base_offset: int
    last_offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    leader_epoch: int
    control: bool


class JavaRecords(JavaProcess):
    """Kafka's record classes in a Java process, until the end of the `with` block."""

    def __init__(self) -> None:
        super().__init__("Records", compile_java("Records.java"))

    def write(self, plan: Plan) -> bytes:
        """Return the planned batch as Java writes it."""
        parts = [
            _WRITE.pack(
                b"W",
                plan.magic,
                plan.codec,
                0 if plan.append_time < 0 else 1,
                plan.base_offset,
                plan.last_offset,
                plan.append_time,
                plan.producer_id,
                plan.producer_epoch,
                plan.base_sequence,
                plan.transactional,
                plan.leader_epoch,
                plan.horizon,
                len(plan.records),
            )
        ]
        for record in plan.records:
            parts.append(_PLACE.pack(record.offset, record.timestamp))
            parts += (_sized(record.key), _sized(record.value), _INT.pack(len(record.headers)))
            for name, value in record.headers:
                parts += (_sized(name.encode()), _sized(value))
        return self._bytes(b"".join(parts))

    def assign(
        self, batch: bytes, base_offset: int, leader_epoch: int, append_time: int = -1
    ) -> bytes:
        """Return the batch as a leader writes it to its log."""
        return self._bytes(_ASSIGN.pack(b"A", base_offset, leader_epoch, append_time) + batch)

    def marker(
        self,
        *,
        base_offset: int,
        timestamp: int,
        leader_epoch: int,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
    ) -> bytes:
        """Return the control batch that ends a transaction."""
        place = base_offset, timestamp, leader_epoch
        return self._bytes(
            _MARKER.pack(b"M", *place, producer_id, producer_epoch, commit, coordinator_epoch)
        )

    def control(
        self, kind: int, body: bytes, *, base_offset: int, timestamp: int, leader_epoch: int
    ) -> bytes:
        """Return a control batch of the Raft log with an encoded message."""
        return self._bytes(_CONTROL.pack(b"C", kind, base_offset, timestamp, leader_epoch) + body)

    def empty(self, batch: EmptyBatch) -> bytes:
        """Return a batch without records."""
        return self._bytes(_EMPTY.pack(b"E", *vars(batch).values()))

    def compact(self, batches: bytes, kept: Iterable[int], now: int, retention: int) -> bytes:
        """Return the batches after Java's log cleaner has kept only the offsets `kept`."""
        offsets = list(kept)
        head = _FILTER.pack(b"F", now, retention, len(offsets))
        return self._bytes(head + struct.pack(f">{len(offsets)}q", *offsets) + batches)

    def read(self, batches: bytes) -> list[ReadBatch]:
        """Return the batches as Java reads them; raise JavaError if it refuses them."""
        result = _Result(self.call(b"R" + batches))
        return [_batch(result) for _ in range(result.int32())]

    def _bytes(self, query: bytes) -> bytes:
        written = _Result(self.call(query)).sized()
        assert written is not None
        return written


class _Result:
    """Reads a result from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        fields = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return fields

    def int32(self) -> int:
        return self.unpack(_INT)[0]

    def sized(self) -> bytes | None:
        size = self.int32()
        if size < 0:
            return None
        self._position += size
        return self._data[self._position - size : self._position]


def _batch(result: _Result) -> ReadBatch:
    header: list[Any] = [*result.unpack(_HEADER)]
    records: list[ReadRecord] = []
    for _ in range(result.int32()):
        offset, timestamp = result.unpack(_PLACE)
        key, value = result.sized(), result.sized()
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(result.int32()):
            name = result.sized()
            assert name is not None
            headers.append((name.decode(), result.sized()))
        records.append((offset, timestamp, key, value, tuple(headers)))
    kind, epoch = result.unpack(_CONTROL_FIELDS)
    return ReadBatch._make([*header, records, kind, epoch])


def _sized(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data
