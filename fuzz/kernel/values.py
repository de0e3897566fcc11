"""The target "values": varints, hashes, and the objects that the kernel hands out."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuzz.kernel.inputs import Feed
from fuzz.kernel.oracle import Refusal, answer, fields, holds, same

if TYPE_CHECKING:
    from fuzz.kernel.twins import Twins


def prepare(data: bytes) -> bytes:
    """The input itself."""
    return data


def run(kernel: Any, data: bytes) -> int:
    """Only the kernel's work; gives the bytes that it was about."""
    _answers(kernel, data)
    return len(data)


def check(twins: Twins, data: bytes) -> None:
    """Use every small function and value; raise Finding where something does not hold."""
    answers = _answers(twins.compiled, data)
    number = Feed(data).number(8)
    encoded = twins.compiled.encode_varint(number)
    holds(twins.compiled.decode_varint(encoded, 0, 64) == (number, len(encoded)), "a varint")
    if twins.due():
        pure = _answers(twins.pure, data)
        for name, ours in answers.items():
            same(name, ours, pure[name])


def _answers(kernel: Any, data: bytes) -> dict[str, object]:
    feed = Feed(data)
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
    return {name: answer(call, ValueError, OverflowError) for name, call in calls.items()}


def _record(kernel: Any, data: bytes) -> object:
    feed = Feed(data)
    epoch = feed.number(1)
    arguments: tuple[object, ...] = (
        *("topic", feed.number(4), feed.number(8), feed.number(8), feed.byte() & 1),
        *(feed.field(), feed.field(), ((feed.take(feed.byte()).hex(), feed.field()),)),
        None if epoch < 0 else epoch,
    )
    record = kernel.Record(*arguments)
    copy = pickle.loads(pickle.dumps(record))
    holds(copy == record and hash(copy) == hash(record), "a pickled record that is another")
    holds(fields(record) == arguments, "a record with other fields")
    return repr(record), hash(record)


class _Outcome:
    """A batch's outcome, as handles ask for it."""

    done = True

    def result(self, delivery: Any) -> object:
        """What the handle says of itself."""
        return delivery.index, delivery.timestamp

    def exception(self, delivery: Any) -> object:
        """What the handle says of itself, the other way round."""
        return delivery.timestamp, delivery.index


def _delivery(kernel: Any, timestamp: int, index: int) -> object:
    delivery = kernel.Delivery(_Outcome() if index & 1 else None, index, timestamp)
    calls = (delivery.done, delivery.result, delivery.exception)
    told = [answer(call) for call in calls]
    holds(isinstance(told[0], Refusal) != bool(index & 1), "a handle without its outcome")
    return told, repr(delivery)
