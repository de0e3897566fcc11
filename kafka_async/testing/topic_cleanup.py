"""Deletes the topics that a test leaves behind, through one connection per cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafka_async.errors import KafkaError, UnknownTopicOrPartitionError
from kafka_async.testing.backends.embedded import EmbeddedBackend

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kafka_async.blocking import Admin
    from kafka_async.testing.backends import Backend

logger = logging.getLogger("kafka_async.testing")

TIMEOUT_MS: Final = 5_000
"""Maximum time of a deletion; a cluster without brokers must not hold up the session."""


class TopicCleanup:
    """Deletes topics of one cluster: directly if it is embedded, else by one request per test.

    The admin client connects at the first deletion and serves the whole session.
    """

    def __init__(self, cluster: Backend) -> None:
        self._cluster = cluster
        self._admin: Admin | None = None

    def list_topics(self) -> frozenset[str]:
        """Return the topics of an embedded cluster without internal ones.

        For other clusters the result is empty, since listing their topics takes a request.
        """
        if not isinstance(self._cluster, EmbeddedBackend):
            return frozenset()
        from kafka_async.embedded.state.topics import is_internal

        topics = self._cluster.cluster.cluster.topics
        return frozenset(topic.name for topic in topics if not is_internal(topic.name))

    def delete(self, names: AbstractSet[str]) -> None:
        """Delete the topics that exist; log a warning after a failure."""
        if isinstance(self._cluster, EmbeddedBackend):
            for name in names & self.list_topics():
                self._cluster.cluster.delete_topic(name)
            return
        if not names:
            return
        try:
            self._connect().delete_topics(sorted(names), wait=False)
        except UnknownTopicOrPartitionError:
            pass  # The test did not create this topic; the broker has deleted the others.
        except KafkaError as error:
            logger.warning("topics were not deleted: %s: %s", sorted(names), error)

    def close(self) -> None:
        """Close the connection; call it while the cluster runs."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.stop()

    def _connect(self) -> Admin:
        if self._admin is None:
            from kafka_async.blocking import Admin

            admin = Admin(
                self._cluster.bootstrap_servers,
                client_id="kafka_cluster",
                default_api_timeout_ms=TIMEOUT_MS,
            )
            admin.start()
            self._admin = admin
        return self._admin
