"""Triggers: decide when a job runs for the new records of a topic, and for which ranges. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.ranges import partition_of, size_of, split_by_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.spark.orchestrator.ranges import Ranges
    from kafka_async.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Runs a job for the new records of a topic; any of the conditions starts it.

    Attributes:
        job: Name of the job, which is also the scope of its processed offsets.
        topic: The topic.
        rows: Start at this number of new offsets; None for no such condition.
        lag: Start once a new record is older than this, in seconds; None for no such condition.
        interval: Start this many seconds after the previous start if there is a new offset; None
            for no such condition.
        max_rows: Maximum offsets per job; None for all new offsets.
        starting: The first offset of a trigger that has never run: "earliest" or "latest".
        pool: Spark's scheduler pool of its jobs.
        tag: Tag of its jobs.
        timeout: Maximum time of a job, in seconds.
    """

    job: str
    topic: str
    rows: int | None = None
    lag: float | None = None
    interval: float | None = None
    max_rows: int | None = None
    starting: Literal["earliest", "latest"] = "earliest"
    pool: str | None = None
    tag: str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if self.rows is None and self.lag is None and self.interval is None:
            raise ValueError("a trigger needs at least one of rows, lag and interval")
        for name in ("rows", "max_rows"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name}={count!r} must be at least 1")
        for name in ("lag", "interval", "timeout"):
            time = getattr(self, name)
            if time is not None and time <= 0:
                raise ValueError(f"{name}={time!r} must be more than 0 seconds")
        if self.starting not in ("earliest", "latest"):
            raise ValueError(f'starting={self.starting!r} must be "earliest" or "latest"')


def new_ranges(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Ranges:
    """Return the ranges from positions to ends, without empty ones."""
    return tuple(
        OffsetRange(tp.topic, tp.partition, positions[tp], ends[tp])
        for tp in sorted(positions)
        if positions[tp] < ends[tp]
    )


def is_due(
    trigger: Trigger,
    available: Ranges,
    *,
    now: float,
    started_at: float | None,
    late: Mapping[TopicPartition, int],
) -> bool:
    """Return whether a job is due.

    Args:
        trigger: The trigger.
        available: The ranges of new offsets.
        now: Seconds of a monotonic clock.
        started_at: Time of the previous start, or None.
        late: By partition, the first offset whose record is younger than `trigger.lag`.
    """
    if not available:
        return False
    if trigger.rows is not None and size_of(available) >= trigger.rows:
        return True
    if trigger.interval is not None and (
        started_at is None or now - started_at >= trigger.interval
    ):
        return True
    return trigger.lag is not None and any(
        late.get(tp, 0) > part.start
        for tp, part in ((partition_of(part), part) for part in available)
    )


def ranges_of_job(trigger: Trigger, available: Ranges) -> Ranges:
    """Return the ranges of the next job: at most `max_rows` offsets."""
    if trigger.max_rows is None or size_of(available) <= trigger.max_rows:
        return available
    return split_by_rows(available, trigger.max_rows)[0]
