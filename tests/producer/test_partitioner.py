"""Partitions of records with a key, as in Java's producer, and without one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kafka_async.errors import InvalidConfigurationError
from kafka_async.kernel import TopicOpenBatches
from kafka_async.producer.partitioner import StickyPartition, call_partitioner, partition_for_key


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_key_goes_to_the_partition_of_java_clients(key: bytes, java_hash: int) -> None:
    assert partition_for_key(key, 12) == (java_hash & 0x7FFFFFFF) % 12
    assert partition_for_key(key, 1) == 0


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


def sticky() -> StickyPartition:
    return StickyPartition(TopicOpenBatches())


def test_partition_is_kept_until_a_batch_is_full(rng: random.Random) -> None:
    choice = sticky()
    partition = choice.choose(rng, [(0, 0), (1, 0), (2, 0)])
    assert choice.current == partition
    choice.batch_closed(partition, 60, enough=100)
    assert choice.current == partition
    choice.batch_closed(partition, 40, enough=100)
    assert choice.current == -1


def test_batches_of_other_partitions_do_not_count(rng: random.Random) -> None:
    choice = sticky()
    partition = choice.choose(rng, [(0, 0)])
    choice.batch_closed(partition + 1, 1000, enough=100)
    assert choice.current == partition


def test_partition_with_a_long_queue_is_chosen_less_often(rng: random.Random) -> None:
    choice = sticky()
    drawn = Counter(choice.choose(rng, [(0, 0), (1, 9)]) for _ in range(1100))
    assert drawn[0] > 8 * drawn[1] > 0


def test_equal_queues_are_chosen_equally_often(rng: random.Random) -> None:
    choice = sticky()
    drawn = Counter(choice.choose(rng, [(n, 3) for n in range(4)]) for _ in range(4000))
    assert all(800 < drawn[n] < 1200 for n in range(4))


@pytest.mark.parametrize("choice", [-1, 3, "1", None])
def test_refuses_a_partitioner_without_a_valid_partition(choice: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="partitions 0 to 2"):
        call_partitioner(lambda topic, key, count: choice, "clicks", b"k", 3)
