"""Offset ranges of a Spark read, and the JSON of Spark's Kafka connector. Pure.

An offset is the next one to read; -2 is the earliest and -1 the latest, as in
`{"clicks": {"0": 23, "1": -2}}`.
"""

from __future__ import annotations

import itertools
import json
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
    """Parse the JSON of an option; InvalidConfigurationError names the option."""
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
    available: Mapping[TopicPartition, tuple[int, int]],
) -> list[OffsetRange]:
    """Return the ranges to read; empty ones are left out.

    `available` has the earliest and the latest offset of each partition. They replace bounds that
    are missing, EARLIEST or LATEST. Other bounds are not changed, so that the caller notices
    offsets that retention has removed.
    """
    ranges: list[OffsetRange] = []
    for tp in sorted(partitions):
        earliest, latest = available[tp]
        start = _resolve(starts.get(tp, EARLIEST), earliest, latest)
        end = _resolve(ends.get(tp, LATEST), earliest, latest)
        if start < end:
            ranges.append(OffsetRange(tp.topic, tp.partition, start, end))
    return ranges


def _resolve(offset: int, earliest: int, latest: int) -> int:
    return {EARLIEST: earliest, LATEST: latest}.get(offset, offset)


def split(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Split ranges into at least `min_partitions`, each of at most `max_records` offsets.

    The number of parts of a range is proportional to its size and at least one; their sizes differ
    by at most one.
    """
    parts = list(ranges)
    if max_records is not None:
        parts = [p for whole in parts for p in _cut(whole, -(-whole.size // max_records))]
    if min_partitions is not None and parts and len(parts) < min_partitions:
        total = sum(part.size for part in parts)
        parts = [
            p for whole in parts for p in _cut(whole, -(-whole.size * min_partitions // total))
        ]
    return parts


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = max(1, min(count, whole.size))
    edges = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, start, end)
        for start, end in itertools.pairwise(edges)
    ]
