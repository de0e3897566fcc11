"""Offset ranges of a Spark read, and the JSON of Spark's Kafka connector. Pure.

An offset is the next offset to read; -2 is the earliest and -1 the latest, as in `{"clicks": {"0":
23, "1": -2}}`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LATEST: Final = -1
EARLIEST: Final = -2

Offsets: TypeAlias = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """Offsets by time: the first record of a partition at or after a timestamp.

    Attributes:
        timestamps: Milliseconds since the epoch, for all partitions or by partition.
        latest_if_none: Whether to use the latest offset if no record is that late, instead of
            raising.
    """

    timestamps: int | Mapping[TopicPartition, int]
    latest_if_none: bool


Bound: TypeAlias = "Offsets | int | ByTimestamp"
"""A bound of a read: offsets by partition, EARLIEST, LATEST, or timestamps."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Holds the offsets of one partition that a Spark task reads: `start` <= offset < `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets; there may be fewer records."""
        return self.end - self.start


def parse_offsets(text: str, option: str) -> Offsets:
    """Parse an option's JSON; raise InvalidConfigurationError if it is malformed."""
    example = '{"topic": {"0": 23, "1": -2}}'
    try:
        topics = json.loads(text)
        return {
            TopicPartition(topic, int(partition)): _offset(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError) as error:
        raise InvalidConfigurationError(
            f"{option} is not valid JSON of offsets ({error}): write {example}, -2 is the earliest "
            "offset, -1 the latest"
        ) from error


def parse_timestamps(text: str, option: str) -> Offsets:
    """Parse timestamps by partition, in milliseconds; raise InvalidConfigurationError if malformed.

    Args:
        text: JSON such as `{"topic": {"0": 1700000000000}}`.
        option: Name of the option.
    """
    timestamps = parse_offsets(text, option)
    for partition, timestamp in timestamps.items():
        if timestamp < 0:
            raise InvalidConfigurationError(
                f"{option} has the timestamp {timestamp} for {partition}: write milliseconds since "
                "1970, or use startingOffsets or endingOffsets for -1 and -2"
            )
    return timestamps


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < EARLIEST:
        raise ValueError(f"{value!r} is not an offset")
    return value


def parse_assignment(text: str) -> list[TopicPartition]:
    """Parse the option `assign`, as in `{"topic": [0, 1]}`."""
    try:
        topics = cast("dict[str, list[int]]", json.loads(text))
        return [TopicPartition(topic, int(p)) for topic, all_ in topics.items() for p in all_]
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidConfigurationError(
            f'assign is not valid JSON of partitions ({error}): write {{"topic": [0, 1]}}'
        ) from error


def plan(
    partitions: Iterable[TopicPartition],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[OffsetRange]:
    """Return the ordered ranges between two sets of offsets, without empty ones."""
    return [
        OffsetRange(tp.topic, tp.partition, starts[tp], ends[tp])
        for tp in sorted(partitions)
        if starts[tp] < ends[tp]
    ]


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Split ranges into tasks as Spark's connector does.

    First, ranges are split to at most `max_records` offsets. If there are still fewer ranges than
    `min_partitions`, large ranges are split in proportion to their sizes, into about that many:
    rounding may give some more or fewer.
    """
    parts = [part for part in ranges if part.size > 0]
    if max_records is not None:
        parts = [p for whole in parts for p in _cut(whole, math.ceil(whole.size / max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(part.size for part in parts)
    # The proportion does not count ranges that stay whole.
    whole = [part for part in parts if _part_count(part.size, total, min_partitions) == 1]
    kept = {(part.topic, part.partition) for part in whole}
    to_split = total - sum(part.size for part in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [
        part
        for each in parts
        for part in _cut(
            each,
            1 if (each.topic, each.partition) in kept else _part_count(each.size, to_split, wanted),
        )
    ]


def _part_count(size: int, total: int, wanted: int) -> int:
    share = size / total * wanted
    below = math.floor(share)
    return max(below + (share - below >= 0.5), 1)


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Return `count` consecutive parts, without empty ones; the last parts take the remainder."""
    parts: list[OffsetRange] = []
    start = whole.start
    for left in range(count, 0, -1):
        end = start + (whole.end - start) // left
        if start < end:
            parts.append(OffsetRange(whole.topic, whole.partition, start, end))
        start = end
    return parts
