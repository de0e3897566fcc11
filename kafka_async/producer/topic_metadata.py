"""Requests metadata of the topics that a producer sends to, and applies it to the accumulator."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.client.metadata.metadata import ClusterMetadata
from kafka_async.config import seconds
from kafka_async.errors import KafkaError, RetriableError, UnknownTopicOrPartitionError
from kafka_async.foundation.fairness import MAX_TOPICS_PER_ITERATION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ProducerConfig
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.producer.buffer.accumulator import Accumulator
    from kafka_async.producer.buffer.partition_queue import PartitionQueue, TopicQueue

__all__ = ["TopicMetadataUpdater"]

logger = logging.getLogger("kafka_async.producer")

MAX_WAIT_FOR_PARTITION: Final = 5.0
"""Seconds in which a partition that a record names must appear, within max_block_ms.

Added partitions reach the brokers at different times. Java's client waits for all of max.block.ms.
"""
WARN_AFTER: Final = 2.0
"""Seconds that records wait for a topic's metadata before a warning is logged."""
IDLE_CHECKS_PER_LIMIT: Final = 5
"""Checks for idle topics in metadata_max_idle_ms, at updates of the metadata."""
GATHER_INTERVAL: Final = 0.5
"""Seconds in which late topics are gathered into one warning; thousands may be late at once."""


