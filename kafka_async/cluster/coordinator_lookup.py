"""Which broker coordinates a group or a transactional id: looked up once, kept until it proves
wrong.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_connection import CONNECT_PATIENCE
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

    from kafka_async.cluster.broker import Brokers
    from kafka_async.cluster.connection import ConnectionContext
    from kafka_async.cluster.metadata_updater import MetadataUpdater
    from kafka_async.cluster.request_destinations import CoordinatorKind
    from kafka_async.protocol.messages.find_coordinator import (
        Coordinator,
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )

_FIND_COORDINATOR = 10
_BATCHED_FROM = 4
"""The version of FindCoordinator that takes several keys (KIP-699)."""


class Coordinators:
    """The cache of one client."""

    def __init__(
        self, wiring: ConnectionContext, brokers: Brokers, updater: MetadataUpdater
    ) -> None:
        self._wiring = wiring
        self._brokers = brokers
        self._updater = updater
        self._known: dict[tuple[CoordinatorKind, str], int] = {}
        self._loop = asyncio.get_running_loop()

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """The next use looks it up again."""
        self._known.pop((kind, key), None)

    def forget_all(self) -> None:
        """The cluster may be another one."""
        self._known.clear()

    async def find(self, kind: CoordinatorKind, key: str, deadline: float) -> int:
        """The id of the broker that coordinates `key`; asks until `deadline` (the loop's time).

        Raises:
            CoordinatorNotAvailableError, KafkaTimeoutError: there was none until then.
            KafkaError: the cluster refuses.
        """
        known = self._known.get((kind, key))
        if known is not None:
            return known
        return (await self.find_all(kind, [key], deadline))[key]

    async def find_all(
        self, kind: CoordinatorKind, keys: Iterable[str], deadline: float
    ) -> dict[str, int]:
        """Like `find`, of several keys in as few requests as possible."""
        config = self._wiring.config
        backoff = Backoff(seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms))
        wanted = list(keys)
        while True:
            missing = [key for key in wanted if (kind, key) not in self._known]
            if not missing:
                return {key: self._known[kind, key] for key in wanted}
            error = await self._attempt(kind, missing, deadline)
            if error is None:
                continue
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                raise error
            await self._wiring.lifetime.sleep(delay)

    async def _attempt(
        self, kind: CoordinatorKind, keys: list[str], deadline: float
    ) -> RetriableError | None:
        """Ask once; what it makes sense to try again after, if anything."""
        connection = self._brokers.least_loaded(self._loop.time())
        if connection is None:
            return KafkaConnectionError("no known broker can be connected to find the coordinator")
        left = deadline - self._loop.time()
        timeout = min(left, seconds(self._wiring.config.request_timeout_ms))
        try:
            # A broker that takes long to connect goes on connecting while others are tried.
            await connection.connect(min(timeout, CONNECT_PATIENCE))
            batched = connection.version(_FIND_COORDINATOR) >= _BATCHED_FROM
            for request in _requests(kind, keys, batched=batched):
                answer = await connection.send(request, timeout=timeout)
                self._take(kind, _rows(answer, request, batched=batched))
        except (KafkaConnectionError, KafkaTimeoutError) as error:
            self._updater.nudge()
            return error
        except RetriableError as error:
            return error
        return None

    def _take(self, kind: CoordinatorKind, rows: Iterable[Coordinator]) -> None:
        failure: KafkaError | None = None
        for row in rows:
            if row.error_code:
                failure = error_for(
                    row.error_code, f"{row.key}: {row.error_message or ''}".strip(": ")
                )
            elif row.node_id < 0:
                failure = CoordinatorNotAvailableError(f"{row.key} has no coordinator yet")
            else:
                self._updater.update_broker(Node(row.node_id, row.host, row.port))
                self._known[kind, row.key] = row.node_id
        if failure is not None:
            raise failure


def _requests(
    kind: CoordinatorKind, keys: list[str], *, batched: bool
) -> list[FindCoordinatorRequest]:
    from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest

    if batched:
        return [FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)]
    return [FindCoordinatorRequest(key=key, key_type=kind) for key in keys]


def _rows(
    answer: FindCoordinatorResponse, request: FindCoordinatorRequest, *, batched: bool
) -> list[Coordinator]:
    from kafka_async.protocol.messages.find_coordinator import Coordinator

    if batched:
        return list(answer.coordinators)
    row = Coordinator(
        key=request.key,
        node_id=answer.node_id,
        host=answer.host,
        port=answer.port,
        error_code=answer.error_code,
        error_message=answer.error_message,
    )
    return [row]
