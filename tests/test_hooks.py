"""Tests of hooks and their listeners."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafka_async.hooks import ClientEvent, Disconnected, Hooks, Throttled

if TYPE_CHECKING:
    import pytest


def test_passes_events_to_listeners_of_their_class() -> None:
    hooks = Hooks()
    throttled: list[Throttled] = []
    all_events: list[ClientEvent] = []
    hooks.listen(Throttled, throttled.append)
    hooks.listen(ClientEvent, all_events.append)
    first, second = (
        Throttled("c", 1, 0, "Produce", 0.5, "produce"),
        Disconnected("c", 1, "general", None),
    )
    hooks.emit(first)
    hooks.emit(second)
    assert throttled == [first]
    assert all_events == [first, second]


def test_active_only_with_listeners() -> None:
    hooks = Hooks()
    assert not hooks.active
    remove = hooks.listen(ClientEvent, lambda _: None)
    assert hooks.active
    remove()
    assert not hooks.active


def test_logs_listener_that_raises_and_calls_the_others(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks()
    events: list[ClientEvent] = []

    def broken(_: ClientEvent) -> None:
        raise ValueError("broken")

    hooks.listen(ClientEvent, broken)
    hooks.listen(ClientEvent, events.append)
    with caplog.at_level(logging.ERROR, "kafka_async.hooks"):
        hooks.emit(Throttled("c", 1, 0, "Produce", 0.5, "produce"))
    assert len(events) == 1
    assert "Throttled" in caplog.text
