"""How librdkafka is set up, and read from, for both clients that are built on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import Message

    from benchmarks.peers.task import Task

READ_AT_ONCE: Final = 500
"""Messages asked for by one call of consume: more cost a third more CPU time each."""
PATIENCE: Final = 60.0
"""Seconds without a message after which a consumer gives up."""

# INTRODUCTION.md and CONFIGURATION.md of librdkafka name these for throughput. Deliveries that went
# well are not reported: flush says how many are missing, and those that failed still call.
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
    "check.crcs": True,  # as all the others do
}


def producer_settings(task: Task, linger_ms: int = 5, *, reports: bool = False) -> dict[str, Any]:
    """The options of a producer, as librdkafka calls them; without the cluster's address.

    With `reports` of each record, as is its default.
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
    """The options of a consumer; a group is asked for even by those that never join one."""
    needed = {"group.id": "benchmark", "enable.auto.commit": False}
    return needed | (FAST_CONSUMER if task.tuned else {})


def value_of(message: Message | None) -> bytes:
    """What a message says; raises if it is an error, or none came in time."""
    if message is None or message.error():
        raise RuntimeError(str(message and message.error()))
    value = message.value()
    assert isinstance(value, bytes)
    return value


def weigh_all(messages: Sequence[Message], touch: Callable[[Any], int]) -> int:
    """The sum of what the values weigh; raises if one is an error."""
    total = 0
    for message in messages:
        if message.error():
            raise RuntimeError(str(message.error()))
        total += touch(message.value())
    return total
