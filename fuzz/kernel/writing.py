"""The target "writing": fills a batch, reads it back and compares the records.

An input is a capacity, a codec, then calls: a byte that selects the call, and its arguments.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from fuzz.kernel.inputs import InputReader
from fuzz.kernel.oracle import RaisedError, all_fields, require, require_equal, result_of
from kafka_async.kernel import Section
from kafka_async.records import compression
from kafka_async.records.batch import HEADER_SIZE, encode_batch, iter_batches
from kafka_async.records.compression import Codec

if TYPE_CHECKING:
    from fuzz.kernel.kernel_pair import KernelPair

TOPIC, PARTITION, EPOCH = "topic", 7, -1
# Arguments that are invalid for every field.
WRONG: list[Any] = [
    *(5, "text", 1.5, [1], (("name",),), ((b"name", None),), (("name", 3),), None),
    *(-2, (1 << 63) - 1, 1 << 64, -(1 << 70), True, (("a", None, 1),), object(), {}),
]
Headers = list[tuple[str, bytes | None]]
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class Append(NamedTuple):
    """Appends one record."""

    timestamp: Any
    key: Any
    value: Any
    headers: Any


class AppendMany(NamedTuple):
    """Appends several values, some of which may be invalid."""

    timestamp: int
    values: list[Any]
    keys: list[Any] | None


class Extend(NamedTuple):
    """Raises the capacity."""

    capacity: int


class Close(NamedTuple):
    """Closes the batch."""


Call = Append | AppendMany | Extend | Close


class Plan(NamedTuple):
    """Holds the calls of an input."""

    capacity: int
    codec: Codec
    calls: list[Call]


def prepare(data: bytes) -> Plan:
    """Return the calls of an input; any bytes are valid."""
    feed = InputReader(data)
    capacity = feed.number(4)
    codec = Codec(feed.byte() % len(Codec))
    calls: list[Call] = []
    time = 0
    while feed.left:
        call, time = _call(feed, time)
        calls.append(call)
    return Plan(capacity, codec, calls)


def _call(feed: InputReader, time: int) -> tuple[Call, int]:
    kind = feed.byte()
    time = feed.number(8) if kind & 0x80 else time + feed.number(1)
    match kind & 7:
        case 4:
            values = [_shaped(feed.field(), feed.byte()) for _ in range(feed.byte() & 15)]
            if kind & 0x20:
                values.insert(feed.byte() % (len(values) + 1), WRONG[feed.byte() % len(WRONG)])
            keys = [feed.field() for _ in values] if kind & 0x40 else None
            start = feed.number(1)
            return AppendMany(time, values[start:], keys and keys[start:]), time
        case 5:
            return Extend(feed.number(4)), time
        case 6:
            arguments: list[Any] = [time, feed.field(), feed.field(), _headers(feed)]
            arguments[kind >> 4 & 3] = WRONG[feed.byte() % len(WRONG)]
            return Append(*arguments), time
        case 7 if kind & 0x40:
            return Close(), time
        case _:
            key = _shaped(feed.field(), kind >> 3)
            headers = _headers(feed) if kind & 2 else ()
            return Append(time, key, _shaped(feed.field(), kind >> 5), headers), time


def _headers(feed: InputReader) -> Headers:
    def name() -> str:
        return feed.take(feed.byte() & 31).decode(errors="surrogateescape")

    return [(name(), feed.field()) for _ in range(feed.byte() & 7)]


def _shaped(field: bytes | None, shape: int) -> Any:
    # All types that callers may pass for bytes.
    if field is None:
        return None
    match shape & 3:
        case 1:
            return memoryview(field)[::2]
        case 2:
            return bytearray(field)
        case 3:
            return array("H", field[: len(field) & ~1])
        case _:
            return field


def _as_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(memoryview(value))


class FilledBatch(NamedTuple):
    """Holds the result of each call, the appended records, and the batch."""

    results: list[object]
    taken: list[Row]
    batch: Any
    state: tuple[object, ...]
    section: object

    @property
    def size(self) -> int:
        """Size of the section in bytes."""
        return len(self.section) if isinstance(self.section, bytes) else 0


def fill(kernel: Any, given: Plan) -> FilledBatch | RaisedError:
    """Make the calls on one kernel."""
    batch: Any = result_of(lambda: kernel.OpenBatch(None, given.capacity), ValueError)
    if isinstance(batch, RaisedError):
        return batch
    results: list[object] = []
    taken: list[Row] = []
    section: object = None
    for call in given.calls:
        match call:
            case Append():
                results.append(_append(batch, call, taken))
            case AppendMany():
                results.append(_append_many(kernel, batch, call, taken))
            case Extend():
                results.append(result_of(functools.partial(batch.extend, *call), ValueError))
            case Close():
                results.append(result_of(batch.close))
                section = results[-1] if section is None else section
    names = ("count", "size", "capacity", "base_timestamp", "max_timestamp", "closed")
    state = (*(getattr(batch, name) for name in names), repr(batch))
    return FilledBatch(results, taken, batch, state, batch.close() if section is None else section)


def _append(batch: Any, call: Append, taken: list[Row]) -> object:
    before = batch.size
    # Only the call tells if all headers are valid, so the record is noted afterwards.
    found = _refused(functools.partial(batch.append, *call))
    if found is None or isinstance(found, RaisedError):
        require(batch.size == before, "a rejected record changed the batch")
        return found
    headers = tuple((name, _as_bytes(value)) for name, value in call.headers)
    taken.append((int(call.timestamp), _as_bytes(call.key), _as_bytes(call.value), headers))
    return _handle(found)


def _append_many(kernel: Any, batch: Any, call: AppendMany, taken: list[Row]) -> object:
    timestamp, values, keys = call
    topic: Any = kernel.TopicOpenBatches()
    topic.partitions, topic.sticky_partition = 1, 0
    topic.open(0, batch)
    found: Any = _refused(functools.partial(topic.append_many, timestamp, values, keys))
    if isinstance(found, RaisedError):
        return found
    for index in range(len(found)):
        key = None if keys is None else _as_bytes(keys[index])
        taken.append((timestamp, key, _as_bytes(values[index]), ()))
    return [_handle(delivery) for delivery in found]


def _refused(call: Callable[[], object]) -> object:
    return result_of(call, TypeError, ValueError)


def _handle(delivery: Any) -> tuple[object, ...]:
    return delivery.index, delivery.timestamp, delivery.outcome, repr(delivery)


def run(kernel: Any, given: Plan) -> int:
    """Make the calls without checks; return the size of the section."""
    filled = fill(kernel, given)
    appends = [call for call in given.calls if isinstance(call, Append)]
    result_of(lambda: [_bound(kernel, call) for call in appends])
    return filled.size if isinstance(filled, FilledBatch) else 0


def check(pair: KernelPair, data: bytes) -> None:
    """Fill a batch and read it back; raise Finding if a promise is broken."""
    given = prepare(data)
    filled = fill(pair.compiled, given)
    if isinstance(filled, FilledBatch):
        _check_round_trip(pair.compiled, filled, given.codec)
    if pair.due():
        pure = fill(pair.pure, given)
        require_equal("a batch's beginning", type(filled), type(pure))
        if isinstance(filled, FilledBatch) and isinstance(pure, FilledBatch):
            require_equal("answers", filled.results, pure.results)
            require_equal("the batch's state", filled.state, pure.state)
            require_equal("the section", filled.section, pure.section)
            require_equal("record_size_bound", *(_bounds(kernel, given) for kernel in _both(pair)))


def _both(pair: KernelPair) -> tuple[Any, Any]:
    return pair.compiled, pair.pure


def _bounds(kernel: Any, given: Plan) -> list[object]:
    appends = [call for call in given.calls if isinstance(call, Append)]
    return [_bound(kernel, call) for call in appends]


def _bound(kernel: Any, call: Append) -> object:
    _, key, value, headers = call

    def bound() -> object:
        return kernel.record_size_bound(key, value, headers)

    return result_of(bound, TypeError, ValueError, AttributeError)


def _check_round_trip(kernel: Any, filled: FilledBatch, codec: Codec) -> None:
    batch, taken, data = filled.batch, filled.taken, filled.section
    require(isinstance(data, bytes), "a section that is no bytes")
    assert isinstance(data, bytes)
    require(batch.count == len(taken), f"{batch.count} records of {len(taken)} that were taken")
    if not taken:
        require(data == b"", "an empty batch with bytes")
        return
    require(batch.max_timestamp == max(row[0] for row in taken), "another max timestamp")
    times = (batch.base_timestamp, batch.max_timestamp)
    section = Section(data, len(taken), 0, len(taken) - 1, *times, 0)
    back = all_fields(kernel.parse_records(section, TOPIC, PARTITION, EPOCH, 0))
    wanted = [_expected(offset, row) for offset, row in enumerate(taken)]
    require_equal("what was written and what is read", back, wanted)
    framed = encode_batch(
        compression.compress(codec, data),
        codec=codec,
        count=len(taken),
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
    )
    views = list(iter_batches(framed, topic=TOPIC, partition=PARTITION))
    require(len(views) == 1, "a framed batch that is not one")
    require_equal("what was framed and what is read", all_fields(views[0].records()), wanted)
    if len(taken) == 1:
        _, key, value, headers = taken[0]
        bound = kernel.record_size_bound(key, value, headers)
        require(bound >= HEADER_SIZE + len(data), "a record beyond its bound")


def _expected(offset: int, row: Row) -> tuple[object, ...]:
    timestamp, key, value, headers = row
    return (TOPIC, PARTITION, offset, timestamp, 0, key, value, headers, None)
