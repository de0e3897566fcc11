"""Requests to coordinators: routed, retried until a deadline, and counted when no answer came."""

from __future__ import annotations

import asyncio
import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_connection import ConnectionKind
from kafka_async.config import seconds
from kafka_async.errors import (
    ConcurrentTransactionsError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RefreshRetriableError,
    RetriableError,
    find_by_class,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.client import Client
    from kafka_async.cluster.request_destinations import CoordinatorKind
    from kafka_async.config import ProducerConfig
    from kafka_async.protocol.message import Request, Response

__all__ = ["COORDINATOR_REACTIONS", "Attempts", "CoordinatorCalls", "Route"]

logger = logging.getLogger("kafka_async.producer")

ResponseT = TypeVar("ResponseT", bound="Response")

MARKERS_TAKE: Final = 0.02
"""Seconds until the markers of a transaction that has just ended are probably written."""


class Reaction(enum.Enum):
    """What to do about an error of a coordinator."""

    RETRY = "ask again after a back-off"
    RETRY_SOON = "ask again after a back-off that begins short"
    REDISCOVER = "look the coordinator up, then ask again"
    RAISE = "tell the caller"


COORDINATOR_REACTIONS: Final[Mapping[type[Exception], Reaction]] = {
    RefreshRetriableError: Reaction.REDISCOVER,
    # A broker that says nothing may have lost its role without being able to say so.
    KafkaTimeoutError: Reaction.REDISCOVER,
    ConcurrentTransactionsError: Reaction.RETRY_SOON,
    RetriableError: Reaction.RETRY,
}


@dataclass(frozen=True, slots=True)
class Route:
    """Whom to ask: the coordinator of a group or of a transactional id."""

    kind: CoordinatorKind
    key: str


@dataclass(slots=True)
class Attempts:
    """Counts the attempts of one call.

    Attributes:
        sent: Requests that were written.
        unanswered: Requests without a response.
        concurrent: CONCURRENT_TRANSACTIONS responses.
    """

    sent: int = 0
    unanswered: int = 0
    concurrent: int = 0


class CoordinatorCalls:
    """Sends requests to coordinators over separate lanes.

    While `closing` is set, a request is not retried once the client is degraded.
    """

    def __init__(
        self, config: ProducerConfig, client: Client, owner: object, rng: random.Random
    ) -> None:
        self._config = config
        self._client = client
        self._owner = owner
        self._rng = rng
        self._connections: dict[int, BrokerConnection] = {}
        self.closing = False

    async def call(
        self,
        request: Request[ResponseT],
        route: Route,
        *,
        deadline: float,
        error_in: Callable[[ResponseT], KafkaError | None],
        newest: int | None = None,
        attempts: Attempts | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> ResponseT:
        """The answer without an error in it.

        `newest` bounds the version; `on_sent` is called before each attempt is written. Raises the
        error that is not to be retried, or the last one at the deadline (the loop's seconds).
        """
        counted = attempts or Attempts()
        initial = seconds(self._config.retry_backoff_ms)
        longest = seconds(self._config.retry_backoff_max_ms)
        backoff = Backoff(initial, longest, rng=self._rng)
        short = Backoff(min(initial, MARKERS_TAKE), longest, rng=self._rng)
        while True:
            error = await self._attempt(
                request, route, deadline, error_in, newest, counted, on_sent
            )
            if not isinstance(error, KafkaError):
                return error
            reaction = _reaction_to(error)
            if reaction is Reaction.RAISE or (self.closing and not self._client.responsive):
                raise error
            if reaction is Reaction.REDISCOVER:
                self._client.forget_coordinator(route.kind, route.key)
            delay = (short if reaction is Reaction.RETRY_SOON else backoff).next()
            if asyncio.get_running_loop().time() + delay >= deadline:
                raise error
            logger.debug("%s of %s: %s", type(request).__name__, route.key, error)
            await asyncio.sleep(delay)

    @property
    def connections(self) -> list[BrokerConnection]:
        """The lanes that were opened, for the owner to close."""
        return list(self._connections.values())

    async def _attempt(
        self,
        request: Request[ResponseT],
        route: Route,
        deadline: float,
        error_in: Callable[[ResponseT], KafkaError | None],
        newest: int | None,
        counted: Attempts,
        on_sent: Callable[[], None] | None,
    ) -> ResponseT | KafkaError:
        loop = asyncio.get_running_loop()
        try:
            node = await self._client.coordinator(
                route.kind, route.key, timeout=max(0.0, deadline - loop.time())
            )
            connection = self._connection(node)
            left = deadline - loop.time()
            if left <= 0:
                return KafkaTimeoutError(f"no time left to ask the coordinator of {route.key}")
            await connection.connect(left)
            version = connection.version(request.API_KEY)
        except KafkaError as error:
            return error
        counted.sent += 1
        if on_sent is not None:
            on_sent()
        try:
            response = await connection.send(
                request,
                timeout=min(seconds(self._config.request_timeout_ms), deadline - loop.time()),
                version=version if newest is None else min(version, newest),
            )
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            counted.unanswered += 1
            return error
        except KafkaError as error:
            return error
        error = error_in(response)
        counted.concurrent += isinstance(error, ConcurrentTransactionsError)
        return error or response

    def _connection(self, node: int) -> BrokerConnection:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._client.connection(
                node, ConnectionKind.COORDINATOR, self._owner
            )
        return connection


def _reaction_to(error: Exception) -> Reaction:
    return find_by_class(COORDINATOR_REACTIONS, error, Reaction.RAISE)
