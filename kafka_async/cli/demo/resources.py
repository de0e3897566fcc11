"""What a run makes on a cluster, and the removal of it: topics and a group that carry its id.

Transactional ids carry it too. Kafka has no request that deletes one: a cluster forgets an unused
one by itself (transactional.id.expiration.ms, 7 days).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async import Admin, TopicPartition
from kafka_async.admin import NewTopic
from kafka_async.cli.options import client_options
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
TOP: Final = "top-words"
PARTITIONS: Final = {LINES: 6, COUNTS: 3, TOP: 1}

# Seconds: members that left without a word are gone after their session, which is 6.
REMOVAL: Final = 30.0


@dataclass(frozen=True)
class Resources:
    """The names of one run's topics and group, and where they are."""

    servers: str
    topics: dict[str, str]
    group: str
    patience: float

    @staticmethod
    def named(run_id: str, *, own_cluster: bool) -> dict[str, str]:
        """Topic names by what they hold. On a cluster of its own a run needs no id in them."""
        return {name: name if own_cluster else f"{name}-{run_id}" for name in PARTITIONS}

    def partitions(self, name: str) -> list[TopicPartition]:
        """The partitions of the topic that holds `name`."""
        return [TopicPartition(self.topics[name], p) for p in range(PARTITIONS[name])]

    @asynccontextmanager
    async def made(self, *, keep: bool, say: Callable[[str], None]) -> AsyncGenerator[None]:
        """Make the topics; unless they are kept, remove all in the end, however it comes."""
        admin = Admin(self.servers, **client_options(self.patience))
        async with admin:
            try:
                await admin.create_topics(
                    [NewTopic(self.topics[name], count) for name, count in PARTITIONS.items()]
                )
                yield
            finally:
                if not keep:
                    await asyncio.shield(self._remove(admin, say))

    async def _remove(self, admin: Admin, say: Callable[[str], None]) -> None:
        try:
            async with asyncio.timeout(REMOVAL):
                await self._remove_topics(admin)
                await self._remove_group(admin)
        except (KafkaError, TimeoutError) as error:
            names = " ".join([*self.topics.values(), self.group])
            why = str(error) or f"not done within {REMOVAL:.0f} s"
            say(f"could not remove all of {names}: {why}")

    async def _remove_topics(self, admin: Admin) -> None:
        for topic in self.topics.values():
            try:
                await admin.delete_topics([topic])
            except UnknownTopicOrPartitionError:
                pass  # it was never made

    async def _remove_group(self, admin: Admin) -> None:
        while True:
            try:
                await admin.delete_groups([self.group])
            except GroupIdNotFoundError:
                return
            except GroupNotEmptyError:
                await asyncio.sleep(0.5)
            else:
                return
