"""Runs one admin call for many items: retries retriable errors per item, raises the others.

A broker responds per topic, group or partition. `Call.run` retries the items with a retriable error
until the deadline, after the metadata or the coordinator was looked up again; then it raises the
first error, which names its item and has the others in its notes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from kafka_async.arguments import check_timeout
from kafka_async.backoff import Backoff
from kafka_async.config import seconds
from kafka_async.errors import KafkaError, RetriableError, error_for

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class ItemResults(Generic[K, V]):
    """A value or an error for each item of an admin call."""

    values: dict[K, V] = field(default_factory=dict["K", "V"])
    errors: dict[K, KafkaError] = field(default_factory=dict["K", KafkaError])


class Call:
    """One call of the admin client, with its deadline and backoff.

    Args:
        client: The client that sends the requests.
        timeout: Maximum time in seconds (None: default_api_timeout_ms).
    """

    def __init__(self, client: Client, timeout: float | None) -> None:
        check_timeout(timeout, unlimited="default_api_timeout_ms")
        self.client = client
        self._loop = client.supervisor.loop
        config = client.config
        limit = seconds(config.default_api_timeout_ms) if timeout is None else timeout
        self._deadline = self._loop.time() + limit
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        )

    @property
    def left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - self._loop.time())

    async def pause(self) -> bool:
        """Wait before the next attempt; return False if it would be after the deadline."""
        delay = self._backoff.next()
        if delay >= self.left:
            return False
        await self.client.pause(delay)
        return True

    async def run(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[ItemResults[K, V]]],
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> dict[K, V]:
        """Return the values of all items, in order.

        Args:
            items: The items.
            attempt: Sends requests for the pending items and returns their values and errors.
            final: Retriable errors that are not retried in this call.

        Raises:
            KafkaError: The error of the first item that failed, with the others in its notes.
        """
        results = await self.collect(items, attempt, final=final)
        raise_first(results.errors.values())
        return results.values

    async def collect(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[ItemResults[K, V]]],
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> ItemResults[K, V]:
        """Return values and errors of all items; arguments as for `run`."""
        wanted = list(dict.fromkeys(items))
        total: ItemResults[K, V] = ItemResults()
        pending = wanted
        while pending:
            results = await attempt(pending)
            total.values.update(results.values)
            total.errors.update(results.errors)
            pending = [
                item
                for item, error in results.errors.items()
                if isinstance(error, RetriableError) and not isinstance(error, final)
            ]
            if pending and not await self.pause():
                break
            for item in pending:
                del total.errors[item]
        total.values = {item: total.values[item] for item in wanted if item in total.values}
        return total


def raise_first(errors: Iterable[KafkaError]) -> None:
    """Raise the first error, with the others in its notes, if there is any."""
    found = list(errors)
    for error in found[1:]:
        found[0].add_note(f"also: {error}")
    if found:
        raise found[0]


def item_error(code: int, kind: str, name: str, message: str | None = None) -> KafkaError:
    """Return an item's error, as "group g: ..." with the broker's message; not for topics."""
    error = error_for(code, message)
    text = message or error.message
    return error_for(code, f"{kind} {name}: {text}")
