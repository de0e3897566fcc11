"""Sends requests to coordinators, and retries them until a deadline."""

from __future__ import annotations

import asyncio
import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_async.client.connection.broker_connection import ConnectionKind
from kafka_async.config import seconds
from kafka_async.errors import (
    ConcurrentTransactionsError,
    InvalidPidMappingError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RefreshRetriableError,
    RetriableError,
    UnsupportedVersionError,
    find_by_class,
)
from kafka_async.foundation.backoff import Backoff

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ProducerConfig
    from kafka_async.protocol.message import Request, Response

__all__ = [
    "COORDINATOR_ERROR_ACTIONS",
    "CoordinatorClient",
    "CoordinatorKey",
    "RequestAttempts",
    "lost_with_cluster",
]

logger = logging.getLogger("kafka_async.producer")

ResponseT = TypeVar("ResponseT", bound="Response")

MARKER_BACKOFF: Final = 0.02
"""Initial back-off, in seconds, while the coordinator writes the markers of the previous
transaction.

They are usually written within milliseconds, so retry_backoff_ms would delay each transaction.
"""


class CoordinatorErrorAction(enum.Enum):
    """Actions for an error of a coordinator."""

    RETRY = "retry after a back-off"
    RETRY_SOON = "retry after a short back-off"
    FIND_COORDINATOR = "find the coordinator, then retry"
    RAISE = "raise the error"


COORDINATOR_ERROR_ACTIONS: Final[Mapping[type[Exception], CoordinatorErrorAction]] = {
    RefreshRetriableError: CoordinatorErrorAction.FIND_COORDINATOR,
    # A broker that does not respond may no longer be the coordinator.
    KafkaTimeoutError: CoordinatorErrorAction.FIND_COORDINATOR,
    # The previous transaction is not complete at the coordinator yet.
    ConcurrentTransactionsError: CoordinatorErrorAction.RETRY_SOON,
    RetriableError: CoordinatorErrorAction.RETRY,
}


@dataclass(frozen=True, slots=True)
class CoordinatorKey:
    """Identifies the coordinator of a group or of a transactional id."""

    kind: CoordinatorKind
    key: str


@dataclass(slots=True)
class RequestAttempts:
    """Counts the attempts of one request.

    Attributes:
        sent: Requests that were passed to an open connection; writing may still fail.
        without_response: Requests without a response, because of an error or a cancellation.
        concurrent: CONCURRENT_TRANSACTIONS responses.
        not_encoded: The coordinator's version of the request has no field for one of its values.
    """

    sent: int = 0
    without_response: int = 0
    concurrent: int = 0
    not_encoded: bool = False


