"""Destinations of requests: callers name one, and the request router finds its broker."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kafka_async.types import TopicPartition


class CoordinatorKind(enum.IntEnum):
    """Kinds of coordinators, with the values of FindCoordinator's key type."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class AnyBroker(NamedTuple):
    """The connected broker with the fewest requests in flight."""

    def __str__(self) -> str:
        return "any broker"


class Broker(NamedTuple):
    """The broker with this id."""

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
    AnyBroker | Broker | Leader | CoordinatorOfGroup | CoordinatorOfTransactionalId | Controller
)
DESTINATIONS: Final = (
    *(AnyBroker, Broker, Leader, CoordinatorOfGroup),
    *(CoordinatorOfTransactionalId, Controller),
)
