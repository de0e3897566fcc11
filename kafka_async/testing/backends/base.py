"""The interface of backends; some can also stop single brokers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypedDict, runtime_checkable

if TYPE_CHECKING:
    from kafka_async.testing.backends.security import ClusterSecurity


class ClusterOptions(TypedDict, total=False):
    """Options of a cluster; a backend ignores unsupported ones."""

    brokers: int
    """Number of brokers; default 1."""
    auto_create_topics: bool
    """Create a topic when a client first uses it; default True."""
    default_partitions: int
    """Number of partitions of a topic created without a number; default 1."""
    racks: Sequence[str]
    """Rack of each broker, in the order of ids; default: none. Consumers with a `client_rack` then
    fetch from the closest replica (KIP-392)."""
    properties: Mapping[str, str]
    """Additional server.properties, for backends that run Apache Kafka."""
    jvm_options: Sequence[str]
    """Additional options of the brokers' JVMs, for backends that run Apache Kafka from its jars."""
    security: ClusterSecurity
    """Secure listeners, users and an authorizer; default: plaintext, without an authorizer."""


class BackendUnavailableError(RuntimeError):
    """This machine cannot run the backend; the message includes what to install."""


class Backend(ABC):
    """Starts and stops a Kafka cluster with blocking calls."""

    def __init__(self, name: str, options: ClusterOptions) -> None:
        self.name = name
        """The kind and version of the cluster, such as "apache 4.4.0"."""
        self.brokers = options.get("brokers", 1)
        self.auto_create_topics = options.get("auto_create_topics", True)
        self.default_partitions = options.get("default_partitions", 1)
        self.racks = tuple(options.get("racks", ()))
        if len(self.racks) not in (0, self.brokers):
            raise ValueError(f"{len(self.racks)} racks of {self.brokers} brokers")

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas; only while the cluster runs."""

    @abstractmethod
    def start(self) -> None:
        """Start the cluster and wait for all brokers, or raise BackendUnavailableError."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the cluster and remove its files; may be called again."""

    def failures(self) -> list[str]:
        """Return the internal errors of the cluster since the last call."""
        return []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@runtime_checkable
class BrokerControl(Protocol):
    """Stops and starts single brokers by broker id (the first is 1).

    The calls block: use `await asyncio.to_thread(control.stop_broker, 2)` in an asynchronous test.
    """

    def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down orderly: its leaderships move first."""

    def kill_broker(self, broker_id: int) -> None:
        """Stop a broker as in a crash."""

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker at its former port and wait until it is ready."""
