"""The target "writing": fills a batch, reads it back and compares the records.

An input is a capacity, a codec, then calls: a byte that selects the call, and its arguments.
"""

from __future__ import annotations

import functools
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fuzz.inputs import InputReader
from fuzz.kernel_pair import PAIR
from fuzz.oracle import RaisedError, all_fields, require, require_equal, result_of
from fuzz.target import Target
from kafka_async import kernel
from kafka_async.kernel import Section
from kafka_async.records import compression
from kafka_async.records.batch import HEADER_SIZE, encode_batch, iter_batches
from kafka_async.records.compression import Codec

TOPIC, PARTITION, EPOCH = "topic", 7, -1
HEAD = struct.Struct("<iB")  # capacity and codec
# Arguments that are invalid for every field.
WRONG: list[Any] = [
    *(5, "text", 1.5, [1], (("name",),), ((b"name", None),), (("name", 3),), None),
    *(-2, (1 << 63) - 1, 1 << 64, -(1 << 70), True, (("a", None, 1),), object(), {}),
]
Headers = list[tuple[str, bytes | None]]
Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


Call = tuple[str, tuple[Any, ...]]
"""Name and arguments of a method of an open batch, or of `append_many` of its topic."""


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
            return ("append_many", (time, values[start:], keys and keys[start:])), time
        case 5:
            return ("extend", (feed.number(4),)), time
        case 6:
            arguments: list[Any] = [time, feed.field(), feed.field(), _headers(feed)]
            arguments[kind >> 4 & 3] = WRONG[feed.byte() % len(WRONG)]
            return ("append", tuple(arguments)), time
        case 7 if kind & 0x40:
            return ("close", ()), time
        case _:
            key = _shaped(feed.field(), kind >> 3)
            headers = _headers(feed) if kind & 2 else ()
            return ("append", (time, key, _shaped(feed.field(), kind >> 5), headers)), time


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
    for name, arguments in given.calls:
        match name:
            case "append":
                results.append(_append(batch, arguments, taken))
            case "append_many":
                results.append(_append_many(kernel, batch, arguments, taken))
            case "extend":
                results.append(result_of(functools.partial(batch.extend, *arguments), ValueError))
            case _:
                results.append(result_of(batch.close))
                section = results[-1] if section is None else section
    names = ("count", "size", "capacity", "base_timestamp", "max_timestamp", "closed")
    state = (*(getattr(batch, name) for name in names), repr(batch))
    return FilledBatch(results, taken, batch, state, batch.close() if section is None else section)


def _append(batch: Any, arguments: tuple[Any, ...], taken: list[Row]) -> object:
    before = batch.size
    # Only the call tells if all headers are valid, so the record is noted afterwards.
    found = _refused(functools.partial(batch.append, *arguments))
    if found is None or isinstance(found, RaisedError):
        require(batch.size == before, "a rejected record changed the batch")
        return found
    timestamp, key, value, headers = arguments
    pairs = tuple((name, _as_bytes(data)) for name, data in headers)
    taken.append((int(timestamp), _as_bytes(key), _as_bytes(value), pairs))
    return _handle(found)


def _append_many(kernel: Any, batch: Any, arguments: tuple[Any, ...], taken: list[Row]) -> object:
    timestamp, values, keys = arguments
    topic: Any = kernel.TopicOpenBatches()
    topic.partitions, topic.sticky_partition = 1, 0
    topic.add(0, batch)
    found: Any = _refused(functools.partial(topic.append_many, *arguments))
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


def run(data: bytes) -> None:
    """Make the calls of an input and check them."""
    check(prepare(data))


def check(given: Plan) -> None:
    """Fill a batch and read it back; raise Finding if a promise is broken."""
    filled = fill(PAIR.compiled, given)
    if isinstance(filled, FilledBatch):
        _check_round_trip(PAIR.compiled, filled, given.codec)
    if PAIR.due():
        pure = fill(PAIR.pure, given)
        if isinstance(filled, FilledBatch) and isinstance(pure, FilledBatch):
            require_equal("the results of both kernels", filled.results, pure.results)
            require_equal("the batches of both kernels", filled.state, pure.state)
            require_equal("the sections of both kernels", filled.section, pure.section)
            bounds = [_bounds(kernel, given) for kernel in (PAIR.compiled, PAIR.pure)]
            require_equal("record_size_bound of both kernels", *bounds)
        else:
            require_equal("a batch's beginning", filled, pure)


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that fills a batch of the process's kernel without checks."""
    given = prepare(data)
    return lambda: (fill(kernel, given), _bounds(kernel, given))


def size(data: bytes) -> int:
    """Return the size of the section, or of the input if that is larger."""
    filled = fill(kernel, prepare(data))
    return max(len(data), filled.size if isinstance(filled, FilledBatch) else 0)


def _bounds(kernel: Any, given: Plan) -> list[object]:
    bounds = [
        functools.partial(kernel.record_size_bound, *arguments[1:])
        for name, arguments in given.calls
        if name == "append"
    ]
    return [result_of(bound, TypeError, ValueError, AttributeError) for bound in bounds]


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


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield every call, valid and invalid, and batches for every codec."""
    head = HEAD.pack(1000, Codec.none)
    append = b"\x00\x01\x03key\x05value"
    with_headers = b"\x02\x01\xff\x05value\x02\x01h\x02hv\x02n2\xff"
    many = b"\x44\x01\x03\x01a\x00\x01b\x01\xff\x03\x01k\xff\x00\x00"
    wrong = [bytes((6 | which << 4, 1, 1, 107, 1, 118, 0, which)) for which in range(4)]
    ops = [
        append,
        with_headers,
        many,
        *wrong,
        b"\x05\x00\x10\x00\x00",
        b"\x47",
        b"\x00\x00\xfd" + b"12345678\x20\x01",
    ]
    for number, op in enumerate([*ops, append + with_headers + many]):
        yield f"call-{number}", head + op
    for codec in Codec:
        yield codec.name, HEAD.pack(100_000, codec) + append * 9
    yield "capacity", HEAD.pack(-1, Codec.none)


TARGET = Target(run, subject, size, seeds)
