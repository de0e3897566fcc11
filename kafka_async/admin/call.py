"""One admin call over many items: what failed for a while is tried again, what failed is raised.

A broker answers for each topic, group or partition apart. `settle` asks again about the items whose
error may pass, after metadata or the coordinator has been looked up anew, until the deadline; then
the first error is raised, naming its item, with the others in its notes.
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
class Outcome(Generic[K, V]):
    """What an attempt brought for each item: a result or an error."""

    results: dict[K, V] = field(default_factory=dict["K", "V"])
    errors: dict[K, KafkaError] = field(default_factory=dict["K", KafkaError])


class Call:
    """One call of the admin client; `left` is the seconds until its deadline."""

    def __init__(self, client: Client, timeout: float | None) -> None:
        check_timeout(timeout, unlimited="default_api_timeout_ms")
        self.client = client
        self._loop = client.supervisor.loop
        config = client.config
        whole = seconds(config.default_api_timeout_ms) if timeout is None else timeout
        self._deadline = self._loop.time() + whole
        self._backoff = Backoff(
            seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        )

    @property
    def left(self) -> float:
        """Seconds until the deadline; not below 0."""
        return max(0.0, self._deadline - self._loop.time())

    async def pause(self) -> bool:
        """Wait before the next attempt; False if that would be after the deadline."""
        delay = self._backoff.next()
        if delay >= self.left:
            return False
        await self.client.pause(delay)
        return True

    async def settle(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Outcome[K, V]]],
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> dict[K, V]:
        """The results of all items, in their order; raises the first error that does not pass.

        `final` are errors that are an answer here, though elsewhere they may pass.
        """
        outcome = await self.collect(items, attempt, final=final)
        raise_first(outcome.errors.values())
        return outcome.results

    async def collect(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Outcome[K, V]]],
        *,
        final: tuple[type[KafkaError], ...] = (),
    ) -> Outcome[K, V]:
        """Like `settle`, but what failed is returned beside what did not."""
        wanted = list(dict.fromkeys(items))
        whole: Outcome[K, V] = Outcome()
        pending = wanted
        while pending:
            outcome = await attempt(pending)
            whole.results.update(outcome.results)
            whole.errors.update(outcome.errors)
            pending = [
                item
                for item, error in outcome.errors.items()
                if isinstance(error, RetriableError) and not isinstance(error, final)
            ]
            if pending and not await self.pause():
                break
            for item in pending:
                del whole.errors[item]
        whole.results = {item: whole.results[item] for item in wanted if item in whole.results}
        return whole


def raise_first(errors: Iterable[KafkaError]) -> None:
    """Raise the first of some errors, with the others in its notes; return if there is none."""
    found = list(errors)
    for error in found[1:]:
        found[0].add_note(f"also: {error}")
    if found:
        raise found[0]


def item_error(code: int, kind: str, name: str, message: str | None = None) -> KafkaError:
    """The error of one item that is no topic: "group g: ...", and what the broker says about it."""
    error = error_for(code, message)
    text = message or error.message
    return error_for(code, f"{kind} {name}: {text}")
