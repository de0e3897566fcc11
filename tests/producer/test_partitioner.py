"""Keys go where Java's producer puts them; records without a key stick, then move on."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kafka_async.errors import InvalidConfigurationError
from kafka_async.kernel import TopicOpenBatches
from kafka_async.producer.partitioner import StickyChoice, ask, partition_for_key


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
def test_a_key_goes_where_java_puts_it(key: bytes, java_hash: int) -> None:
    assert partition_for_key(key, 12) == (java_hash & 0x7FFFFFFF) % 12
    assert partition_for_key(key, 1) == 0


def sticky() -> StickyChoice:
    return StickyChoice(random.Random(7), TopicOpenBatches())


def test_the_choice_sticks_until_a_batch_is_full() -> None:
    choice = sticky()
    partition = choice.choose([(0, 0), (1, 0), (2, 0)])
    assert choice.current == partition
    choice.wrote(partition, 60, enough=100)
    assert choice.current == partition
    choice.wrote(partition, 40, enough=100)
    assert choice.current == -1


def test_what_goes_elsewhere_does_not_count() -> None:
    choice = sticky()
    partition = choice.choose([(0, 0)])
    choice.wrote(partition + 1, 1000, enough=100)
    assert choice.current == partition


def test_a_long_queue_is_chosen_less_often() -> None:
    choice = sticky()
    drawn = Counter(choice.choose([(0, 0), (1, 9)]) for _ in range(1100))
    assert drawn[0] > 8 * drawn[1] > 0


def test_equal_queues_are_chosen_equally() -> None:
    choice = sticky()
    drawn = Counter(choice.choose([(n, 3) for n in range(4)]) for _ in range(4000))
    assert all(800 < drawn[n] < 1200 for n in range(4))


@pytest.mark.parametrize("answer", [-1, 3, "1", None])
def test_a_partitioner_that_names_no_partition_is_refused(answer: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match="partitions 0 to 2"):
        ask(lambda topic, key, count: answer, "clicks", b"k", 3)


def test_a_partitioner_sees_topic_key_and_count() -> None:
    seen: list[tuple[str, bytes | None, int]] = []

    def partitioner(topic: str, key: bytes | None, count: int) -> int:
        seen.append((topic, key, count))
        return count - 1

    assert ask(partitioner, "clicks", None, 5) == 4
    assert seen == [("clicks", None, 5)]
