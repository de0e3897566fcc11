"""The consumer's methods for positions and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_async.arguments import (
    by_partition,
    milliseconds,
    offset_and_metadata,
    topic_partition,
    topic_partitions,
)
from kafka_async.consumer.consumer_base import ConsumerBase, Partitions
from kafka_async.consumer.subscription import EARLIEST, LATEST, UNKNOWN
from kafka_async.errors import KafkaTimeoutError
from kafka_async.foreign_names import unknown_keyword
from kafka_async.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Never

    from kafka_async.consumer.list_offsets import ListedOffset


class PositionMethods(ConsumerBase):
    """Seeks, and returns positions and offsets."""

    def seek(
        self, partition: TopicPartition, offset: int | OffsetAndMetadata, **unknown: Never
    ) -> None:
        """Set the position of a partition; returned records of it no longer count as unprocessed.

        Args:
            partition: The partition.
            offset: Offset of the next record to return.
        """
        if unknown:
            raise unknown_keyword(self.seek, unknown)
        partition = topic_partition(partition)
        target = offset_and_metadata(offset, "offset")
        self._seek(partition, target.offset, target.leader_epoch)
        self._active_runtime.on_partitions_changed()

    def _seek(self, partition: TopicPartition, offset: int, epoch: int | None = None) -> None:
        """Set a position; the caller notifies the runtime once for all partitions."""
        state = self._subscription.state(partition)
        self._active_runtime.take_back(state)
        state.seek(offset, UNKNOWN if epoch is None else epoch)

    async def seek_to_beginning(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Seek to the first record.

        Args:
            partitions: The partitions (default: all assigned).
        """
        if unknown:
            raise unknown_keyword(self.seek_to_beginning, unknown)
        await self._seek_by_time(dict.fromkeys(self._chosen(partitions), EARLIEST), None)

    async def seek_to_end(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Seek to the offset after the last record.

        Args:
            partitions: The partitions (default: all assigned).
        """
        if unknown:
            raise unknown_keyword(self.seek_to_end, unknown)
        await self._seek_by_time(dict.fromkeys(self._chosen(partitions), LATEST), None)

    async def seek_to_time(
        self,
        when: float | datetime | Mapping[TopicPartition, float | datetime],
        partitions: Partitions = (),
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Seek to the first record not older than a time, or to the end if there is none.

        Args:
            when: Seconds since the epoch, or a datetime; or one for each partition.
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.seek_to_time, unknown)
        if isinstance(when, Mapping):
            times = by_partition(when, "when", milliseconds)
        else:
            times = dict.fromkeys(self._chosen(partitions), milliseconds(when))
        await self._seek_by_time(times, timeout)

    async def _seek_by_time(
        self, times: Mapping[TopicPartition, int], timeout: float | None
    ) -> None:
        runtime = self._active_runtime
        for partition in times:
            self._subscription.state(partition)
        found = await runtime.offset_lookup.find_offsets(times, self._limit(timeout))
        beyond = [partition for partition, target in found.items() if target.offset < 0]
        if beyond:
            found |= await runtime.offset_lookup.find_offsets(
                dict.fromkeys(beyond, LATEST), self._limit(timeout)
            )
        for partition, target in found.items():
            self._seek(partition, target.offset)
        runtime.on_partitions_changed()

    async def position(
        self, partition: TopicPartition, *, timeout: float | None = None, **unknown: Never
    ) -> int:
        """Return the offset of the next record to return; waits until it is known.

        Args:
            partition: The partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: Not known in time.
        """
        if unknown:
            raise unknown_keyword(self.position, unknown)
        runtime = self._active_runtime
        state = self._subscription.state(topic_partition(partition))
        try:
            async with asyncio.timeout(self._limit(timeout)):
                while state.position == UNKNOWN:
                    if state.error is not None:
                        raise state.error
                    self._subscription.state(partition)
                    runtime.check()
                    await runtime.positions.position_found.wait()
        except TimeoutError as error:
            if isinstance(error, KafkaTimeoutError):
                raise
            raise KafkaTimeoutError(f"the position of {partition} is not known yet") from None
        runtime.update_positions()
        return state.position

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout: float | None = None, **unknown: Never
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Args:
            partitions: The partitions.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.beginning_offsets, unknown)
        wanted = dict.fromkeys(topic_partitions(partitions), EARLIEST)
        found = await self._active_runtime.offset_lookup.find_offsets(wanted, self._limit(timeout))
        return {partition: target.offset for partition, target in found.items()}

    async def end_offsets(
        self, partitions: Partitions, *, timeout: float | None = None, **unknown: Never
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record that isolation_level lets this consumer read.

        Args:
            partitions: The partitions.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.end_offsets, unknown)
        wanted = dict.fromkeys(topic_partitions(partitions), LATEST)
        found = await self._active_runtime.offset_lookup.find_offsets(wanted, self._limit(timeout))
        return {partition: target.offset for partition, target in found.items()}

    async def offsets_for_times(
        self,
        times: Mapping[TopicPartition, float | datetime],
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset and time of the first record not older than a time; None if none is.

        Args:
            times: Seconds since the epoch, or a datetime, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        if unknown:
            raise unknown_keyword(self.offsets_for_times, unknown)
        wanted = by_partition(times, "times", milliseconds)
        found = await self._active_runtime.offset_lookup.find_offsets(wanted, self._limit(timeout))
        return {partition: _offset_and_timestamp(target) for partition, target in found.items()}


def _offset_and_timestamp(found: ListedOffset) -> OffsetAndTimestamp | None:
    if found.offset < 0:
        return None
    return OffsetAndTimestamp(
        found.offset, found.timestamp, None if found.epoch < 0 else found.epoch
    )
