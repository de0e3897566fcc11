"""Runs one admin call for many items: retries retriable errors per item, raises the others.

A response has one result per topic, group or partition; a missing item counts as a retriable error.
`Call.run` refreshes the metadata or the coordinator and retries the items with a retriable error
until the deadline. Then it raises the first error: the message includes its item, the notes the
other errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kafka_async.client.client import services_of
from kafka_async.client.fan_out import call_each
from kafka_async.client.wire.requested_rows import requested_rows
from kafka_async.config import seconds
from kafka_async.errors import (
    IncompleteResponseError,
    KafkaError,
    KafkaTimeoutError,
    RefreshRetriableError,
    RetriableError,
    ThrottlingQuotaExceededError,
    error_for,
)
from kafka_async.foundation.arguments import check_timeout

if TYPE_CHECKING:
    from kafka_async.client.client import Client

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D", bound=Hashable)

Results: TypeAlias = Mapping[K, V | KafkaError]
"""A value or an error for each item of an admin call."""


class Call:
    """One call of the admin client, with its deadline and backoff.

    Args:
        client: The client that sends the requests.
        timeout: Maximum time in seconds (None: default_api_timeout_ms).
    """

    def __init__(self, client: Client, timeout: float | None) -> None:
        timeout = check_timeout(timeout, unlimited="default_api_timeout_ms")
        self.services = services_of(client)
        self._loop = self.services.supervisor.loop
        if timeout is None:
            timeout = seconds(self.services.config.default_api_timeout_ms)
        self._deadline = self._loop.time() + timeout
        self._backoff = self.services.retry_backoff()

    @property
    def left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self._deadline - self._loop.time())

    async def pause(self, at_least: float = 0.0) -> bool:
        """Wait before the next attempt; return False if the attempt would be after the deadline."""
        delay = max(self._backoff.next(), at_least)
        if delay >= self.left:
            return False
        await self.services.lifetime.sleep(delay)
        return True

    async def run(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Results[K, V]]],
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
        values, errors = await self.collect(items, attempt, final=final)
        raise_first(errors)
        return values

    async def collect(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Results[K, V]]],
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> tuple[dict[K, V], list[KafkaError]]:
        """Return the values and the errors of all items, in order; arguments as for `run`."""
        wanted = list(dict.fromkeys(items))
        results: dict[K, V | KafkaError] = {}
        pending: list[K] = wanted
        while pending:
            try:
                results.update(requested_rows(pending, await attempt(pending)))
            except KafkaTimeoutError:
                if not results:
                    raise
                break  # the errors of earlier attempts are more specific
            pending = [
                item
                for item in pending
                if isinstance(error := results.get(item), RetriableError)
                and not isinstance(error, final)
            ]
            if pending and not await self.pause(_throttle_time(results, pending)):
                break
        values: dict[K, V] = {}
        errors: list[KafkaError] = []
        for item in filter(results.__contains__, wanted):
            result = results[item]
            if isinstance(result, KafkaError):
                errors.append(result)
            else:
                values[item] = result
        return values, errors

    async def query_brokers(
        self,
        brokers: Mapping[K, D],
        query: Callable[[D, list[K]], Awaitable[Results[K, V]]],
    ) -> dict[K, V | KafkaError]:
        """Query the broker of each item once, by id or destination, all at the same time.

        A broker's items fail if it does not respond in time, its response is incomplete, its
        connection is lost, or it has left the cluster.
        """
        by_broker: dict[D, list[K]] = {}
        for item, broker in brokers.items():
            by_broker.setdefault(broker, []).append(item)

        async def query_one(broker: D) -> Results[K, V]:
            items = by_broker[broker]
            try:
                return await query(broker, items)
            except (RefreshRetriableError, IncompleteResponseError, KafkaTimeoutError) as error:
                return dict.fromkeys(items, error)

        results: dict[K, V | KafkaError] = {}
        for found in (await call_each(by_broker, query_one)).values():
            results.update(found)
        return results


def with_throttle_time(results: dict[K, V | KafkaError], throttle_time_ms: int) -> Results[K, V]:
    """Set a response's throttle time on its THROTTLING_QUOTA_EXCEEDED errors (KIP-599)."""
    for error in results.values():
        if isinstance(error, ThrottlingQuotaExceededError):
            error.throttle_time_ms = throttle_time_ms
            error.message += f" Retry in {throttle_time_ms / 1000:g} s."
    return results


def _throttle_time(results: Results[K, V], pending: list[K]) -> float:
    """Return the longest throttle time of the pending items, in seconds."""
    errors = [results[item] for item in pending]
    times = [e.throttle_time_ms for e in errors if isinstance(e, ThrottlingQuotaExceededError)]
    return max(times, default=0) / 1000


def raise_first(errors: Iterable[KafkaError]) -> None:
    """Raise the first error, if any, with the others in its notes."""
    if error := first_error(errors):
        raise error


def first_error(errors: Iterable[KafkaError | None]) -> KafkaError | None:
    """Return the first error, with the others in its notes, or None."""
    found = [error for error in errors if error is not None]
    for error in found[1:]:
        found[0].add_note(f"also: {error}")
    return found[0] if found else None


def topic_error(topic: str, code: int, message: str | None, *, needs: str) -> KafkaError | None:
    """Return a topic's error in a response, or None."""
    return error_for(code, message, topic=topic, needs=needs) if code else None


def item_error(
    kind: str, name: str, code: int, message: str | None = None, *, needs: str | None = None
) -> KafkaError | None:
    """Return a group's or resource's error, prefixed with its name as "group g: ...", or None."""
    if not code:
        return None
    return error_for(
        code, f"{kind} {name}: {error_for(code, message or None, needs=needs).message}"
    )