class TopicMetadataUpdater:
    """Requests missing metadata and passes new leaders to the accumulator.

    `wakeup()` schedules a run of the send loop; `delay(n)` returns the seconds to wait after n
    failures.
    """

    def __init__(
        self,
        services: ClientServices,
        accumulator: Accumulator,
        supervisor: Supervisor,
        config: ProducerConfig,
        now: Callable[[], float],
        wakeup: Callable[[], None],
        delay: Callable[[int], float],
    ) -> None:
        self.metadata = ClusterMetadata()
        # Parts of the client and the producer.
        self._services = services
        self._accumulator = accumulator
        self._supervisor = supervisor
        # KIP-526: topics without records are forgotten at updates of the metadata, so no timer is
        # needed.
        self._max_block = seconds(config.max_block_ms)
        self._max_idle = seconds(config.metadata_max_idle_ms)
        self._forget_idle_at = 0.0
        self._now = now
        self._wakeup = wakeup
        self._delay = delay
        # Topics to pass on or to request, in the order of arrival; True if an append has found the
        # metadata missing or stale.
        self._topics_to_update: dict[TopicQueue, bool] = {}
        # Topics of a request in progress, and topics that the client keeps up to date for this
        # producer.
        self._requested: set[TopicQueue] = set()
        self._tracked: set[str] = set()
        # For one warning about many topics.
        self._late_topics: list[TopicQueue] = []
        self._warning_timer: asyncio.TimerHandle | None = None
        self._unsubscribe = services.metadata.change_listeners.add(self._metadata_changed)

    def untrack_topics(self) -> None:
        """Stop tracking the topics."""
        if self._warning_timer is not None:
            self._warning_timer.cancel()
        self._unsubscribe()
        self._services.metadata.untrack(self._tracked)
        self._tracked = set()

    async def wait_for_partitions(self, topic: str, at_least: int = 1) -> int:
        """Return the number of partitions of a topic, and pass its leaders to the accumulator.

        It waits for missing metadata up to max_block_ms, which may create the topic. With less than
        `at_least` partitions it requests the metadata once more.

        Raises:
            KafkaError: What `MetadataUpdater.wait_for_topics` and `refresh` raise.
        """
        metadata = self._services.metadata
        self._track([topic])
        snapshot = await metadata.wait_for_topics(
            [topic], timeout=self._max_block, allow_auto_create=True
        )
        # Metadata may be older than the partitions, so it is requested once more.
        if (snapshot.partitions(topic) or 0) < at_least:
            snapshot = await metadata.refresh(
                topics=[topic], tracked=False, timeout=self._max_block
            )
        self._accumulator.add_topic(topic, snapshot.leaders(topic), self._now())
        self._wakeup()
        return snapshot.partitions(topic) or 0

    def update(self, now: float) -> None:
        """Apply new metadata, and request what is missing."""
        # True takes precedence over the False of a metadata update.
        for topic in self._accumulator.take_stale_topics():
            self._topics_to_update[topic] = True
        if self._topics_to_update:
            self._apply_metadata(self._services.metadata.snapshot, now)

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        now = self._now()
        if now >= self._forget_idle_at:
            self._forget_idle_at = now + self._max_idle / IDLE_CHECKS_PER_LIMIT
            self._forget_idle_topics(now)
        self._apply_metadata(metadata, now)
        self._wakeup()

    def _forget_idle_topics(self, now: float) -> None:
        """Stop tracking topics without records for metadata_max_idle_ms (KIP-526)."""
        since = now - self._max_idle
        idle = set(self._accumulator.forget_idle_topics(self._tracked, since, now))
        self._services.metadata.untrack(idle)
        self._tracked -= idle

    def _track(self, topics: Iterable[str]) -> None:
        new = set(topics) - self._tracked
        self._services.metadata.track(new)
        self._tracked |= new

    def _apply_metadata(self, metadata: ClusterMetadata, now: float) -> None:
        """Pass leaders that may have changed to the accumulator, and request missing metadata."""
        before, self.metadata = self.metadata, metadata
        # Comparing snapshots costs a pass over all topics, so each is compared once.
        if metadata is not before:
            topics = self._accumulator.topics
            for name in metadata.changed(before, topics):
                # Others have been forgotten as idle, or were never used.
                if name in self._tracked or topics[name].has_records:
                    self._topics_to_update.setdefault(topics[name], False)
        new: list[TopicQueue] = []
        without_partition: list[TopicQueue] = []
        # Thousands of topics may change at once, for example when a broker restarts.
        for topic in list(islice(self._topics_to_update, MAX_TOPICS_PER_ITERATION)):
            needed = self._topics_to_update.pop(topic)
            error = metadata.error(topic.name) if metadata.topic(topic.name) is None else None
            self._accumulator.update_leaders(topic.name, metadata.leaders(topic.name), now, error)
            if topic.partition_count:
                self._track([topic.name])
            # That request will see the missing partitions too.
            if topic in self._requested:
                continue
            if topic.awaits_metadata or (needed and not topic.partition_count):
                new.append(topic)
            elif needed and topic.missing_partitions:
                without_partition.append(topic)
        for topics, request in (
            (new, self._fetch_topics),
            (without_partition, self._wait_for_partitions),
        ):
            if topics:
                self._requested.update(topics)
                self._supervisor.spawn(request, topics, name="topic metadata")
        # The rest follows in the next event loop iteration.
        if self._topics_to_update:
            self._wakeup()

    async def _fetch_topics(self, topics: Sequence[TopicQueue]) -> None:
        """Request metadata, which may create the topics, as long as records need it."""
        names = {topic.name for topic in topics}
        timeout = min(WARN_AFTER, self._max_block)
        try:
            # Ends when all topics are known, or when no record needs the others any more. A first
            # short wait leads to a warning; errors that are not retriable fail the records of their
            # topics.
            while topics:
                try:
                    self._track(names)
                    await self._services.metadata.wait_for_topics(
                        [topic.name for topic in topics],
                        timeout=timeout,
                        allow_auto_create=True,
                    )
                except RetriableError as error:
                    for topic in _affected_topics(topics, error):
                        topic.note_error(error)
                    # Only the first time.
                    if timeout < self._max_block:
                        timeout = self._max_block
                        self._warn(topics, error)
                    # The error may come at once, for example while no broker can be reached.
                    await asyncio.sleep(self._delay(0))
                except KafkaError as error:
                    failed = _affected_topics(topics, error)
                    for topic in failed:
                        self._accumulator.fail_topic(topic, error, self._now())
                else:
                    break
                topics = self._still_waiting(topics)
        finally:
            self._requested.difference_update(topics)
        # Partitions may have been found missing while the topics were requested.
        self._topics_to_update.update((topic, True) for topic in topics if topic.missing_partitions)
        self._wakeup()

    def _warn(self, topics: Sequence[TopicQueue], error: KafkaError) -> None:
        """Log these topics, together with others that are late at about the same time."""
        self._late_topics += topics
        if self._warning_timer is None:
            # Thousands of topics may be late for the same reason.
            loop = asyncio.get_running_loop()
            self._warning_timer = loop.call_later(GATHER_INTERVAL, self._log_late_topics, error)

    def _log_late_topics(self, error: KafkaError) -> None:
        self._warning_timer = None
        waiting = [topic.name for topic in self._late_topics if topic.awaits_metadata]
        self._late_topics = []
        if waiting:
            logger.warning(
                "records wait for the metadata of these topics (%d): %s; they fail after "
                "max_block_ms (%g s): %s",
                len(waiting),
                ", ".join([*waiting[:5], "..."] if len(waiting) > 5 else waiting),
                self._max_block,
                error,
            )

    async def _wait_for_partitions(self, topics: Sequence[TopicQueue]) -> None:
        """Wait for the partitions that records name, and fail the records if they do not appear.

        If no broker responds, the records expire.
        """
        names = [topic.name for topic in topics]
        since: dict[PartitionQueue, float] = {}
        attempts = 0
        try:
            # Ends when the metadata has all partitions or those that lack are given up.
            while True:
                metadata = await self._services.metadata.refresh(
                    topics=names, tracked=False, timeout=self._max_block
                )
                if not self._fail_missing_partitions(topics, metadata, since):
                    break
                await asyncio.sleep(self._delay(attempts))
                attempts += 1
        except KafkaError as error:
            logger.debug("waiting for missing partitions: %s", error)
        finally:
            self._requested.difference_update(topics)
        self._wakeup()

    def _fail_missing_partitions(
        self,
        topics: Sequence[TopicQueue],
        metadata: ClusterMetadata,
        since: dict[PartitionQueue, float],
    ) -> bool:
        """Fail records whose partition has not appeared in time; return True if others still wait.

        `since` has the time at which each partition was first found missing.
        """
        now = self._now()
        timeout = min(MAX_WAIT_FOR_PARTITION, self._max_block)
        waiting = False
        for topic in topics:
            # If the topic has become unknown, none of its partitions counts as missing.
            count = metadata.partitions(topic.name) or inf
            for queue in topic.missing_partitions:
                number = queue.partition.partition
                if number < count:
                    continue
                # Each partition has its own time, from the first time that it was missing.
                if now < since.setdefault(queue, now) + timeout:
                    waiting = True
                    continue
                error = _missing_partition_error(topic.name, number, int(count), timeout)
                self._accumulator.fail_unsent(queue, error, now)
                del since[queue]
        return waiting

    def _still_waiting(self, topics: Sequence[TopicQueue]) -> list[TopicQueue]:
        """Return the topics that records still need; the others may be requested again."""
        wanted = [topic for topic in topics if topic.awaits_metadata]
        self._requested.difference_update(topics)
        self._requested.update(wanted)
        return wanted


def _missing_partition_error(topic: str, partition: int, count: int, timeout: float) -> KafkaError:
    """Return the error for a partition that metadata still lacks after `timeout` seconds."""
    return UnknownTopicOrPartitionError(
        f"the topic has the partitions 0 to {count - 1}, and got no more within "
        f"{timeout:g} s: name one of those, or add partitions; a record without a partition of its "
        "own can be sent again, if the topic was created again with fewer partitions",
        topic=topic,
        partition=partition,
    )


def _affected_topics(topics: Sequence[TopicQueue], error: KafkaError) -> list[TopicQueue]:
    """Return the topics that an error concerns: the one that it names, or all."""
    return [topic for topic in topics if error.topic in (None, topic.name)]
