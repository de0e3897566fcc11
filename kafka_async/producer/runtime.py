"""The running parts of a producer, which its public calls and its transactions use."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from kafka_async.config import seconds
from kafka_async.errors import ClientClosedError, KafkaTimeoutError
from kafka_async.foundation.clock import time_function
from kafka_async.foundation.fairness import MAX_ITEMS_PER_ITERATION
from kafka_async.producer.buffer.accumulator import Accumulator
from kafka_async.producer.buffer.buffer_pool import BufferPool
from kafka_async.producer.buffer.delivery_failures import DeliveryFailures, FailureWarnings
from kafka_async.producer.buffer.producer_metrics import ProducerMetrics
from kafka_async.producer.sender import Sender
from kafka_async.serde.functions import serializer

if TYPE_CHECKING:
    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ProducerConfig
    from kafka_async.errors import KafkaError
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.producer.interceptors import ProducerInterceptors
    from kafka_async.producer.statistics import ProducerStatistics
    from kafka_async.serde.functions import Serialize

__all__ = ["ProducerRuntime", "Serializers"]


class Serializers(NamedTuple):
    """The producer's serializers, as functions of three arguments."""

    key: Serialize | None
    value: Serialize | None

    @classmethod
    def from_config(cls, config: ProducerConfig) -> Serializers:
        """Return the serializers; raise InvalidConfigurationError for one of an unknown form."""
        return cls(
            serializer("key_serializer", config.key_serializer),
            serializer("value_serializer", config.value_serializer),
        )


class ProducerRuntime:
    """Builds the parts of a started producer, runs its sender, and delivers what was appended.

    Attributes:
        supports_fast_path: The kernel may append records to open batches.
        interceptors: The interceptors, or None.
        max_block: `max_block_ms` in seconds.
        now: Returns the time of appends in seconds, as `Sender.now`.
        wall: Returns the seconds since the epoch, for the timestamps of records.
    """

    def __init__(
        self,
        config: ProducerConfig,
        services: ClientServices,
        supervisor: Supervisor,
        serializers: Serializers,
        interceptors: ProducerInterceptors | None,
    ) -> None:
        loop = supervisor.loop
        # What the calls of the producer and its transactions read.
        self.config = config
        self.services = services
        self.supervisor = supervisor
        self.serializers = serializers
        self.interceptors = interceptors
        self.rng = random.Random()
        self.now = time_function(loop)
        self.wall = services.clock.wall
        self.max_block = seconds(config.max_block_ms)
        # The kernel appends bytes as they are, and chooses partitions as the default partitioner
        # does.
        self.supports_fast_path = (
            serializers.key is None
            and serializers.value is None
            and config.partitioner is None
            and interceptors is None
        )
        # The buffer, and the sender that empties it.
        self.buffer_pool = BufferPool(config.buffer_memory, loop.create_future)
        self._metrics = ProducerMetrics(config.client_id, services.hooks)
        # The next transactional call raises the failures of a transactional producer.
        self._warnings = None
        if config.transactional_id is None:
            self._warnings = FailureWarnings(loop, self.now)
        self.accumulator = Accumulator(
            config,
            self.buffer_pool,
            DeliveryFailures(self._warnings),
            self._metrics,
            loop.create_future,
            self.rng,
            self._wake_sender,
            services.brokers.outage_error,
        )
        self.sender = Sender(
            config, services, self.accumulator, self._metrics, supervisor, self.rng
        )
        # If a task of the producer or of its client dies, no record may stay pending.
        supervisor.on_failure(self.fail_all)
        self._remove_failure_listener = services.supervisor.on_failure(self.fail_all)
        self._remove_cluster_listener = services.metadata.cluster_listeners.add(
            self._on_cluster_changed
        )
        self._sending = supervisor.spawn(self.sender.run, name="sender")

    def _wake_sender(self) -> None:
        # A method, since the sender and the accumulator call each other.
        self.sender.wakeup()

    @property
    def last_error(self) -> Exception | None:
        """Error of the last batch, connection attempt or producer id request that failed."""
        return self._metrics.last_error

    def statistics(self) -> ProducerStatistics:
        """Return counts since the start."""
        usage = self.services.quota_usage.percentages(self.now())
        return self._metrics.snapshot(self.sender.in_flight, self.buffer_pool, usage)

    async def flush(self) -> None:
        """Wait until everything appended so far is acknowledged or has failed."""
        outcomes = self.accumulator.begin_flush()
        try:
            for number, outcome in enumerate(outcomes, 1):
                await outcome.wait_completed()
                if number % 1_000 == 0:  # completed outcomes do not suspend this task
                    await asyncio.sleep(0)
        finally:
            self.accumulator.end_flush()

    async def flush_before_stop(self, deadline: float, timeout: float) -> None:
        """Flush until a deadline, then fail what is left; `timeout` is for its error."""
        try:
            async with asyncio.timeout_at(deadline):
                await self.flush()
        except TimeoutError:
            error = KafkaTimeoutError(
                f"not delivered within the {timeout:g} s that stop() had: give it more, or raise "
                "close_timeout_ms"
            )
            self.sender.stop_sending()  # batches that are about to fail must not be sent
            # There may be thousands of batches: yield to the event loop between groups of them.
            while self.accumulator.fail_oldest(error, self.now(), MAX_ITEMS_PER_ITERATION):  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def stop(self) -> list[BrokerConnection]:
        """Stop sending and fail what is left; return the connections for the caller to close."""
        self._remove_failure_listener()
        self._remove_cluster_listener()
        self._sending.cancel()
        await self._sending.wait()
        self.fail_all(ClientClosedError(f"{self.supervisor.name} is closed"))
        if self._warnings is not None:
            self._warnings.clear()
        return self.sender.release_connections()

    def fail_all(self, error: KafkaError) -> None:
        """Fail all that is not acknowledged, in flight or not."""
        self.accumulator.fail_all(error, self.now())
        # Callers that wait for memory would otherwise wait for records that were just failed.
        self.buffer_pool.wake_all_waiters()

    def _on_cluster_changed(self) -> None:
        """Continue with a producer id of the cluster that the client follows now.

        The transaction manager does the same for a transactional producer.
        """
        if self.config.transactional_id is None:
            self.accumulator.forget_producer_id(self.now())
