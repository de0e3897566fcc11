"""Events of clients, and the hooks that pass them to listeners.

Every event is a frozen, typed value. Without listeners, emitting costs one attribute test: `if
hooks.active: hooks.emit(RequestSent(...))`. An exception in a listener is logged and does not
affect the client. No event contains record contents.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from kafka_async.foundation.arguments import plain_function

if TYPE_CHECKING:
    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.hooks")


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """Base class of all events.

    Attributes:
        client_id: The `client_id` of the client.
    """

    client_id: str


@dataclass(frozen=True, slots=True)
class Connected(ClientEvent):
    """A connection was opened.

    Attributes:
        node_id: Id of the broker; negative for a bootstrap server.
        host: Host name or address.
        port: Port.
        kind: Purpose of the connection: "general", "slow", "produce", "fetch" or "coordinator".
        seconds: Time it took to open.
    """

    node_id: int
    host: str
    port: int
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Authenticated(ClientEvent):
    """A connection was authenticated by SASL.

    Attributes:
        node_id: Id of the broker; negative for a bootstrap server.
        kind: Purpose of the connection, as in `Connected`.
        mechanism: Name of the mechanism, such as "SCRAM-SHA-256".
        seconds: Time it took.
        reauthentication: True if the connection was open (KIP-368).
        session_lifetime: Seconds for which the broker accepts requests; None: without a limit.
    """

    node_id: int
    kind: str
    mechanism: str
    seconds: float
    reauthentication: bool
    session_lifetime: float | None


@dataclass(frozen=True, slots=True)
class AuthenticationFailed(ClientEvent):
    """A connection was not authenticated by SASL and is closed; attributes as `Authenticated`.

    Attributes:
        node_id: Id of the broker.
        kind: Purpose of the connection.
        mechanism: Name of the mechanism.
        seconds: Time until it failed.
        reauthentication: True if the connection was open.
        error: The cause.
    """

    node_id: int
    kind: str
    mechanism: str
    seconds: float
    reauthentication: bool
    error: BaseException


@dataclass(frozen=True, slots=True)
class Disconnected(ClientEvent):
    """A connection has ended.

    Attributes:
        node_id: Id of the broker; negative for a bootstrap server.
        kind: Purpose of the connection, as in `Connected`.
        error: The cause; None if the client closed the connection.
    """

    node_id: int
    kind: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class RequestSent(ClientEvent):
    """A request was written; `api` is the API's name, such as "Produce", `size` is in bytes."""

    node_id: int
    api_key: int
    api: str
    api_version: int
    correlation_id: int
    size: int


@dataclass(frozen=True, slots=True)
class ResponseReceived(ClientEvent):
    """A response was received `seconds` after its request; `api` and `size` as in `RequestSent`."""

    node_id: int
    api_key: int
    api: str
    correlation_id: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Throttled(ClientEvent):
    """A response had a throttle time (KIP-219).

    Until it has passed, the client sends no request to the broker over connections of this kind.

    Attributes:
        node_id: Id of the broker; negative for a bootstrap server.
        api_key: Number of the response's API.
        api: Name of the API, such as "Produce".
        seconds: The throttle time, from now on.
        kind: Purpose of the connection, as in `Connected`.
    """

    node_id: int
    api_key: int
    api: str
    seconds: float
    kind: str


@dataclass(frozen=True, slots=True)
class ThrottleEnded(ClientEvent):
    """A request was sent after waiting for a throttle time to end (KIP-219).

    Attributes:
        node_id: Id of the broker; negative for a bootstrap server.
        api_key: Number of the request's API.
        api: Name of the API, such as "Produce".
        kind: Purpose of the connection, as in `Connected`.
        seconds: Time the request waited.
    """

    node_id: int
    api_key: int
    api: str
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Rebootstrapped(ClientEvent):
    """The client discarded its list of brokers and bootstraps again (KIP-1102)."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchClosed(ClientEvent):
    """A producer's batch was closed for appends; sizes in bytes."""

    partition: TopicPartition
    records: int
    size: int
    compressed_size: int


