"""What can be observed: every event a typed, frozen value, and the one helper that tells listeners.

Emitting costs one attribute test while nobody listens: `if hooks.active: hooks.emit(Event(...))`.
A listener that raises is logged and never disturbs the client. No event carries a record's bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.hooks")


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events; `client_id` says whose."""

    client_id: str


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """A connection is open and authenticated. `seconds` is what opening took."""

    node_id: int
    host: str
    port: int
    connection: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """A connection has ended; `error` is None if we closed it."""

    node_id: int
    connection: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class RequestSent(Event):
    """A request was handed to the transport."""

    node_id: int
    api_key: int
    api_version: int
    correlation_id: int
    size: int


@dataclass(frozen=True, slots=True)
class ResponseReceived(Event):
    """The response has arrived; `seconds` is the round trip, the broker's work included."""

    node_id: int
    api_key: int
    correlation_id: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """A broker asked for a pause (KIP-219)."""

    node_id: int
    api_key: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rebootstrapped(Event):
    """The client forgot the cluster's brokers and asked the bootstrap servers again (KIP-1102)."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchClosed(Event):
    """A producer's batch is sealed and waits to be sent; sizes in bytes."""

    partition: TopicPartition
    records: int
    size: int
    compressed_size: int


@dataclass(frozen=True, slots=True)
class BatchAcknowledged(Event):
    """A producer's batch is written; `seconds` since it was closed."""

    partition: TopicPartition
    records: int
    base_offset: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchFailed(Event):
    """A producer's batch will not be written."""

    partition: TopicPartition
    records: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class RebalanceBegun(Event):
    """The member is (re)joining its group."""

    group_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RebalanceEnded(Event):
    """The member has its assignment of a generation."""

    group_id: str
    generation: int
    member_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(Event):
    """Partitions that are newly this consumer's."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(Event):
    """Partitions that this consumer gives up in good order."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsLost(Event):
    """Partitions that somebody else may own already."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Fetched(Event):
    """A fetch brought data; `size` in bytes."""

    node_id: int
    partitions: int
    size: int


@dataclass(frozen=True, slots=True)
class Committed(Event):
    """Offsets were committed; `offsets` maps a partition to the next offset to read."""

    group_id: str
    offsets: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class TransactionEnded(Event):
    """A transaction was committed or aborted."""

    transactional_id: str
    committed: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskDied(Event):
    """A task of the client died, and the client with it."""

    task: str
    error: BaseException


E = TypeVar("E", bound=Event)
Listener: TypeAlias = Callable[[Event], None]


class Hooks:
    """The listeners of one client. Listeners are called in the client's loop and must not block."""

    __slots__ = ("_listeners", "active")

    def __init__(self) -> None:
        self._listeners: tuple[tuple[type[Event], Listener], ...] = ()
        self.active = False

    def listen(self, event: type[E], listener: Callable[[E], None]) -> Callable[[], None]:
        """Call `listener` for every event of a class (`Event`: all); returns how to undo it."""
        if not (isinstance(cast("object", event), type) and issubclass(event, cast("Any", Event))):
            raise TypeError(f"event must be a class of kafka_async.hooks, not {event!r:.60}")
        if not callable(listener):
            raise TypeError(f"listener must be callable, not {listener!r:.60}")
        entry: tuple[type[Event], Listener] = (event, listener)  # type: ignore[assignment]  # narrowed by emit
        self._listeners += (entry,)
        self.active = True

        def remove() -> None:
            self._listeners = tuple(kept for kept in self._listeners if kept is not entry)
            self.active = bool(self._listeners)

        return remove

    def emit(self, event: Event) -> None:
        """Tell everyone who listens for this event."""
        for wanted, listener in self._listeners:
            if isinstance(event, wanted):
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener for %s raised", type(event).__name__)
