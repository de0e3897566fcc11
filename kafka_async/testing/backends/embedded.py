"""The embedded cluster, on a thread with an event loop of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kafka_async.testing.backends.base import Backend, ClusterOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kafka_async.embedded import BlockingCluster


class EmbeddedBackend(Backend):
    """The embedded cluster: it needs nothing but Python.

    `cluster` has its faults and its controls, for any thread.
    """

    def __init__(self, **options: Unpack[ClusterOptions]) -> None:
        super().__init__("embedded", options)
        self._host: AbstractContextManager[BlockingCluster] | None = None
        self._cluster: BlockingCluster | None = None
        self._told = 0

    @property
    def cluster(self) -> BlockingCluster:
        """The cluster itself; only while it runs."""
        if self._cluster is None:
            raise RuntimeError("the embedded cluster was not started")
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, by commas."""
        return self.cluster.bootstrap_servers

    def start(self) -> None:
        """Start the thread and the cluster in it."""
        from kafka_async.embedded import run_in_thread

        self._host = run_in_thread(
            self.brokers,
            auto_create_topics=self.auto_create_topics,
            default_partitions=self.default_partitions,
            min_insync_replicas=min(self.brokers, 2),
            group_min_session_timeout_ms=500,
            log_retention_check_interval_ms=86_400_000,  # tests write records of any age
        )
        self._cluster = self._host.__enter__()
        self._told = 0

    def stop_broker(self, broker_id: int) -> None:
        """Take a broker down; its leaderships move."""
        self.cluster.stop_broker(broker_id)

    def kill_broker(self, broker_id: int) -> None:
        """Take a broker down: an embedded broker always goes down as in a crash."""
        self.cluster.stop_broker(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Bring a broker back at the port it had."""
        self.cluster.start_broker(broker_id)

    def failures(self) -> list[str]:
        """What broke in the cluster itself since it was last asked: bugs, each told once."""
        told, self._told = self._told, len(self.cluster.failures)
        return [f"{one.where}: {one.error!r}" for one in self.cluster.failures[told:]]

    def stop(self) -> None:
        """Stop the cluster and its thread."""
        host, self._host, self._cluster = self._host, None, None
        if host is not None:
            host.__exit__(None, None, None)
