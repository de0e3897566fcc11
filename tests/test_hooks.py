"""Hooks: typed events to whoever asked for them, and nobody's mistake is the client's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafka_async.hooks import ClientEvent, Disconnected, Hooks, Throttled

if TYPE_CHECKING:
    import pytest


def test_listeners_hear_the_events_they_asked_for() -> None:
    hooks = Hooks()
    throttled: list[Throttled] = []
    everything: list[ClientEvent] = []
    hooks.listen(Throttled, throttled.append)
    hooks.listen(ClientEvent, everything.append)
    first, second = Throttled("c", 1, 0, 0.5), Disconnected("c", 1, "general", None)
    hooks.emit(first)
    hooks.emit(second)
    assert throttled == [first]
    assert everything == [first, second]


def test_hooks_are_active_only_while_somebody_listens() -> None:
    hooks = Hooks()
    assert not hooks.active
    remove = hooks.listen(ClientEvent, lambda _: None)
    assert hooks.active
    remove()
    assert not hooks.active


def test_a_listener_that_raises_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = Hooks()
    heard: list[ClientEvent] = []

    def broken(_: ClientEvent) -> None:
        raise ValueError("mine")

    hooks.listen(ClientEvent, broken)
    hooks.listen(ClientEvent, heard.append)
    with caplog.at_level(logging.ERROR, "kafka_async.hooks"):
        hooks.emit(Throttled("c", 1, 0, 0.5))
    assert len(heard) == 1
    assert "Throttled" in caplog.text
