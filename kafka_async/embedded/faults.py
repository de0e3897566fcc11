"""Faults by rule: which requests are hit, how often, and what happens to them.

    fault = cluster.faults.add(api="Produce", topic="t", error="REQUEST_TIMED_OUT", count=2)
    ...
    await fault.wait(2)          # until it has hit twice

Rules may be added, removed and waited for from any thread. The first rule that matches, in the
order of adding, is the one that acts.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kafka_async.embedded.codes import Code
from kafka_async.embedded.refusal import mentions
from kafka_async.errors import InvalidConfigurationError
from kafka_async.protocol.api import lookup
from kafka_async.protocol.registry import Api

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext

Predicate: TypeAlias = Callable[["RequestContext", Any], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """Which requests a rule is about; None is any. See `Faults.add`."""

    api_key: int | None
    broker: int | None
    topic: str | None
    partition: int | None
    when: Predicate | None

    def concerns(self, topic: str | None, partition: int | None) -> bool:
        """Whether a topic and partition of a request are meant."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def matches(self, context: RequestContext, request: Any) -> bool:
        """Whether a request is meant."""
        if self.api_key not in (None, context.api_key):
            return False
        if self.broker not in (None, context.broker.id):
            return False
        if (self.topic, self.partition) != (None, None) and not any(
            self.concerns(*mention) for mention in mentions(context, request)
        ):
            return False
        return self.when is None or self.when(context, request)


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to a request that is hit. See `Faults.add`."""

    error: int | None
    applied: bool
    delay: float
    disconnect: Literal["before", "after"] | None
    hang: bool
    throttle: float


class Fault:
    """A rule, and what it has done so far; made by `Faults.add`."""

    def __init__(self, target: Target, effect: Effect, *, skip: int, count: int | None) -> None:
        self.target = target
        self.effect = effect
        self.hits = 0
        self._skip = skip
        self._left = count
        self._released = threading.Event()
        self._held: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._waiting: list[tuple[int, Future[None]]] = []
        self._lock = threading.Lock()
        if not effect.hang:
            self._released.set()

    @property
    def spent(self) -> bool:
        """Whether it has hit as often as it may."""
        return self._left == 0

    def hit(self) -> bool:
        """Count a match; False if it is still one to be let pass, or if there are none left."""
        with self._lock:
            if self._skip:
                self._skip -= 1
                return False
            if self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            self.hits += 1
            reached = [future for count, future in self._waiting if count <= self.hits]
            self._waiting = [entry for entry in self._waiting if entry[0] > self.hits]
        for future in reached:
            future.set_result(None)
        return True

    async def hold(self) -> None:
        """In a hit request: wait the delay out, and until `release` if it hangs."""
        if self.effect.delay:
            await asyncio.sleep(self.effect.delay)
        if self._released.is_set():
            return
        held = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._held.add(held)
        try:
            if not self._released.is_set():
                await held[1].wait()
        finally:
            with self._lock:
                self._held.discard(held)

    def release(self) -> None:
        """Let go on what hangs, and what would have hung."""
        self._released.set()
        with self._lock:
            held = tuple(self._held)
        for loop, event in held:
            loop.call_soon_threadsafe(event.set)

    def remove(self) -> None:
        """Hit nothing any more; what hangs goes on."""
        with self._lock:
            self._left = 0
        self.release()

    async def wait(self, hits: int = 1) -> None:
        """Until it has hit so often; in any loop."""
        await asyncio.wrap_future(self._reached(hits))

    def wait_blocking(self, hits: int = 1, timeout: float | None = None) -> None:
        """As `wait`, for threads without a loop; raises TimeoutError after `timeout` seconds."""
        self._reached(hits).result(timeout)

    def _reached(self, hits: int) -> Future[None]:
        future: Future[None] = Future()
        with self._lock:
            if self.hits < hits:
                self._waiting.append((hits, future))
                return future
        future.set_result(None)
        return future


class Faults:
    """The rules of one cluster."""

    def __init__(self) -> None:
        self._rules: tuple[Fault, ...] = ()
        self._lock = threading.Lock()

    def add(  # noqa: PLR0913  # keyword-only: one for each property of a rule
        self,
        *,
        api: int | str | None = None,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        when: Predicate | None = None,
        skip: int = 0,
        count: int | None = 1,
        error: int | str | None = None,
        applied: bool = False,
        delay: float = 0.0,
        disconnect: Literal["before", "after"] | None = None,
        hang: bool = False,
        throttle: float = 0.0,
    ) -> Fault:
        """Add a rule.

        Which requests: `api` (key or name), `broker`, `topic`, `partition`, and
        `when(context, request)`; what is not given matches everything. The first `skip` matches
        pass, the next `count` are hit (None: all).

        What happens: a `delay` in seconds; `hang` until `Fault.release`; `disconnect` "before"
        the request is handled or "after" it; `error` (code or name) as the answer, only for the
        topic and partition that are named, in place of handling; `throttle` in seconds, the
        response's throttle time, for which the broker mutes the connection after the response as
        a quota does (KIP-219). With `applied` the request is handled first: the delay, the hang or
        the error then concerns its response alone.
        With none of these the rule only counts.
        """
        target = Target(_api_key(api), broker, topic, partition, when)
        effect = Effect(_code(error), applied, delay, disconnect, hang, throttle)
        rule = Fault(target, effect, skip=skip, count=count)
        with self._lock:
            self._rules = (*(kept for kept in self._rules if not kept.spent), rule)
        return rule

    def clear(self) -> None:
        """Remove all rules; what hangs goes on."""
        with self._lock:
            rules, self._rules = self._rules, ()
        for rule in rules:
            rule.remove()

    def take(self, context: RequestContext, request: Any) -> Fault | None:
        """The rule that hits a request, counted; None if none does."""
        for rule in self._rules:
            if rule.target.matches(context, request) and rule.hit():
                return rule
        return None


def _api_key(name: int | str | None) -> int | None:
    if name is None:
        return None
    found = lookup(name)
    if not isinstance(found, Api):
        raise InvalidConfigurationError(f"{name!r} is no API of Kafka's")
    return found.key


def _code(error: int | str | None) -> int | None:
    if error is None or isinstance(error, int):
        return error
    try:
        return Code[error].value
    except KeyError:
        raise InvalidConfigurationError(f"{error!r} is no error of Kafka's") from None
