"""Offsets that brokers know: by time, at the ends of a log, and where a leader epoch ends.

Requests are grouped by leader. A row that failed is None of the answer's business: it carries its
error, and the caller asks again or raises.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafka_async.backoff import Backoff
from kafka_async.cluster.request_destinations import Broker
from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    RefreshRetriableError,
    RetriableError,
    error_for,
)
from kafka_async.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafka_async.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafka_async.cluster.client import Client
    from kafka_async.config import ConsumerConfig

T = TypeVar("T")
NO_EPOCH = -1


class Found(NamedTuple):
    """An offset, with its record's timestamp (ms) and leader epoch; offset -1: there is none."""

    offset: int
    timestamp: int = -1
    epoch: int = NO_EPOCH


class EpochEnd(NamedTuple):
    """The newest epoch not above the one asked for, and the offset after its last record."""

    epoch: int
    offset: int


class Lookups:
    """Asks brokers about offsets."""

    def __init__(self, client: Client, config: ConsumerConfig) -> None:
        self._client = client
        self._config = config
        self._isolation = int(config.isolation_level == "read_committed")

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions by the id of their leader; those that have none are missing."""
        metadata = self._client.metadata
        leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            leader = metadata.leader(partition)
            if leader is not None:
                leaders[leader.leader_id].append(partition)
        return leaders

    async def list(
        self, node_id: int, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, Found | KafkaError]:
        """The offsets of timestamps (ms, LATEST or EARLIEST), asked of the partitions' leader."""
        topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, timestamp in wanted.items():
            topics[partition.topic].append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=self._client.metadata.leader_epoch(partition),
                    timestamp=timestamp,
                )
            )
        answer = await self._client.request(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=self._isolation,
                topics=[ListOffsetsTopic(name=t, partitions=rows) for t, rows in topics.items()],
                timeout_ms=round(timeout * 1000),
            ),
            to=Broker(node_id),
            timeout=timeout,
            retry=False,
        )
        return {
            TopicPartition(topic.name, row.partition_index): _error(
                row.error_code, topic.name, row.partition_index
            )
            or Found(row.offset, row.timestamp, row.leader_epoch)
            for topic in answer.topics
            for row in topic.partitions
        }

    async def epoch_ends(
        self, node_id: int, epochs: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        """Where leader epochs end in the logs of the partitions' leader (KIP-320)."""
        topics: defaultdict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for partition, epoch in epochs.items():
            topics[partition.topic].append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._client.metadata.leader_epoch(partition),
                    leader_epoch=epoch,
                )
            )
        answer = await self._client.request(
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderTopic(topic=t, partitions=rows) for t, rows in topics.items()
                ],
            ),
            to=Broker(node_id),
            timeout=timeout,
            retry=False,
        )
        return {
            TopicPartition(topic.topic, row.partition): _error(
                row.error_code, topic.topic, row.partition
            )
            or EpochEnd(row.leader_epoch, row.end_offset)
            for topic in answer.topics
            for row in topic.partitions
        }

    async def find(
        self, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, Found]:
        """The offsets of timestamps, asking as often as it takes.

        Raises:
            KafkaTimeoutError: not all are known within `timeout` seconds; it says why.
            KafkaError: a partition cannot be asked about.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        backoff = Backoff(
            seconds(self._config.retry_backoff_ms), seconds(self._config.retry_backoff_max_ms)
        )
        found: dict[TopicPartition, Found] = {}
        await self._client.metadata_for({p.topic for p in wanted}, timeout=timeout)
        while True:
            left = {p: timestamp for p, timestamp in wanted.items() if p not in found}
            last = await self._find_some(left, found, deadline)
            if last is None:
                return found
            if not isinstance(last, RetriableError):
                raise last
            delay = backoff.next()
            if loop.time() + delay >= deadline:
                raise KafkaTimeoutError(f"no offsets within {timeout:g} s: {last}") from last
            self._client.request_metadata_update()
            await asyncio.sleep(delay)

    async def _find_some(
        self,
        wanted: Mapping[TopicPartition, int],
        found: dict[TopicPartition, Found],
        deadline: float,
    ) -> KafkaError | None:
        """One round; what stands in the way of those that are still missing."""
        last: KafkaError | None = None
        asked: set[TopicPartition] = set()
        for node_id, partitions in self.by_leader(wanted).items():
            asked.update(partitions)
            left = max(0.001, deadline - asyncio.get_running_loop().time())
            try:
                rows = await self.list(
                    node_id,
                    {p: wanted[p] for p in partitions},
                    min(left, seconds(self._config.request_timeout_ms)),
                )
            except RetriableError as error:
                last = error
                continue
            for partition, row in rows.items():
                if isinstance(row, Found):
                    found[partition] = row
                elif last is None or isinstance(last, RetriableError):
                    last = row
        missing = wanted.keys() - asked
        if missing and last is None:
            topic, number = min(missing)
            last = LeaderNotAvailableError(topic=topic, partition=number)
        return last


def settle(
    answers: Mapping[TopicPartition, T | KafkaError],
    partition: TopicPartition,
    kind: type[T],
    *,
    refresh: Callable[[], None],
) -> T | KafkaError | None:
    """A row of an answer: its value, an error to raise, or None to ask again."""
    row = answers.get(partition)
    if isinstance(row, kind):
        return row
    if isinstance(row, RefreshRetriableError):
        refresh()
    if row is None or isinstance(row, RetriableError):
        return None
    assert isinstance(row, KafkaError)
    return row


def _error(code: int, topic: str, partition: int) -> KafkaError | None:
    return error_for(code, topic=topic, partition=partition) if code else None
