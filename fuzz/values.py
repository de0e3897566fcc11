"""The target "values": hashes, and the kernel's records and deliveries."""

from __future__ import annotations

import functools
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any

from fuzz.inputs import InputReader
from fuzz.kernel_pair import PAIR
from fuzz.oracle import RaisedError, fields, require, require_equal, result_of
from fuzz.target import Target
from kafka_async import kernel

ARGUMENTS = struct.Struct("<qb")
"""A delivery's timestamp and index; then comes what is hashed, which is also a record's fields."""


def run(data: bytes) -> None:
    """Use every small function and value; raise Finding if a promise is broken."""
    results = _results(PAIR.compiled, data)
    if PAIR.due():
        pure = _results(PAIR.pure, data)
        for name, ours in results.items():
            require_equal(f"{name} of both kernels", ours, pure[name])


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that uses the kernel of the process without checks."""
    return functools.partial(_results, kernel, data)


def _results(kernel: Any, data: bytes) -> dict[str, object]:
    feed = InputReader(data)
    timestamp, index = feed.number(8), feed.number(1)
    rest = feed.take(len(data))
    calls: dict[str, Callable[[], object]] = {
        "murmur2": functools.partial(kernel.murmur2, memoryview(rest)),
        "record": functools.partial(_record, kernel, rest),
        "delivery": functools.partial(_delivery, kernel, timestamp, index),
    }
    return {name: result_of(call, ValueError, OverflowError) for name, call in calls.items()}


def _record(kernel: Any, data: bytes) -> object:
    feed = InputReader(data)
    epoch = feed.number(1)
    arguments: tuple[object, ...] = (
        *("topic", feed.number(4), feed.number(8), feed.number(8), feed.byte() & 1),
        *(feed.field(), feed.field(), ((feed.take(feed.byte()).hex(), feed.field()),)),
        None if epoch < 0 else epoch,
    )
    record = kernel.Record(*arguments)
    copy = pickle.loads(pickle.dumps(record))
    require(copy == record and hash(copy) == hash(record), "a pickled record that is another")
    require(fields(record) == arguments, "a record with other fields")
    return repr(record), hash(record)


class _Outcome:
    """Implements the outcome of a batch that is done."""

    done = True

    def result(self, delivery: Any) -> object:
        """Return the fields of the delivery."""
        return delivery.index, delivery.timestamp

    def exception(self, delivery: Any) -> object:
        """Return the fields of the delivery in reverse order."""
        return delivery.timestamp, delivery.index


def _delivery(kernel: Any, timestamp: int, index: int) -> object:
    delivery = kernel.Delivery(_Outcome() if index & 1 else None, index, timestamp)
    calls = (delivery.done, delivery.result, delivery.exception)
    output = [result_of(call) for call in calls]
    require(isinstance(output[0], RaisedError) != bool(index & 1), "a delivery without its outcome")
    return output, repr(delivery)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield boundary values of a delivery, and the fields of a record."""
    for number in (0, 1, -1, (1 << 63) - 1, -(1 << 63)):
        yield str(number), ARGUMENTS.pack(number, 0)
    record = b"abcdefg\x03key\x05value\x04name\x02ab"
    yield "record", ARGUMENTS.pack(7, 1) + record


TARGET = Target(run, subject, len, seeds)
