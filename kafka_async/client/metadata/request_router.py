"""Finds the broker for a request: the destinations that callers give, and how each is resolved."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.errors import (
    BrokerNotAvailableError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    RefreshRetriableError,
    for_code,
)

if TYPE_CHECKING:
    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.client.connection.brokers import Brokers
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.client.metadata.coordinator_lookup import CoordinatorLookup
    from kafka_async.client.metadata.metadata_updater import MetadataUpdater
    from kafka_async.errors import KafkaError
    from kafka_async.protocol.message import Response
    from kafka_async.types import TopicPartition


class AnyBroker(NamedTuple):
    """The connected broker with the fewest requests in flight."""

    def __str__(self) -> str:
        return "any broker"


class Broker(NamedTuple):
    """The broker with this id."""

    node_id: int

    def __str__(self) -> str:
        return f"broker {self.node_id}"


class FoundBroker(NamedTuple):
    """The broker with this id, which a response has named as leader or coordinator.

    If it has left the cluster since, the request fails with a RefreshRetriableError, after which
    the caller looks up the leader or coordinator again.
    """

    node_id: int

    def __str__(self) -> str:
        return f"broker {self.node_id}"


class Leader(NamedTuple):
    """The leader of a partition."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"the leader of {self.partition}"


class CoordinatorOfGroup(NamedTuple):
    """The coordinator of a group."""

    group_id: str

    def __str__(self) -> str:
        return f"the coordinator of group {self.group_id}"


class CoordinatorOfTransactionalId(NamedTuple):
    """The coordinator of a transactional id."""

    transactional_id: str

    def __str__(self) -> str:
        return f"the coordinator of transactional id {self.transactional_id}"


class Controller(NamedTuple):
    """The broker that handles requests that change the cluster."""

    def __str__(self) -> str:
        return "the controller"


Destination: TypeAlias = (
    AnyBroker
    | Broker
    | FoundBroker
    | Leader
    | CoordinatorOfGroup
    | CoordinatorOfTransactionalId
    | Controller
)

SLOW_APIS: Final = frozenset({19, 20, 21, 30, 31, 37, 38, 39, 40, 42, 43, 45, 51, 57})
"""APIs whose responses wait for the cluster: CreateTopics, DeleteTopics, DeleteRecords, CreateAcls,
DeleteAcls, CreatePartitions, CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken,
DeleteGroups, ElectLeaders, AlterPartitionReassignments, AlterUserScramCredentials,
UpdateFeatures."""
_COORDINATOR_ERRORS: Final = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
REROUTE_ERRORS: Final[dict[type[Destination], tuple[type[KafkaError], ...]]] = {
    AnyBroker: (),
    Broker: (),
    FoundBroker: (),
    Leader: (),
    CoordinatorOfGroup: _COORDINATOR_ERRORS,
    CoordinatorOfTransactionalId: _COORDINATOR_ERRORS,
    Controller: (NotControllerError,),
}
"""Top-level errors of a response after which the destination is looked up again.

COORDINATOR_LOAD_IN_PROGRESS comes from the right broker, which the lookup then finds again.
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

    async def connection(self, to: Destination, api_key: int, deadline: float) -> BrokerConnection:
        """Return the shared connection for a request: general, or slow for `SLOW_APIS`.

        Raises the errors of `Client.request`.
        """
        connection = await self._general(to, deadline)
        return self._brokers.slow(connection.node_id) if api_key in SLOW_APIS else connection

    def must_reroute(self, to: Destination, response: Response) -> bool:
        """Return True and forget the broker if a response's error is one of REROUTE_ERRORS."""
        code: int = getattr(response, "error_code", 0)
        if not code or for_code(code) not in REROUTE_ERRORS[type(to)]:
            return False
        self.forget(to)
        return True

    def forget(self, to: Destination) -> None:
        """Look up the destination's broker again on its next use: it is wrong or not reachable."""
        match to:
            case CoordinatorOfGroup(key):
                self._coordinators.forget(CoordinatorKind.GROUP, key)
            case CoordinatorOfTransactionalId(key):
                self._coordinators.forget(CoordinatorKind.TRANSACTION, key)
            case _:
                self._updater.request_update()

    async def _general(self, to: Destination, deadline: float) -> BrokerConnection:
        left = deadline - self._loop.time()
        match to:
            case AnyBroker():
                return await self._any(deadline)
            case Controller():
                node_id = await self._controller(deadline)
            case Broker():
                node_id = await self._broker(to.node_id, deadline)
            case FoundBroker():
                try:
                    node_id = await self._broker(to.node_id, deadline)
                # Another lookup may name a broker that exists.
                except BrokerNotAvailableError as error:
                    raise RefreshRetriableError(str(error.message)) from error
            case Leader(partition):
                node_id = await self._leader(partition, deadline)
            case CoordinatorOfGroup(key):
                node_id = await self._coordinators.find(CoordinatorKind.GROUP, key, left)
            case CoordinatorOfTransactionalId(key):
                node_id = await self._coordinators.find(CoordinatorKind.TRANSACTION, key, left)
        return self._brokers.general(node_id)

    async def _any(self, deadline: float) -> BrokerConnection:
        now = self._loop.time()
        # Ends with a connection, or when no backoff ends before the deadline.
        connection = self._brokers.least_loaded(now)
        if connection is not None:
            return connection
        self._updater.request_update()
        wait = self._brokers.available_at() - now
        if now + wait >= deadline:
            raise KafkaConnectionError("no known broker can be connected before the deadline")
        await self._context.lifetime.sleep(wait)
        return await self._any(deadline)

    async def _broker(self, node_id: int, deadline: float) -> int:
        # It may have joined the cluster since the last update.
        if node_id not in self._updater.snapshot.brokers:
            snapshot = await self._updater.refresh(deadline - self._loop.time(), tracked=False)
            if node_id not in snapshot.brokers:
                known = ", ".join(map(str, sorted(snapshot.brokers)))
                raise BrokerNotAvailableError(
                    f"the cluster has no broker {node_id} now; it has {known}"
                )
        return node_id

    async def _controller(self, deadline: float) -> int:
        snapshot = self._updater.snapshot
        if snapshot.controller_id not in snapshot.brokers:
            snapshot = await self._updater.refresh(deadline - self._loop.time(), tracked=False)
        node_id = snapshot.controller_id
        if node_id not in snapshot.brokers:  # with KRaft every broker forwards to the controller
            node_id = random.choice(list(snapshot.brokers))
        assert node_id is not None
        return node_id

    async def _leader(self, partition: TopicPartition, deadline: float) -> int:
        backoff = self._context.retry_backoff()
        topics = [partition.topic]
        await self._updater.wait_for_topics(topics, deadline - self._loop.time())
        while True:
            found = self._updater.snapshot.leader(partition)
            if found is not None:
                return found.leader_id
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                unknown = self._updater.snapshot.unknown_partition(partition)
                # A partition that does not exist has no leader either.
                raise unknown or LeaderNotAvailableError(
                    topic=partition.topic, partition=partition.partition
                )
            left = deadline - self._loop.time()
            await self._updater.refresh(left, tracked=False, topics=topics)
            # A new leader is used at once.
            if self._updater.snapshot.leader(partition) is None:
                await self._context.lifetime.sleep(delay)
