"""What a producer learns of its topics: which partitions they have, and who leads them."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.cluster.metadata import ClusterMetadata
from kafka_async.config import seconds
from kafka_async.errors import KafkaError, RetriableError
from kafka_async.producer.expiry import partition_not_there

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka_async.cluster.client import Client
    from kafka_async.producer.accumulator import Accumulator
    from kafka_async.producer.partition_queue import PartitionQueue, TopicQueue
    from kafka_async.supervisor import Supervisor

__all__ = ["Learning"]

logger = logging.getLogger("kafka_async.producer")

TOPICS_A_TURN: Final = 32
"""Topics that the accumulator is told of in one turn of the event loop: half a millisecond."""
PARTITION_WITHIN: Final = 5.0
"""Seconds in which a partition that a record names has to appear, within max_block_ms.

Brokers do not all learn of added partitions at once. Java's client waits for all of max.block.ms.
"""
WARN_AFTER: Final = 2.0
"""Seconds that records wait for a topic's metadata before a warning is logged."""


class Learning:
    """Has the topics that records wait for learnt, and tells the accumulator what is new of any.

    `wake()` schedules another run of the send loop; `delay(n)` gives the seconds to wait after n
    failures; `seen` is the metadata that was looked at last.
    """

    def __init__(
        self,
        client: Client,
        accumulator: Accumulator,
        supervisor: Supervisor,
        patience_ms: float,
        now: Callable[[], float],
        wake: Callable[[], None],
        delay: Callable[[int], float],
    ) -> None:
        self.seen = ClusterMetadata()
        self._client = client
        self._accumulator = accumulator
        self._supervisor = supervisor
        self._patience = seconds(patience_ms)
        self._now = now
        self._wake = wake
        self._delay = delay
        # In the order in which they are to be told of; True: somebody has just asked for it.
        self._stale: dict[TopicQueue, bool] = {}
        self._learning: set[TopicQueue] = set()
        self._tracked: set[str] = set()
        self._unsubscribe = client.on_metadata(self._metadata_changed)

    def close(self) -> None:
        """Forget the topics."""
        self._unsubscribe()
        self._client.untrack_topics(self._tracked)
        self._tracked = set()

    def look_round(self, now: float) -> None:
        """Tell what there is to tell, and have what is unknown learnt."""
        unknown = self._accumulator.unknown
        if unknown:
            self._stale.update(dict.fromkeys(unknown, True))
            unknown.clear()
        if self._stale:
            self._read(self._client.metadata, now)

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        self._read(metadata, self._now())
        self._wake()

    def _read(self, metadata: ClusterMetadata, now: float) -> None:
        """Tell the accumulator who leads what, of the topics of which that may have changed."""
        before, self.seen = self.seen, metadata
        if metadata is not before:
            topics = self._accumulator.topics
            for name in metadata.changed(before, topics):
                self._stale.setdefault(topics[name], False)
        new: list[TopicQueue] = []
        doubtful: list[TopicQueue] = []
        for topic in list(islice(self._stale, TOPICS_A_TURN)):
            asked_for = self._stale.pop(topic)
            if metadata.topic(topic.name) is None:
                topic.error = metadata.error(topic.name) or topic.error
            self._accumulator.update(topic.name, metadata.leaders(topic.name), now)
            if topic in self._learning:
                continue
            if topic.wanted or (asked_for and not topic.count):
                new.append(topic)
            elif asked_for and topic.missed:
                doubtful.append(topic)
        for topics, learn in ((new, self._learn), (doubtful, self._learn_anew)):
            if topics:
                self._learning.update(topics)
                self._supervisor.spawn(learn, topics, name="learning about topics")
        if self._stale:
            self._wake()

    async def _learn(self, topics: Sequence[TopicQueue]) -> None:
        """Ask for topics, which may create them, for as long as somebody waits for them."""
        names = {topic.name for topic in topics}
        timeout = min(WARN_AFTER, self._patience)
        try:
            while topics:
                try:
                    self._client.track_topics(names - self._tracked)
                    self._tracked |= names
                    await self._client.metadata_for(
                        [topic.name for topic in topics],
                        timeout=timeout,
                        allow_auto_create=True,
                    )
                except RetriableError as error:
                    for topic in _concerned(topics, error):
                        topic.error = error
                    if timeout < self._patience:
                        timeout = self._patience
                        self._warn(topics, error)
                    await asyncio.sleep(self._delay(0))
                except KafkaError as error:
                    failed = _concerned(topics, error)
                    for topic in failed:
                        self._accumulator.ledger.fail_topic(topic, error, self._now())
                else:
                    break
                topics = self._wanted(topics)
        finally:
            self._learning.difference_update(topics)
        # What was found missing meanwhile is asked for once more, as it would be at any other time.
        self._stale.update((topic, True) for topic in topics if topic.missed)
        self._wake()

    def _warn(self, topics: Sequence[TopicQueue], error: KafkaError) -> None:
        names = ", ".join([topic.name for topic in topics[:5]])
        more = f" and {len(topics) - 5} more" if len(topics) > 5 else ""
        logger.warning(
            "records wait for the metadata of topic %s%s and fail after max_block_ms (%g s): %s",
            names,
            more,
            self._patience,
            error,
        )

    async def _learn_anew(self, topics: Sequence[TopicQueue]) -> None:
        """Wait for the partitions that records name, and fail the records if they do not appear.

        Records expire if no broker responds.
        """
        names = [topic.name for topic in topics]
        since: dict[PartitionQueue, float] = {}
        attempts = 0
        try:
            while True:
                metadata = await self._client.refresh_metadata(
                    topics=names, tracked=False, timeout=self._patience
                )
                if not self._fail_missed(topics, metadata, since):
                    break
                await asyncio.sleep(self._delay(attempts))
                attempts += 1
        except KafkaError as error:
            logger.debug("partitions that are not there: %s", error)
        finally:
            self._learning.difference_update(topics)
        self._wake()

    def _fail_missed(
        self,
        topics: Sequence[TopicQueue],
        metadata: ClusterMetadata,
        since: dict[PartitionQueue, float],
    ) -> bool:
        """Fail records whose partition has not appeared in time; return whether any still wait.

        `since` has the time at which each partition was first missed.
        """
        now = self._now()
        patience = min(PARTITION_WITHIN, self._patience)
        waiting = False
        for topic in topics:
            count = metadata.partitions(topic.name) or inf
            for queue in topic.missed:
                number = queue.partition.partition
                if number < count:
                    continue
                if now < since.setdefault(queue, now) + patience:
                    waiting = True
                    continue
                error = partition_not_there(topic.name, number, int(count), patience)
                self._accumulator.ledger.fail_waiting(queue, error, now)
                del since[queue]
        return waiting

    def _wanted(self, topics: Sequence[TopicQueue]) -> list[TopicQueue]:
        """Those that somebody waits for; the others may be asked for anew."""
        wanted = [topic for topic in topics if topic.wanted]
        self._learning.difference_update(topics)
        self._learning.update(wanted)
        return wanted


def _concerned(topics: Sequence[TopicQueue], error: KafkaError) -> list[TopicQueue]:
    """The topics that an error is about: the one that it names, or all."""
    return [topic for topic in topics if error.topic in (None, topic.name)]
