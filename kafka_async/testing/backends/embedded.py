"""The embedded cluster, in a thread that runs its event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from kafka_async.testing.backends.base import Backend, ClusterOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kafka_async.embedded import BlockingCluster


class EmbeddedBackend(Backend):
    """Runs the embedded cluster, which needs no other program.

    `cluster` offers faults and the control of brokers, and may be used from any thread.
    """

    def __init__(self, **options: Unpack[ClusterOptions]) -> None:
        super().__init__("embedded", options)
        self._thread: AbstractContextManager[BlockingCluster] | None = None
        self._cluster: BlockingCluster | None = None
        self._reported_failures = 0

    @property
    def cluster(self) -> BlockingCluster:
        """The cluster, only while it runs."""
        if self._cluster is None:
            raise RuntimeError("the embedded cluster was not started")
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        return self.cluster.bootstrap_servers

    def start(self) -> None:
        """Start the thread and the cluster in it."""
        from kafka_async.embedded import run_in_thread

        self._thread = run_in_thread(
            self.brokers,
            auto_create_topics=self.auto_create_topics,
            default_partitions=self.default_partitions,
            min_insync_replicas=min(self.brokers, 2),
            group_min_session_timeout_ms=500,
            log_retention_check_interval_ms=86_400_000,  # Tests write records of any age.
        )
        self._cluster = self._thread.__enter__()
        self._reported_failures = 0

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker; its leaderships move."""
        self.cluster.stop_broker(broker_id)

    def kill_broker(self, broker_id: int) -> None:
        """Stop a broker: an embedded broker always stops as in a crash."""
        self.cluster.stop_broker(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker at its former port."""
        self.cluster.start_broker(broker_id)

    def failures(self) -> list[str]:
        """Return the cluster's unexpected exceptions since the last call: bugs of the cluster."""
        failures = self.cluster.failures
        reported, self._reported_failures = self._reported_failures, len(failures)
        return [f"{failure.where}: {failure.error!r}" for failure in failures[reported:]]

    def stop(self) -> None:
        """Stop the cluster and its thread."""
        thread, self._thread, self._cluster = self._thread, None, None
        if thread is not None:
            thread.__exit__(None, None, None)
