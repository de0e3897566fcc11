"""Where a consumer stands in its partitions, and going elsewhere."""

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
from kafka_async.consumer.consumer_base import Handle, Partitions
from kafka_async.consumer.subscription import EARLIEST, LATEST, UNKNOWN
from kafka_async.errors import KafkaTimeoutError
from kafka_async.foreign_names import unknown_keyword
from kafka_async.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Never

    from kafka_async.consumer.list_offsets import Found


class Seeking(Handle):
    """The calls about positions and offsets."""

    def seek(
        self, partition: TopicPartition, offset: int | OffsetAndMetadata, **unknown: Never
    ) -> None:
        """Go on at an offset of a partition; what is in hand of it is forgotten."""
        if unknown:
            raise unknown_keyword(self.seek, unknown)
        partition = topic_partition(partition)
        place = offset_and_metadata(offset, "offset")
        self._seek(partition, place.offset, place.leader_epoch)
        self._engine.changed()

    def _seek(self, partition: TopicPartition, offset: int, epoch: int | None = None) -> None:
        """Go there; whoever calls tells the engine, once for all partitions."""
        state = self._subscription.state(partition)
        self._engine.cut(state)
        state.seek(offset, UNKNOWN if epoch is None else epoch)

    async def seek_to_beginning(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Go on at the first record that there is, of these partitions or of all."""
        if unknown:
            raise unknown_keyword(self.seek_to_beginning, unknown)
        await self._seek_by_time(dict.fromkeys(self._chosen(partitions), EARLIEST), None)

    async def seek_to_end(self, partitions: Partitions = (), **unknown: Never) -> None:
        """Go on with records that come after now, of these partitions or of all."""
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
        """Go on at the first record not older than `when` (seconds since the epoch, or a datetime).

        A partition that has none that young goes on at its end.
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
        engine = self._engine
        for partition in times:
            self._subscription.state(partition)
        found = await engine.lookups.find(times, self._limit(timeout))
        beyond = [partition for partition, place in found.items() if place.offset < 0]
        if beyond:
            found |= await engine.lookups.find(dict.fromkeys(beyond, LATEST), self._limit(timeout))
        for partition, place in found.items():
            self._seek(partition, place.offset)
        engine.changed()

    async def position(
        self, partition: TopicPartition, *, timeout: float | None = None, **unknown: Never
    ) -> int:
        """The offset of the next record to be handed out; waits until it is known."""
        if unknown:
            raise unknown_keyword(self.position, unknown)
        engine = self._engine
        state = self._subscription.state(topic_partition(partition))
        try:
            async with asyncio.timeout(self._limit(timeout)):
                while state.position == UNKNOWN:
                    if state.error is not None:
                        raise state.error
                    self._subscription.state(partition)
                    engine.check()
                    await engine.positions.found.wait()
        except TimeoutError as error:
            if isinstance(error, KafkaTimeoutError):
                raise
            raise KafkaTimeoutError(f"the position of {partition} is not known yet") from None
        engine.settle()
        return state.position

    async def beginning_offsets(
        self, partitions: Partitions, *, timeout: float | None = None, **unknown: Never
    ) -> dict[TopicPartition, int]:
        """The offset of the first record that each partition still has."""
        if unknown:
            raise unknown_keyword(self.beginning_offsets, unknown)
        wanted = dict.fromkeys(topic_partitions(partitions), EARLIEST)
        found = await self._engine.lookups.find(wanted, self._limit(timeout))
        return {partition: place.offset for partition, place in found.items()}

    async def end_offsets(
        self, partitions: Partitions, *, timeout: float | None = None, **unknown: Never
    ) -> dict[TopicPartition, int]:
        """The offset after the last record that isolation_level lets this consumer read."""
        if unknown:
            raise unknown_keyword(self.end_offsets, unknown)
        wanted = dict.fromkeys(topic_partitions(partitions), LATEST)
        found = await self._engine.lookups.find(wanted, self._limit(timeout))
        return {partition: place.offset for partition, place in found.items()}

    async def offsets_for_times(
        self,
        times: Mapping[TopicPartition, float | datetime],
        *,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record not older than a time; None where there is none that young."""
        if unknown:
            raise unknown_keyword(self.offsets_for_times, unknown)
        wanted = by_partition(times, "times", milliseconds)
        found = await self._engine.lookups.find(wanted, self._limit(timeout))
        return {partition: _place(place) for partition, place in found.items()}


def _place(found: Found) -> OffsetAndTimestamp | None:
    if found.offset < 0:
        return None
    return OffsetAndTimestamp(
        found.offset, found.timestamp, None if found.epoch < 0 else found.epoch
    )
