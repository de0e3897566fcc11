"""Finds the brokers that coordinate groups and transactional ids, and caches them."""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING

from kafka_async.client.connection.broker_connection import CONNECT_HEDGE_AFTER
from kafka_async.client.wire.requested_rows import requested_rows
from kafka_async.config import seconds
from kafka_async.errors import (
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RetriableError,
    error_for,
)
from kafka_async.types import Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka_async.client.connection.brokers import Brokers
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.client.metadata.metadata_updater import MetadataUpdater
    from kafka_async.protocol.messages.find_coordinator import (
        Coordinator,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

_FIND_COORDINATOR = 10
_MULTIPLE_KEYS_MIN_VERSION = 4
"""First version of FindCoordinator that takes several keys (KIP-699)."""


class CoordinatorKind(enum.IntEnum):
    """Kinds of coordinators, with the values of FindCoordinator's key type."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorLookup:
    """Looks up coordinators for one client; each is cached until `forget`."""

    def __init__(
        self, context: ConnectionContext, brokers: Brokers, updater: MetadataUpdater
    ) -> None:
        self._context = context
        self._brokers = brokers
        self._updater = updater
        # Until a response of a broker that is not the coordinator; see `forget`.
        self._cache: dict[tuple[CoordinatorKind, str], int] = {}
        self._loop = asyncio.get_running_loop()

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Remove a coordinator from the cache."""
        self._cache.pop((kind, key), None)

    def forget_all(self) -> None:
        """Clear the cache, as after a rebootstrap."""
        self._cache.clear()

    async def find(self, kind: CoordinatorKind, key: str, timeout: float) -> int:
        """Return the id of the broker that coordinates a group id or transactional id.

        An error that is not retriable is raised immediately, the last other error after `timeout`
        seconds.
        """
        node_id = self._cache.get((kind, key))
        if node_id is not None:
            return node_id
        return (await self.find_all(kind, [key], timeout))[key]

    async def find_all(
        self, kind: CoordinatorKind, keys: Iterable[str], timeout: float
    ) -> dict[str, int]:
        """Find several coordinators, as `find`, in as few requests as possible (KIP-699)."""
        backoff = self._context.retry_backoff()
        wanted, deadline = list(keys), self._loop.time() + timeout
        # Ends when all are cached, or with the last error at the deadline. Each pass requests only
        # what is missing.
        while True:
            missing = [key for key in wanted if (kind, key) not in self._cache]
            if not missing:
                return {key: self._cache[kind, key] for key in wanted}
            error = await self._attempt(kind, missing, deadline)
            if error is None:
                continue
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                raise error
            await self._context.lifetime.sleep(delay)

    async def _attempt(
        self, kind: CoordinatorKind, keys: list[str], deadline: float
    ) -> RetriableError | None:
        """Send the requests once; return the error that requires a retry, or None."""
        try:
            if not self._updater.snapshot.brokers:
                # The metadata shows if the bootstrap servers lead to another cluster.
                await self._updater.refresh(deadline - self._loop.time(), tracked=False)
            connection = self._brokers.least_loaded(self._loop.time())
            if connection is None:
                return KafkaConnectionError(
                    "no known broker can be connected to find the coordinator"
                )
            left = deadline - self._loop.time()
            timeout = min(left, seconds(self._context.config.request_timeout_ms))
            # A broker that is slow to connect continues connecting while others are tried.
            await connection.connect(min(timeout, CONNECT_HEDGE_AFTER))
            batched = connection.version(_FIND_COORDINATOR) >= _MULTIPLE_KEYS_MIN_VERSION
            for request in _requests(kind, keys, batched=batched):
                response = await connection.send(request, timeout=timeout)
                asked = request.coordinator_keys if batched else [request.key]
                self._store(kind, asked, _coordinators(response, request, batched=batched))
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            self._updater.request_update()
            return error
        except RetriableError as error:
            return error
        return None

    def _store(
        self, kind: CoordinatorKind, keys: Iterable[str], rows: Iterable[Coordinator]
    ) -> None:
        """Cache the coordinators that were found, then raise the error of a key without one."""
        # Found ones are cached before the error of another key is raised.
        failure: KafkaError | None = None
        for row in requested_rows(keys, {row.key: row for row in rows}).values():
            if isinstance(row, KafkaError):
                failure = row
            elif row.error_code:
                failure = error_for(
                    row.error_code,
                    f"{row.key}: {row.error_message or ''}".strip(": "),
                    needs="DESCRIBE",
                    name=row.key,
                )
            elif row.node_id < 0:
                failure = CoordinatorNotAvailableError(f"{row.key} has no coordinator yet")
            else:
                # FindCoordinator may know a broker before metadata does.
                self._updater.update_broker(Node(row.node_id, row.host, row.port))
                self._cache[kind, row.key] = row.node_id
        if failure is not None:
            raise failure


def _requests(
    kind: CoordinatorKind, keys: list[str], *, batched: bool
) -> list[FindCoordinatorRequest]:
    from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest

    if batched:
        return [FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)]
    return [FindCoordinatorRequest(key=key, key_type=kind) for key in keys]


def _coordinators(
    response: FindCoordinatorResponse, request: FindCoordinatorRequest, *, batched: bool
) -> list[Coordinator]:
    from kafka_async.protocol.messages.find_coordinator import Coordinator

    if batched:
        return list(response.coordinators)
    row = Coordinator(
        key=request.key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
    return [row]
