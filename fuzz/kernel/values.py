"""The target "values": varints, hashes, and the kernel's records and deliveries."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuzz.kernel.inputs import InputReader
from fuzz.kernel.oracle import RaisedError, fields, require, require_equal, result_of

if TYPE_CHECKING:
    from fuzz.kernel.kernel_pair import KernelPair


def prepare(data: bytes) -> bytes:
    """Return the input."""
    return data


def run(kernel: Any, data: bytes) -> int:
    """Call the kernel without checks; return the size of the input."""
    _results(kernel, data)
    return len(data)


def check(pair: KernelPair, data: bytes) -> None:
    """Use every small function and value; raise Finding if a promise is broken."""
    results = _results(pair.compiled, data)
    number = InputReader(data).number(8)
    encoded = pair.compiled.encode_varint(number)
    require(pair.compiled.decode_varint(encoded, 0, 64) == (number, len(encoded)), "a varint")
    if pair.due():
        pure = _results(pair.pure, data)
        for name, ours in results.items():
            require_equal(name, ours, pure[name])


def _results(kernel: Any, data: bytes) -> dict[str, object]:
    feed = InputReader(data)
    number, position, bits = feed.number(8), feed.number(1), 64 if feed.byte() & 1 else 32
    factor = feed.byte() | 1
    rest = feed.take(len(data))
    calls: dict[str, Callable[[], object]] = {
        "encode": functools.partial(kernel.encode_varint, number * factor),
        "decode": functools.partial(kernel.decode_varint, rest, position, bits),
        "murmur2": functools.partial(kernel.murmur2, memoryview(rest)),
        "record": functools.partial(_record, kernel, rest),
        "delivery": functools.partial(_delivery, kernel, number, position),
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