@dataclass(frozen=True, slots=True)
class BatchAcknowledged(ClientEvent):
    """A producer's batch was acknowledged; `seconds` since it was closed."""

    partition: TopicPartition
    records: int
    base_offset: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchFailed(ClientEvent):
    """A producer's batch failed and is not retried."""

    partition: TopicPartition
    records: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class RebalanceBegun(ClientEvent):
    """A member joins or rejoins its group."""

    group_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RebalanceEnded(ClientEvent):
    """A member received the assignment of a generation; `seconds` since `RebalanceBegun`."""

    group_id: str
    generation: int
    member_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(ClientEvent):
    """Partitions were assigned to the consumer."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(ClientEvent):
    """Partitions were revoked from the consumer, after it could commit."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsLost(ClientEvent):
    """Partitions were lost: another member may own them already."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Fetched(ClientEvent):
    """A fetch response had records; `size` in bytes."""

    node_id: int
    partitions: int
    size: int


@dataclass(frozen=True, slots=True)
class Committed(ClientEvent):
    """Offsets were committed; `offsets` has each partition and its next offset to read."""

    group_id: str
    offsets: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class RecordsAcknowledged(ClientEvent):
    """A broker recorded acknowledgements of a share consumer (KIP-932).

    Attributes:
        group_id: The share group.
        partition: The partition of the records.
        counts: Number of records by type: "accept", "release", "reject" or "renew".
    """

    group_id: str
    partition: TopicPartition
    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AcknowledgementFailed(ClientEvent):
    """Acknowledgements of a share consumer failed, or their outcome is unknown (KIP-932).

    Attributes:
        group_id: The share group.
        partition: The partition of the records.
        counts: Number of records by type, as in `RecordsAcknowledged`.
        error: The cause.
    """

    group_id: str
    partition: TopicPartition
    counts: tuple[tuple[str, int], ...]
    error: BaseException


@dataclass(frozen=True, slots=True)
class TransactionEnded(ClientEvent):
    """A transaction was committed or aborted; `seconds` since it began."""

    transactional_id: str
    committed: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskDied(ClientEvent):
    """A task of the client raised an exception, which stops the client."""

    task: str
    error: BaseException


E = TypeVar("E", bound=ClientEvent)
EventListener: TypeAlias = Callable[[ClientEvent], None]


class Hooks:
    """The listeners of one client.

    Listeners are called in the client's event loop and must not block.

    Attributes:
        active: True if there is any listener.
    """

    __slots__ = ("_listeners", "active")

    def __init__(self) -> None:
        self._listeners: tuple[tuple[type[ClientEvent], EventListener], ...] = ()
        self.active = False

    def listen(self, event: type[E], listener: Callable[[E], None]) -> Callable[[], None]:
        """Call `listener` for every event of a class; return a function that removes it.

        Args:
            event: Class of the events; `ClientEvent` for all.
            listener: A plain function, called with the event.

        Raises:
            TypeError: `event` is not a class of events, or `listener` is not callable or is async.
        """
        if not (
            isinstance(cast("object", event), type) and issubclass(event, cast("Any", ClientEvent))
        ):
            raise TypeError(f"event must be a class of kafka_async.hooks, not {event!r:.60}")
        plain_function(listener, "listener")
        entry: tuple[type[ClientEvent], EventListener] = (event, listener)  # type: ignore[assignment]  # narrowed by emit
        self._listeners += (entry,)
        self.active = True

        def remove() -> None:
            self._listeners = tuple(kept for kept in self._listeners if kept is not entry)
            self.active = bool(self._listeners)

        return remove

    def emit(self, event: ClientEvent) -> None:
        """Pass an event to the listeners of its class."""
        for wanted, listener in self._listeners:
            if isinstance(event, wanted):
                try:
                    listener(event)
                except Exception:
                    logger.exception("a listener for %s raised", type(event).__name__)


def emit_task_died(hooks: Hooks, client: str, task: str, error: BaseException) -> None:
    """Emit `TaskDied`, if there is any listener."""
    if hooks.active:
        hooks.emit(TaskDied(client, task, error))
