"""Fault injection: rules that delay, fail or drop requests.

    fault = cluster.faults.add(api="Produce", topic="t", error="REQUEST_TIMED_OUT", count=2)
    ...
    await fault.wait(2)          # until it has matched twice

Rules may be added, removed and waited for from any thread. Only the first matching rule, in the
order of addition, is applied. A match is counted at once, before the rule's delay or hang and
before the request is handled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.requests.error_responses import topic_partitions_in
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.arguments import MAX_INT16, check_duration, whole_number
from kafka_async.protocol.api import lookup
from kafka_async.protocol.registry import Api

if TYPE_CHECKING:
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.topics import TopicTable

Predicate: TypeAlias = Callable[["RequestContext", Any], bool]
Change: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Selects requests; None selects any. See `Faults.add`."""

    api_key: int | None
    broker: int | None
    topic: str | None
    partition: int | None
    when: Predicate | None

    def selects(self, topic: str | None, partition: int | None) -> bool:
        """Return True if the rule selects this topic and partition of a request."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def matches(self, context: RequestContext, request: Any, topics: TopicTable) -> bool:
        """Return True if the rule selects a request."""
        if self.api_key not in (None, context.api_key):
            return False
        if self.broker not in (None, context.broker.id):
            return False
        if (self.topic, self.partition) != (None, None) and not any(
            self.selects(*pair) for pair in topic_partitions_in(context.api_key, request, topics)
        ):
            return False
        return self.when is None or self.when(context, request)


@dataclass(frozen=True, slots=True)
class FaultEffect:
    """Describes the effect of a rule on a request. See `Faults.add`."""

    error: int | None
    applied: bool
    delay: float
    disconnect: Literal["before", "after"] | None
    hang: bool
    throttle: float
    change: Change | None


class Fault:
    """Represents a rule; created by `Faults.add`.

    Attributes:
        hits: Number of matched requests, without skipped ones. A request is counted before it is
            delayed, held or handled.
    """

    def __init__(self, *, hangs: bool, count: int | None) -> None:
        self.hits = 0
        self._remaining = count
        self._released = threading.Event()
        self._hanging: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._waiters: list[tuple[int, Future[None]]] = []
        self._lock = threading.Lock()
        if not hangs:
            self._released.set()

    @property
    def exhausted(self) -> bool:
        """True if the rule has matched `count` times, or was removed."""
        return self._remaining == 0

    def release(self) -> None:
        """Resume the hanging requests; later requests do not hang."""
        self._released.set()
        with self._lock:
            hanging = tuple(self._hanging)
        for loop, event in hanging:
            loop.call_soon_threadsafe(event.set)

    def remove(self) -> None:
        """Remove the rule and resume the hanging requests."""
        with self._lock:
            self._remaining = 0
        self.release()

    async def wait(self, hits: int = 1) -> None:
        """Wait until the rule has this many `hits`, in any event loop.

        Args:
            hits: Number of requests.
        """
        await asyncio.wrap_future(self._future_of_hits(hits))

    def wait_blocking(self, hits: int = 1, timeout: float | None = None) -> None:
        """Wait as `wait` does, in a thread without an event loop.

        Args:
            hits: Number of requests.
            timeout: Maximum time in seconds. Default: unlimited.

        Raises:
            TimeoutError: The time has passed.
        """
        self._future_of_hits(hits).result(timeout)

    def _future_of_hits(self, hits: int) -> Future[None]:
        future: Future[None] = Future()
        with self._lock:
            if self.hits < hits:
                self._waiters.append((hits, future))
                return future
        future.set_result(None)
        return future


class FaultRule(Fault):
    """The cluster's side of a rule."""

    def __init__(
        self, target: RequestFilter, effect: FaultEffect, *, skip: int, count: int | None
    ) -> None:
        super().__init__(hangs=effect.hang, count=count)
        self.target = target
        self.effect = effect
        self._skip = skip

    def hit(self) -> bool:
        """Count a match; return False if the rule skips it or is exhausted."""
        with self._lock:
            if self._skip:
                self._skip -= 1
                return False
            if self._remaining == 0:
                return False
            if self._remaining is not None:
                self._remaining -= 1
            self.hits += 1
            reached = [future for count, future in self._waiters if count <= self.hits]
            self._waiters = [entry for entry in self._waiters if entry[0] > self.hits]
        for future in reached:
            if future.set_running_or_notify_cancel():
                future.set_result(None)
        return True

    async def apply_delay(self) -> None:
        """Wait for the rule's delay, and until `release` if the rule hangs."""
        if self.effect.delay:
            await asyncio.sleep(self.effect.delay)
        if self._released.is_set():
            return
        hanging = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._hanging.add(hanging)
        try:
            if not self._released.is_set():
                await hanging[1].wait()
        finally:
            with self._lock:
                self._hanging.discard(hanging)


