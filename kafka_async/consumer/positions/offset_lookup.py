"""Looks up offsets by time, at the ends of a log, and at the end of a leader epoch.

Requests are grouped by leader. Errors are returned per partition, not raised.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafka_async.client.fan_out import call_each
from kafka_async.client.metadata.request_router import FoundBroker
from kafka_async.client.wire.requested_rows import requested_rows
from kafka_async.config import request_ms, seconds
from kafka_async.consumer.offsets import UNKNOWN, is_read_committed
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
    from collections.abc import Iterable, Mapping

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.protocol.message import Request, Response

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound="Response")


class ListedOffset(NamedTuple):
    """An offset with its record's timestamp (ms) and leader epoch, or -1 if there is no record."""

    offset: int
    timestamp: int = UNKNOWN
    epoch: int = UNKNOWN


class EpochEndOffset(NamedTuple):
    """The newest leader epoch not above the requested one, and the offset after its last record."""

    epoch: int
    offset: int


class OffsetLookup:
    """Sends ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, services: ClientServices, config: ConsumerConfig) -> None:
        self._services = services
        self._config = config
        self._isolation = int(is_read_committed(config))

    def group_by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, list[TopicPartition]]:
        """Return the partitions by leader id, except those without a leader."""
        metadata = self._services.metadata.snapshot
        leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            leader = metadata.leader(partition)
            if leader is not None:
                leaders[leader.leader_id].append(partition)
        return leaders

    async def list_offsets(
        self, node_id: int, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Request offsets by timestamp (ms, LATEST or EARLIEST) from the partitions' leader."""
        topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, timestamp in wanted.items():
            topics[partition.topic].append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    # Fences a leader that has been replaced (KIP-320).
                    current_leader_epoch=self._services.metadata.snapshot.leader_epoch(partition),
                    timestamp=timestamp,
                )
            )
        response = await self._send(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=self._isolation,
                topics=[ListOffsetsTopic(name=t, partitions=rows) for t, rows in topics.items()],
                timeout_ms=request_ms(timeout),
            ),
            node_id,
            timeout,
        )
        rows = {
            TopicPartition(topic.name, row.partition_index): _error(
                row.error_code, topic.name, row.partition_index
            )
            or ListedOffset(row.offset, row.timestamp, row.leader_epoch)
            for topic in response.topics
            for row in topic.partitions
        }
        return requested_rows(wanted, rows)

    async def epoch_end_offsets(
        self, node_id: int, epochs: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, EpochEndOffset | KafkaError]:
        """Request the end offsets of leader epochs from the partitions' leader (KIP-320)."""
        topics: defaultdict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for partition, epoch in epochs.items():
            topics[partition.topic].append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=self._services.metadata.snapshot.leader_epoch(partition),
                    leader_epoch=epoch,
                )
            )
        response = await self._send(
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[
                    OffsetForLeaderTopic(topic=t, partitions=rows) for t, rows in topics.items()
                ],
            ),
            node_id,
            timeout,
        )
        rows = {
            TopicPartition(topic.topic, row.partition): _error(
                row.error_code, topic.topic, row.partition
            )
            or EpochEndOffset(row.leader_epoch, row.end_offset)
            for topic in response.topics
            for row in topic.partitions
        }
        return requested_rows(epochs, rows)

    async def _send(self, request: Request[ResponseT], node_id: int, timeout: float) -> ResponseT:
        to = FoundBroker(node_id)
        # Retried by the callers, with another leader.
        return await self._services.request(request, to=to, timeout=timeout, retry=False)

    def result_for(
        self, partition: TopicPartition, rows: Mapping[TopicPartition, T | KafkaError]
    ) -> T | KafkaError | None:
        """Return a partition's value, or its error to raise, or None to retry."""
        row = rows.get(partition)
        if isinstance(row, RefreshRetriableError):
            self._services.metadata.request_update()
        return None if isinstance(row, RetriableError) else row

    async def find_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets of timestamps, with retries; a slow leader does not delay the others.

        Raises KafkaTimeoutError if not all are known within `timeout` seconds.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        await self._services.metadata.wait_for_topics({p.topic for p in wanted}, timeout=timeout)
        leaders: dict[int | None, Iterable[TopicPartition]] = {**self.group_by_leader(wanted)}
        # Partitions without a leader, or with one that metadata does not have.
        leaders[None] = wanted.keys() - {p for group in leaders.values() for p in group}

        async def find(leader: int | None) -> dict[TopicPartition, ListedOffset]:
            group = {p: wanted[p] for p in leaders[leader]}
            return await self._find_with_retries(group, deadline, timeout)

        parts = await call_each(leaders, find)
        return {partition: each for part in parts.values() for partition, each in part.items()}

    async def _find_with_retries(
        self, wanted: Mapping[TopicPartition, int], deadline: float, timeout: float
    ) -> dict[TopicPartition, ListedOffset]:
        loop = asyncio.get_running_loop()
        backoff = self._services.retry_backoff()
        found: dict[TopicPartition, ListedOffset] = {}
        # Ends when all offsets are found, with an error that is not retriable, or at the deadline.
        while left := {p: timestamp for p, timestamp in wanted.items() if p not in found}:
            error = await self._find_once(left, found, deadline)
            if error is None:
                break
            if not isinstance(error, RetriableError):
                raise error
            delay = backoff.next()
            if loop.time() + delay >= deadline:
                raise KafkaTimeoutError(f"no offsets within {timeout:g} s: {error}") from error
            self._services.metadata.request_update()
            await asyncio.sleep(delay)
        return found

    async def _find_once(
        self,
        wanted: Mapping[TopicPartition, int],
        found: dict[TopicPartition, ListedOffset],
        deadline: float,
    ) -> KafkaError | None:
        """Send one request to each leader; return the error of missing offsets."""
        leaders = self.group_by_leader(wanted)
        left = max(0.001, deadline - asyncio.get_running_loop().time())
        timeout = min(left, seconds(self._config.request_timeout_ms))

        async def ask(node_id: int) -> dict[TopicPartition, ListedOffset | KafkaError]:
            partitions = leaders[node_id]
            try:
                times = {p: wanted[p] for p in partitions}
                return await self.list_offsets(node_id, times, timeout)
            except RetriableError as error:
                # A leader that fails does not discard the offsets of the others.
                return dict.fromkeys(partitions, error)

        last_error: KafkaError | None = None
        for rows in (await call_each(leaders, ask)).values():
            for partition, row in rows.items():
                if isinstance(row, ListedOffset):
                    found[partition] = row
                # An error that is not retriable takes precedence.
                elif last_error is None or isinstance(last_error, RetriableError):
                    last_error = row
        # Nothing was requested for these.
        missing = wanted.keys() - {p for group in leaders.values() for p in group}
        if missing and last_error is None:
            partition = min(missing)
            last_error = self._services.metadata.snapshot.unknown_partition(
                partition
            ) or LeaderNotAvailableError(topic=partition.topic, partition=partition.partition)
        return last_error


def _error(code: int, topic: str, partition: int) -> KafkaError | None:
    if not code:
        return None
    return error_for(code, topic=topic, partition=partition, needs="DESCRIBE")
