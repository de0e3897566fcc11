"""What the parts of a consumer's public face have in common."""

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
    from kafka_async.consumer.runtime import Engine

Partitions: TypeAlias = TopicPartition | Iterable[TopicPartition]


class Handle:
    """A consumer, started or not.

    Attributes:
        config: its options.
        client: the connection that it uses; its own unless one was given.
    """

    def __init__(self, config: ConsumerConfig, client: Client) -> None:
        self.config = config
        self.client = client
        self._subscription = Subscription()
        name = f"Consumer {config.group_id or config.client_id}"
        self._supervisor = Supervisor(name, client.hooks)
        self._running: Engine | None = None
        self._convert = converter_of(config)
        self._stopped = False

    @property
    def _engine(self) -> Engine:
        """The parts, of a consumer that is started and can go on here."""
        engine = self._running
        if self._stopped:
            raise ClientClosedError(f"{self._supervisor.name} is closed")
        if engine is None:
            raise ClientClosedError(
                f"{self._supervisor.name} was not started: use `async with`, or await start() first"
            )
        engine.check()
        return engine

    def _limit(self, timeout: float | None) -> float:
        check_timeout(timeout, unlimited="default_api_timeout_ms")
        return seconds(self.config.default_api_timeout_ms) if timeout is None else timeout

    def _chosen(self, partitions: Partitions) -> list[TopicPartition]:
        return topic_partitions(partitions) or list(self._subscription.assignment)
