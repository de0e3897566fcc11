"""What stands behind the fixture `kafka_cluster`: the session's clusters, and a test's handle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
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
    """A running cluster as one test sees it: an address, and names that no other test uses."""

    def __init__(self, cluster: Backend, cleanup: TopicCleanup) -> None:
        self.cluster = cluster
        """The backend itself: an `EmbeddedBackend`, an `ApacheBackend` ..."""
        self._cleanup = cleanup
        self._suffix = uuid.uuid4().hex[:8]
        self._named: set[str] = set()
        self._before = cleanup.listed()

    @property
    def backend(self) -> str:
        """Which kind of cluster it is: "embedded", "apache", "docker" or "external"."""
        return self.cluster.name.partition(" ")[0]

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, by commas."""
        return self.cluster.bootstrap_servers

    @property
    def control(self) -> BrokerControl:
        """Control of its single brokers; skips the test on a backend that has none."""
        if not isinstance(self.cluster, BrokerControl):
            pytest.skip(f"{self.cluster.name} has no control of single brokers")
        return self.cluster

    @property
    def faults(self) -> Faults:
        """Rules for faults, removed after the test; skips it on a backend without faults."""
        if not isinstance(self.cluster, EmbeddedBackend):
            pytest.skip(f"{self.cluster.name} has no faults: run it with --kafka-backend embedded")
        return self.cluster.cluster.faults

    def reset(self) -> None:
        """Remove the rules for faults, so that what hangs goes on, and the test's topics.

        On the embedded cluster these are all that were created during the test, else those whose
        names `topic` has returned. Groups stay: their ids are not used again.
        """
        if isinstance(self.cluster, EmbeddedBackend):
            self.cluster.cluster.faults.clear()
        self._cleanup.delete(self._named | (self._cleanup.listed() - self._before))

    async def produce(self, topic: str, values: Sequence[bytes | None]) -> None:
        """Append a record for each value; returns when all are acknowledged."""
        from kafka_async.producer.producer import Producer

        async with Producer(self.bootstrap_servers) as producer:
            await producer.send_many(topic, values)

    async def read(self, topic: str, *, timeout: float = 30.0) -> list[Record]:
        """Return all committed records of a topic, each partition's in order of offset.

        Raises:
            TimeoutError: they were not read within `timeout` seconds.
            UnknownTopicOrPartitionError: there is no such topic.
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
        """Return the name of a topic of this test, the same for the same prefix.

        The topic is not created by this call, and is deleted after the test if it exists.
        """
        name = f"{prefix}-{self._suffix}"
        self._named.add(name)
        return name

    def group(self, prefix: str = "group") -> str:
        """The id of a group of this test; the same for the same prefix."""
        return f"{prefix}-{self._suffix}"

    def transactional_id(self, prefix: str = "transactions") -> str:
        """A transactional id of this test; the same for the same prefix."""
        return f"{prefix}-{self._suffix}"


class Clusters:
    """The clusters of a test session: each is started when it is first asked for, and only once.

    `record` takes ("kafka_backend", name) for each that ran, and ("not_run", reason)
    for each that could not: pytest's `record_testsuite_property`.
    """

    def __init__(self, options: ClusterOptions, record: Callable[[str, object], None]) -> None:
        self._options = options
        self._record = record
        self._running: dict[str, tuple[Backend, TopicCleanup]] = {}
        self._missing: dict[str, str] = {}
        self._broken: dict[str, Exception] = {}
        self._stack = ExitStack()

    def handle(self, name: str) -> ClusterHandle:
        """A test's handle of the backend that `name` names.

        Where this machine cannot run it, the test is skipped with the reason, and fails if CI=true.
        """
        if name not in {*self._running, *self._missing, *self._broken}:
            self._start(name)
        if name in self._broken:  # it is not tried again: each test would wait as long as the first
            raise self._broken[name]
        if name in self._missing:
            report = pytest.fail if in_ci() else pytest.skip
            report(f"no Kafka backend {name}: {self._missing[name]}")
        return ClusterHandle(*self._running[name])

    def _start(self, name: str) -> None:
        backend = create_backend(name, self._options)
        try:
            cluster = self._stack.enter_context(backend)
        except BackendUnavailableError as error:
            self._missing[name] = str(error)
            self._record("not_run", f"{backend.name} ({error})")
        except Exception as error:  # noqa: BLE001  # whatever it is, every later test must hear it
            self._broken[name] = error
        else:
            cleanup = TopicCleanup(cluster)
            self._stack.callback(cleanup.close)  # before the cluster is stopped
            self._running[name] = (cluster, cleanup)
            self._record("kafka_backend", backend.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
