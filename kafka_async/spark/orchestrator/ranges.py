"""Offset ranges of jobs: their JSON, sizes, parts, and the sets of offsets already processed. Pure.

A job reads ranges of several partitions, at most one per partition. Reads use the options of
Spark's Kafka connector, so both connectors read the same records:

    rows = spark.read.format("kafka_async").options(**read_options(ranges, servers)).load()
"""

from __future__ import annotations

import bisect
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.arguments import instance_of
from kafka_async.spark.offsets import OffsetRange
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Ranges: TypeAlias = tuple[OffsetRange, ...]

EXAMPLE: Final = '{"topic": {"0": [100, 200]}}'


def partition_of(part: OffsetRange) -> TopicPartition:
    """Return the partition of a range."""
    return TopicPartition(part.topic, part.partition)


def size_of(ranges: Iterable[OffsetRange]) -> int:
    """Return the number of offsets in ranges; there may be fewer records."""
    return sum(part.size for part in ranges)


def check_ranges(ranges: Iterable[OffsetRange]) -> Ranges:
    """Return ranges ordered by partition, without empty ones.

    Raises:
        TypeError: An element is not an OffsetRange.
        ValueError: A range ends before its start or begins before offset 0, or a partition has two
            ranges.
    """
    found: dict[TopicPartition, OffsetRange] = {}
    for part in ranges:
        instance_of(part, OffsetRange, "each of ranges")
        if not 0 <= part.start <= part.end:
            raise ValueError(
                f"{partition_of(part)} has the range {part.start} to {part.end}: the start must "
                "be at least 0 and not after the end"
            )
        if partition_of(part) in found:
            raise ValueError(f"there are two ranges of {partition_of(part)}: give one per job")
        found[partition_of(part)] = part
    return tuple(found[tp] for tp in sorted(found) if found[tp].size)


# -- JSON -----------------------------------------------------------------------------------------


def ranges_to_json(ranges: Iterable[OffsetRange]) -> dict[str, dict[str, list[int]]]:
    """Return ranges for a JSON document: topic, partition, and [start, end]."""
    topics: dict[str, dict[str, list[int]]] = {}
    for part in ranges:
        topics.setdefault(part.topic, {})[str(part.partition)] = [part.start, part.end]
    return topics


def ranges_from_json(document: object) -> Ranges:
    """Parse the result of `ranges_to_json`; raise ValueError if it is malformed."""
    try:
        topics = cast("dict[str, dict[str, list[Any]]]", document)
        ranges = [
            OffsetRange(topic, int(partition), _offset(start), _offset(end))
            for topic, partitions in topics.items()
            for partition, (start, end) in partitions.items()
        ]
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"ranges are not valid ({error}): write {EXAMPLE}") from error
    return check_ranges(ranges)


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not an offset")
    return value


def starting_offsets(ranges: Iterable[OffsetRange]) -> str:
    """Return the option startingOffsets of a read of the ranges."""
    return json.dumps(_offsets({partition_of(part): part.start for part in ranges}))


def ending_offsets(ranges: Iterable[OffsetRange]) -> str:
    """Return the option endingOffsets of a read of the ranges."""
    return json.dumps(_offsets({partition_of(part): part.end for part in ranges}))


def _offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for tp, offset in offsets.items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return topics


def read_options(ranges: Sequence[OffsetRange], servers: str) -> dict[str, str]:
    """Return the options with which either Kafka connector reads exactly the committed records.

    Raises:
        InvalidConfigurationError: There are no ranges; an unbounded read would read the whole
            topic.
    """
    if not ranges:
        raise InvalidConfigurationError("the job has no ranges to read: start it with ranges=")
    topics: dict[str, list[int]] = {}
    for part in ranges:
        topics.setdefault(part.topic, []).append(part.partition)
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps(topics),
        "startingOffsets": starting_offsets(ranges),
        "endingOffsets": ending_offsets(ranges),
    }


