"""Finds the broker for a destination, and the errors after which to look it up again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from kafka_async.backoff import Backoff
from kafka_async.cluster.request_destinations import (
    AnyBroker,
    Broker,
    Controller,
    CoordinatorKind,
    CoordinatorOfGroup,
    CoordinatorOfTransactionalId,
    Destination,
    Leader,
)
from kafka_async.config import seconds
from kafka_async.errors import (
    BrokerNotAvailableError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    for_code,
)

if TYPE_CHECKING:
    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.brokers import Brokers
    from kafka_async.cluster.connection_context import ConnectionContext
    from kafka_async.cluster.coordinator_lookup import CoordinatorLookup
    from kafka_async.cluster.metadata_updater import MetadataUpdater
    from kafka_async.errors import KafkaError
    from kafka_async.protocol.message import Response
    from kafka_async.types import TopicPartition

_COORDINATOR_ERRORS: Final = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
REROUTE_ERRORS: Final[dict[type[Destination], tuple[type[KafkaError], ...]]] = {
    AnyBroker: (),
    Broker: (),
    Leader: (),
    CoordinatorOfGroup: _COORDINATOR_ERRORS,
    CoordinatorOfTransactionalId: _COORDINATOR_ERRORS,
    Controller: (NotControllerError,),
}
"""Top-level errors of a response after which the destination is looked up again.

COORDINATOR_LOAD_IN_PROGRESS comes from the right broker, which is then found again.
"""


class RequestRouter:
    """Finds the connection for each request of one client."""

    def __init__(
        self,
        context: ConnectionContext,
        brokers: Brokers,
        updater: MetadataUpdater,
        coordinators: CoordinatorLookup,
    ) -> None:
        self._context = context
        self._brokers = brokers
        self._updater = updater
        self._coordinators = coordinators
        self._loop = asyncio.get_running_loop()

    async def connection(self, to: Destination, deadline: float) -> BrokerConnection:
        """Return the general connection to the current broker of a destination.

        Raises:
            LeaderNotAvailableError: The partition had no leader before `deadline`.
            CoordinatorNotAvailableError: There was no coordinator before `deadline`.
            BrokerNotAvailableError: The cluster has no such broker.
            KafkaConnectionError: No broker can be connected.
            KafkaTimeoutError: No broker responded before `deadline`.
        """
        match to:
            case AnyBroker():
                return await self._any(deadline)
            case Controller():
                return await self._controller(deadline)
            case Broker(node_id):
                return await self._broker(node_id, deadline)
            case Leader(partition):
                return self._brokers.general(await self._leader(partition, deadline))
            case CoordinatorOfGroup(key):
                return await self._coordinator(CoordinatorKind.GROUP, key, deadline)
            case CoordinatorOfTransactionalId(key):
                return await self._coordinator(CoordinatorKind.TRANSACTION, key, deadline)

    def must_reroute(self, to: Destination, response: Response) -> bool:
        """Return True and forget the broker if a response's error is one of REROUTE_ERRORS."""
        code: int = getattr(response, "error_code", 0)
        if not code or for_code(code) not in REROUTE_ERRORS[type(to)]:
            return False
        self.forget(to)
        return True

    def forget(self, to: Destination) -> None:
        """Look the destination's broker up again on its next use: it is wrong or not reachable."""
        match to:
            case CoordinatorOfGroup(key):
                self._coordinators.forget(CoordinatorKind.GROUP, key)
            case CoordinatorOfTransactionalId(key):
                self._coordinators.forget(CoordinatorKind.TRANSACTION, key)
            case _:
                self._updater.request_update()

    async def _any(self, deadline: float) -> BrokerConnection:
        now = self._loop.time()
        connection = self._brokers.least_loaded(now)
        if connection is not None:
            return connection
        self._updater.request_update()
        wait = self._brokers.available_at() - now
        if now + wait >= deadline:
            raise KafkaConnectionError("no known broker can be connected before the deadline")
        await self._context.lifetime.sleep(wait)
        return await self._any(deadline)

    async def _broker(self, node_id: int, deadline: float) -> BrokerConnection:
        if node_id not in self._updater.snapshot.brokers:
            snapshot = await self._updater.refresh(deadline - self._loop.time())
            if node_id not in snapshot.brokers:
                known = ", ".join(map(str, sorted(snapshot.brokers)))
                raise BrokerNotAvailableError(
                    f"the cluster has no broker {node_id} now; it has {known}"
                )
        return self._brokers.general(node_id)

    async def _controller(self, deadline: float) -> BrokerConnection:
        snapshot = self._updater.snapshot
        if snapshot.controller_id not in snapshot.brokers:
            snapshot = await self._updater.refresh(deadline - self._loop.time())
        node_id = snapshot.controller_id
        if node_id not in snapshot.brokers:  # with KRaft every broker forwards to the controller
            node_id = random.choice(list(snapshot.brokers))
        assert node_id is not None
        return self._brokers.general(node_id)

    async def _leader(self, partition: TopicPartition, deadline: float) -> int:
        config = self._context.config
        backoff = Backoff(seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms))
        topics = [partition.topic]
        await self._updater.wait_for_topics(topics, deadline - self._loop.time())
        while True:
            found = self._updater.snapshot.leader(partition)
            if found is not None:
                return found.leader_id
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                raise LeaderNotAvailableError(topic=partition.topic, partition=partition.partition)
            await self._updater.refresh(deadline - self._loop.time(), topics=topics)
            if self._updater.snapshot.leader(partition) is None:
                await self._context.lifetime.sleep(delay)

    async def _coordinator(
        self, kind: CoordinatorKind, key: str, deadline: float
    ) -> BrokerConnection:
        node_id = await self._coordinators.find(kind, key, deadline)
        return self._brokers.general(node_id)
