"""What every backend has: a name, an address, `start` and `stop`; some can stop single brokers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self, TypedDict, runtime_checkable


class ClusterOptions(TypedDict, total=False):
    """What a cluster is like. A backend that cannot do it the asked way leaves it out."""

    brokers: int
    """How many brokers; default 1."""
    auto_create_topics: bool
    """Whether a topic that is asked for is made; default True."""
    default_partitions: int
    """How many partitions a topic has that does not say; default 1."""
    properties: Mapping[str, str]
    """More of server.properties, for backends that run Apache Kafka."""


class BackendUnavailableError(RuntimeError):
    """This machine cannot run the backend; the message says what to install."""


class Backend(ABC):
    """A Kafka cluster that is started, used and stopped by blocking calls."""

    def __init__(self, name: str, options: ClusterOptions) -> None:
        self.name = name
        """What it is, with its version: "apache 4.4.0"."""
        self.brokers = options.get("brokers", 1)
        self.auto_create_topics = options.get("auto_create_topics", True)
        self.default_partitions = options.get("default_partitions", 1)

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, by commas; only while it runs."""

    @abstractmethod
    def start(self) -> None:
        """Start it; returns when all its brokers answer.

        Raises:
            BackendUnavailableError: something that it needs is missing here.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop it and remove what it has written; safe to call again."""

    def failures(self) -> list[str]:
        """What broke in the cluster itself since it was last asked."""
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
    """Control of single brokers, by broker id (the first is 1).

    The calls block: `await asyncio.to_thread(control.stop_broker, 2)` in an asynchronous test.
    """

    def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down in order: it hands its leaderships over."""

    def kill_broker(self, broker_id: int) -> None:
        """End a broker at once, as a power cut does."""

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that is down, at the port it had; returns when it serves."""