# -- sets of offsets ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """An immutable set of offsets of one partition, as ordered intervals that do not touch.

    Attributes:
        intervals: (start, exclusive end) pairs.
    """

    intervals: tuple[tuple[int, int], ...] = ()

    def add(self, start: int, end: int) -> OffsetSet:
        """Return the set with the offsets from `start` to before `end`."""
        if start >= end:
            return self
        kept = [pair for pair in self.intervals if pair[1] < start or pair[0] > end]
        joined = [pair for pair in self.intervals if pair[1] >= start and pair[0] <= end]
        low = min([start, *(pair[0] for pair in joined)])
        high = max([end, *(pair[1] for pair in joined)])
        bisect.insort(kept, (low, high))
        return OffsetSet(tuple(kept))

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the intervals from `start` to before `end` that are not in the set."""
        gaps: list[tuple[int, int]] = []
        for low, high in self.intervals:
            if high <= start:
                continue
            if low >= end:
                break
            if start < low:
                gaps.append((start, low))
            start = high
        if start < end:
            gaps.append((start, end))
        return gaps

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether the set has an offset from `start` to before `end`."""
        return any(max(low, start) < min(high, end) for low, high in self.intervals)

    def contiguous_end(self, start: int) -> int:
        """Return the first offset at or after `start` that is not in the set."""
        for low, high in self.intervals:
            if low <= start < high:
                return high
        return start


def remaining(
    ranges: Iterable[OffsetRange], processed: Mapping[TopicPartition, OffsetSet]
) -> list[Ranges]:
    """Return the unprocessed ranges, as parts with at most one range per partition.

    Usually there is one part. A partition with several gaps contributes one gap to each part.
    """
    gaps = [
        [
            OffsetRange(part.topic, part.partition, start, end)
            for start, end in processed.get(partition_of(part), OffsetSet()).missing(
                part.start, part.end
            )
        ]
        for part in ranges
    ]
    return [tuple(part for part in row if part is not None) for row in itertools.zip_longest(*gaps)]


# -- parts ----------------------------------------------------------------------------------------


def bisect_ranges(ranges: Sequence[OffsetRange]) -> tuple[Ranges, Ranges] | None:
    """Return two halves with the same number of offsets, or None for a single offset."""
    total = size_of(ranges)
    if total < 2:
        return None
    left, first, second = total // 2, list[OffsetRange](), list[OffsetRange]()
    for part in ranges:
        cut = part.start + min(left, part.size)
        left -= cut - part.start
        if cut > part.start:
            first.append(OffsetRange(part.topic, part.partition, part.start, cut))
        if cut < part.end:
            second.append(OffsetRange(part.topic, part.partition, cut, part.end))
    return tuple(first), tuple(second)


def split_by_rows(ranges: Sequence[OffsetRange], size: int) -> list[Ranges]:
    """Return consecutive parts of `size` offsets each; the last may have fewer.

    Each part takes from every partition in proportion to its size, so that its tasks run in
    parallel.
    """
    parts: list[Ranges] = []
    positions = [part.start for part in ranges]
    while left := sum(p.end - at for p, at in zip(ranges, positions, strict=True)):
        counts = _share(
            min(size, left), [p.end - at for p, at in zip(ranges, positions, strict=True)]
        )
        parts.append(
            tuple(
                OffsetRange(part.topic, part.partition, at, at + count)
                for part, at, count in zip(ranges, positions, counts, strict=True)
                if count
            )
        )
        positions = [at + count for at, count in zip(positions, counts, strict=True)]
    return parts


def _share(count: int, available: Sequence[int]) -> list[int]:
    """Divide a count in proportion to `available`; the sum is exactly `count`."""
    total = sum(available)
    shares = [count * one // total for one in available]
    by_remainder = sorted(
        range(len(available)), key=lambda index: -(count * available[index] % total)
    )
    for index in by_remainder[: count - sum(shares)]:
        shares[index] += 1
    return shares


@dataclass(frozen=True, slots=True)
class SizeSample:
    """Measured record bytes per offset, from an offset on."""

    offset: int
    bytes_per_offset: float


def split_by_bytes(
    ranges: Sequence[OffsetRange],
    size: int,
    samples: Mapping[TopicPartition, Sequence[SizeSample]],
) -> list[Ranges]:
    """Return parts of about `size` bytes, estimated from samples.

    A sample applies up to the next sample's offset. A part takes from one partition after the
    other, and has at least one offset.
    """
    parts: list[Ranges] = []
    current: list[OffsetRange] = []
    left = float(size)
    for part in ranges:
        position = part.start
        while position < part.end:
            rate, until = _rate_at(samples.get(partition_of(part), ()), position, part.end)
            take = min(until - position, max(int(left / rate), 0 if current else 1))
            if take:
                current.append(OffsetRange(part.topic, part.partition, position, position + take))
                position += take
                left -= take * rate
            if position < until:
                parts.append(_joined(current))
                current, left = [], float(size)
    if current:
        parts.append(_joined(current))
    return parts


def _rate_at(samples: Sequence[SizeSample], offset: int, end: int) -> tuple[float, int]:
    """Return the bytes per offset at `offset`, and the offset up to which they apply."""
    rate, until = 1.0, end
    for sample in samples:
        if sample.offset > offset:
            until = min(until, sample.offset)
            break
        rate = sample.bytes_per_offset
    return max(rate, 1.0), until


def _joined(ranges: Iterable[OffsetRange]) -> Ranges:
    """Return the ranges with adjacent ranges of a partition merged."""
    joined: list[OffsetRange] = []
    for part in ranges:
        if joined and partition_of(joined[-1]) == partition_of(part):
            joined[-1] = OffsetRange(part.topic, part.partition, joined[-1].start, part.end)
        else:
            joined.append(part)
    return tuple(joined)
