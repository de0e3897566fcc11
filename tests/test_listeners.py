"""Functions that are called at an event."""

from __future__ import annotations

from kafka_async.foundation.listeners import Listeners


def test_functions_are_called_in_order_until_they_are_removed() -> None:
    listeners, called = Listeners[str](), list[str]()
    remove = listeners.add(lambda event: called.append(f"first {event}"))
    listeners.add(lambda event: called.append(f"second {event}"))
    listeners.notify("a")
    remove()
    remove()
    listeners.notify("b")
    assert called == ["first a", "second a", "second b"]


def test_a_function_may_remove_itself_and_add_another() -> None:
    listeners, called = Listeners[()](), list[str]()

    def once() -> None:
        called.append("once")
        remove()
        listeners.add(lambda: called.append("next"))

    remove = listeners.add(once)
    listeners.add(lambda: called.append("other"))
    listeners.notify()
    assert called == ["once", "other"]
    listeners.notify()
    assert called == ["once", "other", "other", "next"]