class CoordinatorClient:
    """Sends requests to coordinators over separate connections."""

    def __init__(
        self, config: ProducerConfig, services: ClientServices, owner: object, rng: random.Random
    ) -> None:
        # Connections per broker, separate from those of other requests (see `ConnectionKind`).
        self._config = config
        self._services = services
        self._owner = owner
        self._rng = rng
        self._connections: dict[int, BrokerConnection] = {}
        self._stop_retrying = False

    def stop_retrying(self) -> None:
        """Do not retry a request once no broker responds."""
        self._stop_retrying = True

    async def send(
        self,
        request: Request[ResponseT],
        coordinator: CoordinatorKey,
        *,
        deadline: float,
        get_error: Callable[[ResponseT], KafkaError | None],
        max_version: int | None = None,
        attempts: RequestAttempts | None = None,
        on_sent: Callable[[], None] | None = None,
        before_retry: Callable[[KafkaError], Awaitable[None]] | None = None,
        any_cluster: bool = False,
    ) -> ResponseT:
        """Send a request until `get_error` finds no error in its response, or until the deadline.

        Raises the first error that is not retriable, or the last one before the deadline. `on_sent`
        is called immediately before each attempt is written, which may still fail, and
        `before_retry` with each error that is followed by another attempt, unless it raises. Unless
        `any_cluster`, InvalidPidMappingError is raised once the client follows another cluster,
        where the producer id may belong to another producer.
        """
        counts = attempts or RequestAttempts()
        initial = seconds(self._config.retry_backoff_ms)
        maximum = seconds(self._config.retry_backoff_max_ms)
        backoff = Backoff(initial, maximum, rng=self._rng)
        short_backoff = Backoff(min(initial, MARKER_BACKOFF), maximum, rng=self._rng)
        cluster_id = None if any_cluster else self._services.metadata.snapshot.cluster_id
        # Leaves with a response, with an error that no retry cures, or with the last error when the
        # next attempt would come after the deadline.
        while True:
            error = await self._attempt(
                request, coordinator, deadline, get_error, max_version, counts, on_sent, cluster_id
            )
            if not isinstance(error, KafkaError):
                return error
            action = find_by_class(COORDINATOR_ERROR_ACTIONS, error, CoordinatorErrorAction.RAISE)
            if action is CoordinatorErrorAction.RAISE or (
                # While the producer stops: a broker that does not respond would use up the
                # remaining time.
                self._stop_retrying and not self._services.responsive
            ):
                raise error
            if before_retry is not None:
                await before_retry(error)
            if action is CoordinatorErrorAction.FIND_COORDINATOR:
                self._services.coordinators.forget(coordinator.kind, coordinator.key)
            delay = (
                short_backoff if action is CoordinatorErrorAction.RETRY_SOON else backoff
            ).next()
            if asyncio.get_running_loop().time() + delay >= deadline:
                raise error
            logger.debug("%s of %s: %s", type(request).__name__, coordinator.key, error)
            await asyncio.sleep(delay)

    @property
    def connections(self) -> list[BrokerConnection]:
        """Connections that were opened, for the owner to close."""
        return list(self._connections.values())

    async def _attempt(
        self,
        request: Request[ResponseT],
        coordinator: CoordinatorKey,
        deadline: float,
        get_error: Callable[[ResponseT], KafkaError | None],
        max_version: int | None,
        counts: RequestAttempts,
        on_sent: Callable[[], None] | None,
        cluster_id: str | None,
    ) -> ResponseT | KafkaError:
        loop = asyncio.get_running_loop()
        try:
            node = await self._services.coordinators.find(
                coordinator.kind, coordinator.key, timeout=max(0.0, deadline - loop.time())
            )
            # Compared after each lookup, since a rebootstrap may happen while this waits.
            if cluster_id is not None and self._services.metadata.snapshot.cluster_id != cluster_id:
                return lost_with_cluster()
            connection = self._connection(node)
            left = deadline - loop.time()
            if left <= 0:
                return KafkaTimeoutError(
                    f"no time left to send a request to the coordinator of {coordinator.key}"
                )
            await connection.connect(left)
            version = connection.version(request.API_KEY, max_version)
        except KafkaError as error:
            return error
        # Counted before writing: from here on the request may reach the coordinator.
        counts.sent += 1
        if on_sent is not None:
            on_sent()
        try:
            response = await connection.send(
                request,
                timeout=min(seconds(self._config.request_timeout_ms), deadline - loop.time()),
                version=version,
            )
        # These leave open whether the coordinator has handled the request; a cancellation does too.
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            counts.without_response += 1
            return error
        except UnsupportedVersionError as error:
            counts.not_encoded = True
            return error
        # The request was not sent.
        except KafkaError as error:
            return error
        except asyncio.CancelledError:
            counts.without_response += 1
            raise
        error = get_error(response)
        counts.concurrent += isinstance(error, ConcurrentTransactionsError)
        return error or response

    def _connection(self, node: int) -> BrokerConnection:
        connection = self._connections.get(node)
        if connection is None:
            connection = self._connections[node] = self._services.brokers.connection(
                node, ConnectionKind.COORDINATOR, self._owner
            )
        return connection


def lost_with_cluster() -> InvalidPidMappingError:
    """Return the error of a transaction that ends because the client follows another cluster."""
    return InvalidPidMappingError(
        "the client follows another cluster, which does not have this transaction"
    )
