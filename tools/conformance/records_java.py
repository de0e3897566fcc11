"""Questions to Records.java about batches, and its answers.

A question is a letter and fields in network order; byte strings have four bytes of size before
them, -1 for null. Operations: W writes a batch, A assigns what a leader assigns, M, C and E write
markers, other control batches and empty ones, F compacts, R reads.
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
_SAID: Final = struct.Struct(">ii")
_INT: Final = struct.Struct(">i")

ReadRecord = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value and headers."""


class ReadBatch(NamedTuple):
    """A batch as somebody has read it; what is not there is -1."""

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
    """What the header of a batch without records says."""

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


class RecordsJudge(JavaProcess):
    """Kafka's record classes, in a process that lasts as long as the `with` block."""

    def __init__(self) -> None:
        super().__init__("Records", compile_java("Records.java"))

    def write(self, plan: Plan) -> bytes:
        """The batch as Java writes it."""
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
        """The batch as a leader writes it into its log."""
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
        """The control batch that ends a transaction."""
        place = base_offset, timestamp, leader_epoch
        return self._bytes(
            _MARKER.pack(b"M", *place, producer_id, producer_epoch, commit, coordinator_epoch)
        )

    def control(
        self, kind: int, body: bytes, *, base_offset: int, timestamp: int, leader_epoch: int
    ) -> bytes:
        """A control batch of the Raft log, with an encoded message in it."""
        return self._bytes(_CONTROL.pack(b"C", kind, base_offset, timestamp, leader_epoch) + body)

    def empty(self, batch: EmptyBatch) -> bytes:
        """A batch without records."""
        return self._bytes(_EMPTY.pack(b"E", *vars(batch).values()))

    def compact(self, batches: bytes, kept: Iterable[int], now: int, retention: int) -> bytes:
        """What Java's log cleaner leaves of batches, if only those offsets are kept."""
        offsets = list(kept)
        head = _FILTER.pack(b"F", now, retention, len(offsets))
        return self._bytes(head + struct.pack(f">{len(offsets)}q", *offsets) + batches)

    def read(self, batches: bytes) -> list[ReadBatch]:
        """The batches as Java reads them; raises JavaError if it refuses them."""
        answer = _Answer(self.ask(b"R" + batches))
        return [_batch(answer) for _ in range(answer.number())]

    def _bytes(self, question: bytes) -> bytes:
        written = _Answer(self.ask(question)).sized()
        assert written is not None
        return written


class _Answer:
    """An answer, read from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, what: struct.Struct) -> tuple[Any, ...]:
        taken = what.unpack_from(self._data, self._at)
        self._at += what.size
        return taken

    def number(self) -> int:
        return self.take(_INT)[0]

    def sized(self) -> bytes | None:
        size = self.number()
        if size < 0:
            return None
        self._at += size
        return self._data[self._at - size : self._at]


def _batch(answer: _Answer) -> ReadBatch:
    header: list[Any] = [*answer.take(_HEADER)]
    records: list[ReadRecord] = []
    for _ in range(answer.number()):
        offset, timestamp = answer.take(_PLACE)
        key, value = answer.sized(), answer.sized()
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(answer.number()):
            name = answer.sized()
            assert name is not None
            headers.append((name.decode(), answer.sized()))
        records.append((offset, timestamp, key, value, tuple(headers)))
    kind, epoch = answer.take(_SAID)
    return ReadBatch._make([*header, records, kind, epoch])


def _sized(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data
