"""Comparison of limits, splits and offsets of Spark reads with Spark's own Kafka connector."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from kafka_async.spark.offsets import OffsetRange, Offsets, split
from kafka_async.spark.source.admission import TriggerDelay, limit_rows
from kafka_async.spark.source.source_options import source_options
from kafka_async.spark.source.stream_offset import StreamOffset
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.types import TopicPartition
from tools.conformance.spark import run_cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 2_000
Case = dict[str, Any]


@pytest.fixture
def rng(seeded: int) -> random.Random:
    return random.Random(seeded)


@pytest.fixture(scope="module")
def connector(
    cannot_run: Callable[[str, object], NoReturn],
) -> Callable[[list[Case]], list[Any]]:
    """Return what runs cases in Java; skip the tests, or fail in CI, if it cannot."""

    def run(cases: list[Case]) -> list[Any]:
        try:
            return run_cases(cases)
        except BackendUnavailableError as error:
            cannot_run("conformance", error)

    return run


def size(rng: random.Random) -> int:
    """Return a number of any magnitude."""
    return int(10 ** rng.uniform(0, rng.choice((2, 6, 15)))) - 1


def keyed(offsets: Offsets) -> dict[str, int]:
    return {str(tp.partition): offset for tp, offset in offsets.items()}


def named(offsets: Offsets) -> dict[str, int]:
    return {str(tp): offset for tp, offset in offsets.items()}


def test_splits_ranges_as_sparks_connector(
    connector: Callable[[list[Case]], list[Any]], rng: random.Random
) -> None:
    cases: list[Case] = []
    for _ in range(COUNT):
        rows: list[list[int]] = []
        for partition in range(rng.randrange(8)):
            start = size(rng)
            rows.append([partition, start, start + size(rng)])
        longest = max((end - start for _, start, end in rows), default=1)
        cases.append(
            {
                "operation": "split",
                "ranges": rows,
                "min_partitions": rng.choice((None, rng.randrange(1, 50))),
                # At most about 100 parts of each range.
                "max_records": rng.choice((None, rng.randrange(1, 200) + longest // 100)),
            }
        )
    for case, expected in zip(cases, connector(cases), strict=True):
        parts = split(
            [OffsetRange("t", *row) for row in case["ranges"]],
            min_partitions=case["min_partitions"],
            max_records=case["max_records"],
        )
        assert [[part.partition, part.start, part.end] for part in parts] == expected, case


def test_limits_batches_as_sparks_connector(
    connector: Callable[[list[Case]], list[Any]], rng: random.Random
) -> None:
    cases: list[Case] = []
    given: list[tuple[int, Offsets, Offsets]] = []
    for _ in range(COUNT):
        partitions = [TopicPartition("t", number) for number in range(rng.randrange(1, 8))]
        start = {tp: size(rng) for tp in partitions}
        end = {tp: max(0, start[tp] + rng.choice((-1, 0, 1, 1, 1)) * size(rng)) for tp in start}
        added = {tp: start[tp] for tp in partitions if rng.random() < 0.2}
        limit = 1 + size(rng)
        given.append((limit, start, end))
        cases.append(
            {
                "operation": "limit",
                "limit": limit,
                "start": keyed({tp: start[tp] for tp in start if tp not in added}),
                "added": keyed(added),  # The first offsets of new partitions.
                "end": keyed(end),
            }
        )
    for (limit, start, end), case, expected in zip(given, cases, connector(cases), strict=True):
        assert named(limit_rows(limit, start, end)) == expected, case


def test_delays_batches_as_sparks_connector(
    connector: Callable[[list[Case]], list[Any]], rng: random.Random
) -> None:
    cases: list[Case] = []
    for _ in range(COUNT // 4):
        steps: list[Case] = []
        for _ in range(10):
            start = {str(number): rng.randrange(100) for number in range(rng.randrange(4))}
            end = {key: offset + rng.randrange(10) for key, offset in start.items()}
            end[str(len(start))] = rng.randrange(3)  # A new partition, which begins at 0.
            steps.append({"passed": rng.randrange(50), "start": start, "end": end})
        cases.append(
            {
                "operation": "delay",
                "min_rows": rng.randrange(1, 20),
                "max_delay": rng.randrange(1, 100),
                "steps": steps,
            }
        )
    for case, expected in zip(cases, connector(cases), strict=True):
        # Both count in whole units: milliseconds in Java, seconds here.
        delay = TriggerDelay(case["min_rows"], case["max_delay"])
        now = 0
        waits: list[bool] = []
        for step in case["steps"]:
            now += step["passed"]
            start, end = (
                {TopicPartition("t", int(key)): offset for key, offset in step[side].items()}
                for side in ("start", "end")
            )
            waits.append(delay.waits(start, end, now))
        assert waits == expected, case


def test_sparks_connector_reads_our_offsets(
    connector: Callable[[list[Case]], list[Any]],
) -> None:
    clicks = {TopicPartition("clicks", number): 2**40 + number for number in range(3)}
    offset = StreamOffset(
        {**clicks, TopicPartition("a.b-c_d", 0): 5},
        {"clicks": uuid.UUID(int=7)},
        dict.fromkeys(clicks, 9),
    )
    case = {"operation": "offsets", "text": json.dumps(offset.to_json())}
    assert connector([case]) == [named(offset.offsets)]


def test_reads_times_as_spark(connector: Callable[[list[Case]], list[Any]]) -> None:
    texts = ("5", "5ms", "7s", "15m", "2min", "3h", "1d", " 4S ", "9000us")
    servers = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    expected = connector([{"operation": "time", "text": text} for text in texts])
    for text, milliseconds in zip(texts, expected, strict=True):
        options = source_options({**servers, "maxTriggerDelay": text}, streaming=True)
        assert options.max_trigger_delay == milliseconds / 1000, text