class FaultRules:
    """Holds the rules in the order in which they apply; `topics` finds topics by id."""

    def __init__(self, topics: TopicTable) -> None:
        self._topics = topics
        self._rules: tuple[FaultRule, ...] = ()
        self._lock = threading.Lock()

    def add(self, rule: FaultRule) -> None:
        """Add a rule, and drop the exhausted ones."""
        with self._lock:
            self._rules = (*(kept for kept in self._rules if not kept.exhausted), rule)

    def clear(self) -> None:
        """Remove all rules and resume the requests that hang."""
        with self._lock:
            rules, self._rules = self._rules, ()
        for rule in rules:
            rule.remove()

    def match(self, context: RequestContext, request: Any) -> FaultRule | None:
        """Return the rule that applies to a request, and count it, or None."""
        for rule in self._rules:
            if rule.target.matches(context, request, self._topics) and rule.hit():
                return rule
        return None


class Faults:
    """Holds the fault rules of a cluster."""

    def __init__(self, rules: FaultRules) -> None:
        self._rules = rules

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
        change: Change | None = None,
    ) -> Fault:
        """Add a rule; without an effect it only counts requests.

        Args:
            api: Key or name of the API. Default: any.
            broker: Id of the broker. Default: any.
            topic: Topic in the request. Default: any.
            partition: Partition in the request. Default: any.
            when: Predicate of the request's context and the request. Default: always true.
            skip: Number of matching requests to let pass first.
            count: Number of requests to apply the rule to; None for all.
            error: Error code or its name, returned for the selected topic and partition. For
                ShareFetch and ShareAcknowledge it applies to the whole request.
            applied: Handle the request first; the delay, hang or error affects its response only.
            delay: Seconds to wait before the request is handled.
            disconnect: Reset the connection "before" or "after" the request is handled.
            hang: Hold the request until `Fault.release`.
            throttle: Throttle time of the response in seconds; the connection is muted for this
                time, as with a quota (KIP-219).
            change: Called with the response before it is sent; may change it.

        Returns:
            The rule.

        Raises:
            InvalidConfigurationError: The API or the error does not exist.
            TypeError: A number has the wrong type.
            ValueError: A number is out of range.
        """
        for name, number in (("broker", broker), ("partition", partition), ("count", count)):
            if number is not None:
                whole_number(number, name, low=0)
        whole_number(skip, "skip", low=0)
        delay, throttle = check_duration(delay, "delay"), check_duration(throttle, "throttle")
        target = RequestFilter(_api_key(api), broker, topic, partition, when)
        effect = FaultEffect(_code(error), applied, delay, disconnect, hang, throttle, change)
        rule = FaultRule(target, effect, skip=skip, count=count)
        self._rules.add(rule)
        return rule

    def clear(self) -> None:
        """Remove all rules and resume the requests that hang."""
        self._rules.clear()


def _api_key(name: int | str | None) -> int | None:
    if name is None:
        return None
    found = lookup(name if isinstance(name, str) else whole_number(name, "api", low=0))
    if not isinstance(found, Api):
        raise InvalidConfigurationError(f"{name!r} is not a Kafka API")
    return found.key


def _code(error: int | str | None) -> int | None:
    if error is None:
        return None
    if not isinstance(error, str):
        return whole_number(error, "error", low=-1, high=MAX_INT16)
    try:
        return ErrorCode[error].value
    except KeyError:
        raise InvalidConfigurationError(f"{error!r} is not a Kafka error") from None
