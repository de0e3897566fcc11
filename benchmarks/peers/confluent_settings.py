"""Options and helpers for both clients that are based on librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Message

    from benchmarks.peers.task import Task

READ_AT_ONCE: Final = 500
"""Messages per call of consume; more would take a third more CPU time each."""
PATIENCE: Final = 60.0
"""Time-out of a consumer in seconds without a message."""

# INTRODUCTION.md and CONFIGURATION.md of librdkafka recommend these for throughput. Successful
# deliveries are not reported; flush returns the number of missing ones, and failures are reported.
FAST_PRODUCER: Final = {
    "batch.size": 131_072,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "delivery.report.only.error": True,
    "enable.idempotence": True,
}
FAST_CONSUMER: Final = {
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1_048_576,
    "fetch.queue.backoff.ms": 1,
    "check.crcs": True,  # like all others
}


def producer_settings(task: Task, linger_ms: int = 5, *, reports: bool = False) -> dict[str, Any]:
    """Return the options of a producer, without the cluster's address.

    Args:
        task: the task.
        linger_ms: the option of that name, if the client is tuned.
        reports: report each delivery, which is librdkafka's default.
    """
    settings: dict[str, Any] = {"acks": "all"}
    if task.compression != "none":
        settings["compression.type"] = task.compression
    if task.tuned:
        settings |= FAST_PRODUCER | {"linger.ms": linger_ms}
    if reports:
        settings.pop("delivery.report.only.error", None)
    return settings


def consumer_settings(task: Task) -> dict[str, Any]:
    """Return the options of a consumer; group.id is required even without joining a group."""
    needed = {"group.id": "benchmark", "enable.auto.commit": False}
    return needed | (FAST_CONSUMER if task.tuned else {})


def value_of(message: Message | None) -> bytes:
    """Return the value of a message; raise if it is an error, or None after a time-out."""
    if message is None or message.error():
        raise RuntimeError(str(message and message.error()))
    value = message.value()
    assert isinstance(value, bytes)
    return value


def weigh_all(messages: Sequence[Message], touch: Callable[[Any], int]) -> int:
    """Return the sum of the weights of the values; raise if a message is an error."""
    total = 0
    for message in messages:
        if message.error():
            raise RuntimeError(str(message.error()))
        total += touch(message.value())
    return total
