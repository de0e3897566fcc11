"""Topics and the consumer group of a run; their names contain the run's id.

Transactional ids contain it too. No Kafka request deletes them: they expire unused after
transactional.id.expiration.ms (7 days).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async import Admin, TopicPartition
from kafka_async.admin import NewTopic, OffsetSpec
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.config import ClientConfig
from kafka_async.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    KafkaError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

LINES: Final = "lines"
COUNTS: Final = "word-counts"
TOTALS: Final = "word-totals"
PARTITIONS: Final = {LINES: 6, COUNTS: 3, TOTALS: 3}

CHECK_INTERVAL: Final = 0.1
"""Seconds between two checks of the run's state."""
DELETION_TIMEOUT: Final = 30.0
"""Seconds. A killed member stays in the group until its session expires after 6 s."""


@dataclass(frozen=True)
class Resources:
    """Creates and deletes the topics and the group of a run."""

    connection: ConnectionOptions
    topics: dict[str, str]
    group: str

    @property
    def ledger_topic(self) -> str:
        """Ledger topic of Spark's exactly-once sink, which creates it."""
        return f"{self.topics[TOTALS]}-ledger"

    @staticmethod
    def topic_names(run_id: str, *, shared_cluster: bool) -> dict[str, str]:
        """Return topic names by content; on a shared cluster they contain the run's id."""
        return {name: f"{name}-{run_id}" if shared_cluster else name for name in PARTITIONS}

    def partitions(self, content: str) -> list[TopicPartition]:
        """Return the partitions of the topic with `content`."""
        return [TopicPartition(self.topics[content], p) for p in range(PARTITIONS[content])]

    async def wait_for_open_transactions(self, admin: Admin, content: str) -> None:
        """Wait until no transaction is open in the topic with `content`.

        The coordinator acknowledges a commit before its markers are written.
        """
        latest = dict.fromkeys(self.partitions(content), OffsetSpec.LATEST)
        while True:
            stable = await admin.list_offsets(latest, isolation_level="read_committed")
            if stable == await admin.list_offsets(latest):
                return
            await asyncio.sleep(CHECK_INTERVAL)

    @asynccontextmanager
    async def created(self, *, keep: bool, show: Callable[[str], None]) -> AsyncGenerator[None]:
        """Create the topics; at the end of the block delete topics and group, unless `keep`."""
        admin = Admin(config=self.connection.limited_config(ClientConfig))
        async with admin:
            try:
                await admin.create_topics(
                    [NewTopic(self.topics[name], count) for name, count in PARTITIONS.items()]
                )
                yield
            finally:
                if not keep:
                    await asyncio.shield(self._delete(admin, show))

    async def _delete(self, admin: Admin, show: Callable[[str], None]) -> None:
        try:
            async with asyncio.timeout(DELETION_TIMEOUT):
                await self._delete_topics(admin)
                await self._delete_group(admin)
        except (KafkaError, TimeoutError) as error:
            names = " ".join([*self.topics.values(), self.ledger_topic, self.group])
            reason = str(error) or f"not done within {DELETION_TIMEOUT:.0f} s"
            show(f"could not delete all of {names}: {reason}")

    async def _delete_topics(self, admin: Admin) -> None:
        for topic in (*self.topics.values(), self.ledger_topic):
            try:
                await admin.delete_topics([topic])
            except UnknownTopicOrPartitionError:
                pass  # Creation failed, or Spark did not run.

    async def _delete_group(self, admin: Admin) -> None:
        while True:
            try:
                await admin.delete_groups([self.group])
            except GroupIdNotFoundError:
                return
            except GroupNotEmptyError:
                await asyncio.sleep(0.5)
            else:
                return
