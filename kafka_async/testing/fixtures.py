"""Implementation of the fixture `kafka_cluster`: the session's clusters, and a test's handle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import pytest

from kafka_async.testing.backends import (
    Backend,
    BackendUnavailableError,
    BrokerControl,
    ClusterOptions,
    create_backend,
)
from kafka_async.testing.backends.embedded import EmbeddedBackend
from kafka_async.testing.environment import in_ci
from kafka_async.testing.topic_cleanup import TopicCleanup
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.embedded import Faults
    from kafka_async.kernel import Record


class ClusterHandle:
    """A test's running cluster, with unique names for topics, groups and transactional ids.

    The end of a `with` block deletes the test's topics.
    """

    def __init__(self, cluster: Backend, cleanup: TopicCleanup) -> None:
        self.cluster = cluster
        """The backend, such as an `EmbeddedBackend` or `ApacheBackend`."""
        self._cleanup = cleanup
        self._suffix = uuid.uuid4().hex[:8]
        self._topics: set[str] = set()
        self._existing = cleanup.list_topics()

    @property
    def backend(self) -> str:
        """Kind of the cluster: "embedded", "apache", "docker" or "external"."""
        return self.cluster.name.partition(" ")[0]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        return self.cluster.bootstrap_servers

    @property
    def control(self) -> BrokerControl:
        """Control of single brokers; skips the test on a backend without it."""
        if not isinstance(self.cluster, BrokerControl):
            pytest.skip(f"{self.cluster.name} has no control of single brokers")
        return self.cluster

    @property
    def faults(self) -> Faults:
        """Fault rules, removed after the test; skips the test on a backend without them."""
        if not isinstance(self.cluster, EmbeddedBackend):
            pytest.skip(f"{self.cluster.name} has no faults: run it with --kafka-backend embedded")
        return self.cluster.cluster.faults

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the fault rules, so that held requests continue, and delete the test's topics.

        On the embedded cluster, these are all topics created during the test; on other clusters,
        the topics whose names `topic` returned. Groups are not deleted: their ids are not used
        again.
        """
        if isinstance(self.cluster, EmbeddedBackend):
            self.cluster.cluster.faults.clear()
        self._cleanup.delete(self._topics | (self._cleanup.list_topics() - self._existing))

    async def produce(self, topic: str, values: Sequence[bytes | None]) -> None:
        """Send a record for each value and wait until all are acknowledged."""
        from kafka_async.producer.producer import Producer

        async with Producer(self.bootstrap_servers) as producer:
            await producer.send_many(topic, values)

    async def read(self, topic: str, *, timeout: float = 30.0) -> list[Record]:
        """Return all committed records of a topic, ordered by partition and offset.

        Args:
            topic: The topic.
            timeout: Maximum time in seconds.

        Returns:
            The records.

        Raises:
            TimeoutError: The records were not read within `timeout`.
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        from kafka_async.consumer.consumer import Consumer

        records: list[Record] = []
        async with (
            asyncio.timeout(timeout),
            Consumer(
                self.bootstrap_servers,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer,
        ):
            numbers = await consumer.partitions_for(topic)
            partitions = [TopicPartition(topic, number) for number in numbers]
            ends = await consumer.end_offsets(partitions)
            consumer.assign(partitions)
            await consumer.seek_to_beginning()
            for partition, end in ends.items():
                while await consumer.position(partition) < end:
                    records += await consumer.poll(timeout=0.1)
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def topic(self, prefix: str = "topic") -> str:
        """Return a topic name unique to this test; the same for equal prefixes.

        The call does not create the topic. A topic that exists after the test is deleted.
        """
        name = f"{prefix}-{self._suffix}"
        self._topics.add(name)
        return name

    def group(self, prefix: str = "group") -> str:
        """Return a group id unique to this test; the same for equal prefixes."""
        return f"{prefix}-{self._suffix}"

    def transactional_id(self, prefix: str = "transactions") -> str:
        """Return a transactional id unique to this test; the same for equal prefixes."""
        return f"{prefix}-{self._suffix}"


class Clusters:
    """Starts the clusters of a test session, each once, when it is first requested.

    Args:
        options: The options of the clusters.
        record: pytest's `record_testsuite_property`, called with ("kafka_backend", name) for each
            cluster that ran and ("not_run", reason) for each that this machine cannot run.
    """

    def __init__(self, options: ClusterOptions, record: Callable[[str, object], None]) -> None:
        self._options = options
        self._record = record
        self._started: dict[str, tuple[Backend, TopicCleanup] | Exception] = {}
        self._stack = ExitStack()

    def handle(self, name: str) -> ClusterHandle:
        """Return a test's handle of a backend.

        Where this machine cannot run the backend, the test is skipped, or fails if CI=true.
        """
        if name not in self._started:
            self._started[name] = self._start(name)
        started = self._started[name]
        if isinstance(started, BackendUnavailableError):
            report = pytest.fail if in_ci() else pytest.skip
            report(f"no Kafka backend {name}: {started}")
        if isinstance(started, Exception):  # another attempt would take as long
            raise started
        return ClusterHandle(*started)

    def _start(self, name: str) -> tuple[Backend, TopicCleanup] | Exception:
        backend = create_backend(name, self._options)
        try:
            cluster = self._stack.enter_context(backend)
        except BackendUnavailableError as error:
            self._record("not_run", f"{backend.name} ({error})")
            return error
        except Exception as error:  # noqa: BLE001  # raised in every test that requests it
            return error
        cleanup = TopicCleanup(cluster)
        self._stack.callback(cleanup.close)  # Runs before the cluster is stopped.
        self._record("kafka_backend", backend.name)
        return cluster, cleanup

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
