"""Base of the consumer's public classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from kafka_async.arguments import check_timeout, topic_partitions
from kafka_async.config import seconds
from kafka_async.consumer.deserialize import converter_of
from kafka_async.consumer.subscription import Subscription
from kafka_async.errors import ClientClosedError
from kafka_async.supervisor import Supervisor
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.runtime import ConsumerRuntime

Partitions: TypeAlias = TopicPartition | Iterable[TopicPartition]


class ConsumerBase:
    """A consumer, started or not.

    Attributes:
        config: The options.
        client: The client whose connections and metadata are used; shared if one was given.
    """

    def __init__(self, config: ConsumerConfig, client: Client) -> None:
        self.config = config
        self.client = client
        self._subscription = Subscription()
        name = f"Consumer {config.group_id or config.client_id}"
        self._supervisor = Supervisor(name, client.hooks)
        self._runtime: ConsumerRuntime | None = None
        self._convert = converter_of(config)
        self._stopped = False

    @property
    def _active_runtime(self) -> ConsumerRuntime:
        """Runtime of a consumer that is started and not stopped.

        Raises:
            ClientClosedError: The consumer is not started, or is stopped.
        """
        runtime = self._runtime
        if self._stopped:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        if runtime is None:
            raise ClientClosedError(
                f"{self._supervisor.name} was not started: use `async with`, or await start() first"
            )
        runtime.check()
        return runtime

    def _limit(self, timeout: float | None) -> float:
        check_timeout(timeout, unlimited="default_api_timeout_ms")
        return seconds(self.config.default_api_timeout_ms) if timeout is None else timeout

    def _chosen(self, partitions: Partitions) -> list[TopicPartition]:
        return topic_partitions(partitions) or list(self._subscription.assignment)
