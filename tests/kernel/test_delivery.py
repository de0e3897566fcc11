"""Tests of `Delivery`, which delegates to the outcome of its batch."""

from __future__ import annotations

from collections.abc import Generator
from types import ModuleType
from typing import Any

import pytest

from kafka_async.errors import IllegalStateError
from kafka_async.types import RecordMetadata


class KnownOutcome:
    """The outcome of a batch that is done."""

    done = True

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.awaited: list[Any] = []

    def wait(self, delivery: Any) -> Generator[Any, None, RecordMetadata]:
        self.awaited.append(delivery)
        yield from ()
        return self.result(delivery)

    def result(self, delivery: Any) -> RecordMetadata:
        if self.error is not None:
            raise self.error
        return RecordMetadata("t", 0, 100 + delivery.index, delivery.timestamp)

    def exception(self, delivery: Any) -> Exception | None:
        return self.error


@pytest.mark.asyncio
async def test_awaiting_delivery_returns_metadata_from_its_outcome(kernel: ModuleType) -> None:
    outcome = KnownOutcome()
    delivery = kernel.Delivery(outcome, 5, 9_000)
    assert await delivery == RecordMetadata("t", 0, 105, 9_000)
    assert await delivery == RecordMetadata("t", 0, 105, 9_000)
    assert outcome.awaited == [delivery, delivery]


@pytest.mark.asyncio
async def test_awaiting_failed_delivery_raises(kernel: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="refused"):
        await kernel.Delivery(KnownOutcome(RuntimeError("refused")), 0, 0)


def test_delivery_tells_result_and_exception_without_await(kernel: ModuleType) -> None:
    good, bad = (
        kernel.Delivery(KnownOutcome(), 1, 2),
        kernel.Delivery(KnownOutcome(RuntimeError("no")), 1, 2),
    )
    assert good.done()
    assert good.result() == RecordMetadata("t", 0, 101, 2)
    assert good.exception() is None
    assert isinstance(bad.exception(), RuntimeError)
    with pytest.raises(RuntimeError):
        bad.result()


def test_delivery_without_outcome_raises_illegal_state(kernel: ModuleType) -> None:
    delivery = kernel.Delivery(None, 1, 2)
    for method in (delivery.done, delivery.result, delivery.exception):
        with pytest.raises(IllegalStateError):
            method()


def test_delivery_is_immutable(kernel: ModuleType) -> None:
    delivery = kernel.Delivery(KnownOutcome(), 1, 2)
    for name in ("outcome", "index", "timestamp"):
        with pytest.raises(AttributeError):
            setattr(delivery, name, 5)


def test_delivery_repr_tells_if_it_is_done(kernel: ModuleType) -> None:
    assert repr(kernel.Delivery(KnownOutcome(), 1, 2)) == "<Delivery index=1 timestamp=2 done>"
    assert repr(kernel.Delivery(None, 1, 2)) == "<Delivery index=1 timestamp=2 pending>"
