"""A handle answers nothing itself: it asks the outcome of its batch."""

from __future__ import annotations

from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

from kafka_async.errors import IllegalStateError
from kafka_async.types import RecordMetadata


class Batch:
    """An outcome that is known."""

    done = True

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[Any] = []

    def wait(self, delivery: Any) -> Generator[Any, None, RecordMetadata]:
        self.asked.append(delivery)
        yield from ()
        return self.result(delivery)

    def result(self, delivery: Any) -> RecordMetadata:
        if self.error is not None:
            raise self.error
        return RecordMetadata("t", 0, 100 + delivery.index, delivery.timestamp)

    def exception(self, delivery: Any) -> Exception | None:
        return self.error


@pytest.mark.asyncio
async def test_awaiting_a_handle_asks_its_batch(kernel: ModuleType) -> None:
    batch = Batch()
    delivery = kernel.Delivery(batch, 5, 9_000)
    assert await delivery == RecordMetadata("t", 0, 105, 9_000)
    assert await delivery == RecordMetadata("t", 0, 105, 9_000)
    assert batch.asked == [delivery, delivery]


@pytest.mark.asyncio
async def test_awaiting_a_failed_handle_raises(kernel: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="refused"):
        await kernel.Delivery(Batch(RuntimeError("refused")), 0, 0)


def test_a_handle_that_is_not_awaited(kernel: ModuleType) -> None:
    good, bad = kernel.Delivery(Batch(), 1, 2), kernel.Delivery(Batch(RuntimeError("no")), 1, 2)
    assert good.done()
    assert good.result() == RecordMetadata("t", 0, 101, 2)
    assert good.exception() is None
    assert isinstance(bad.exception(), RuntimeError)
    with pytest.raises(RuntimeError):
        bad.result()


def test_a_handle_without_an_outcome(kernel: ModuleType) -> None:
    delivery = kernel.Delivery(None, 1, 2)
    for question in (delivery.done, delivery.result, delivery.exception):
        with pytest.raises(IllegalStateError):
            question()


def test_a_handle_never_changes(kernel: ModuleType) -> None:
    delivery = kernel.Delivery(Batch(), 1, 2)
    for name in ("outcome", "index", "timestamp"):
        with pytest.raises(AttributeError):
            setattr(delivery, name, 5)


def test_a_repr_says_whether_it_is_done(kernel: ModuleType) -> None:
    assert repr(kernel.Delivery(Batch(), 1, 2)) == "<Delivery index=1 timestamp=2 done>"
    assert repr(kernel.Delivery(None, 1, 2)) == "<Delivery index=1 timestamp=2 pending>"
