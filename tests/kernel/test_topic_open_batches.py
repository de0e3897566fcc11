"""Tests of `TopicOpenBatches`: finding the open batch of a record."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kafka_async.errors import IllegalStateError
from tests.kernel.kernels import closed_batch

TIME = 1_700_000_000_000
ROOM = 1 << 20
KEYS = [b"21", b"foobar", b"abc", b"a-little-bit-long-string"]
JAVA_HASHES = [-973932308, -790332482, 479470107, -985981536]


def topic(kernel: ModuleType, partitions: int, *open_ones: int, capacity: int = ROOM) -> Any:
    """Return a topic with empty open batches; their outcomes are the partition numbers."""
    batches = kernel.TopicOpenBatches()
    batches.partitions = partitions
    for partition in open_ones:
        batches.add(partition, kernel.OpenBatch(partition, capacity))
    return batches


def test_record_goes_to_given_partition(kernel: ModuleType) -> None:
    batches = topic(kernel, 3, 0, 1, 2)
    delivery = batches.append(TIME, b"key", b"value", (), 2)
    assert (delivery.outcome, delivery.index, delivery.timestamp) == (2, 0, TIME)


@pytest.mark.parametrize(("key", "java_hash"), list(zip(KEYS, JAVA_HASHES, strict=True)))
def test_key_selects_the_same_partition_as_in_java(
    kernel: ModuleType, key: bytes, java_hash: int
) -> None:
    batches = topic(kernel, 12, *range(12))
    batches.sticky_partition = 5
    assert batches.append(TIME, key, b"value").outcome == (java_hash & 0x7FFF_FFFF) % 12


def test_record_without_key_goes_to_sticky_partition(kernel: ModuleType) -> None:
    batches = topic(kernel, 3, 0, 1, 2)
    assert batches.sticky_partition == -1
    assert batches.append(TIME, None, b"value") is None
    batches.sticky_partition = 1
    assert batches.append(TIME, None, b"value").outcome == 1


def test_appends_nothing_while_partition_count_is_unknown(kernel: ModuleType) -> None:
    batches = topic(kernel, 0, 0)
    batches.sticky_partition = 0
    assert batches.append(TIME, None, b"value") is None
    assert batches.append(TIME, b"key", b"value") is None
    assert batches.append(TIME, b"key", b"value", (), 0) is None
    assert batches.append_many(TIME, [b"value"], [b"key"]) == []


def test_appends_nothing_without_open_batch(kernel: ModuleType) -> None:
    batches = topic(kernel, 3, 0)
    assert batches.append(TIME, None, b"value", (), 1) is None
    assert len(batches) == 1
    batches.remove(0)
    batches.remove(0)
    assert len(batches) == 0
    assert batches.append(TIME, None, b"value", (), 0) is None
    assert batches.append_many(TIME, [b"value"], partition=0) == []


def test_opening_a_batch_replaces_the_previous_one(kernel: ModuleType) -> None:
    batches = topic(kernel, 1, 0)
    batches.add(0, kernel.OpenBatch("new", ROOM))
    assert batches.append(TIME, None, b"value", (), 0).outcome == "new"


def test_appends_headers(kernel: ModuleType) -> None:
    batches, batch = topic(kernel, 1), kernel.OpenBatch(None, ROOM)
    batches.add(0, batch)
    batches.append(TIME, b"k", b"v", [("h", b"x")], 0)
    assert batch.close() == closed_batch(kernel, (TIME, b"k", b"v", [("h", b"x")]))


def test_full_batch_accepts_no_record(kernel: ModuleType) -> None:
    batches = topic(kernel, 1, 0, capacity=0)
    assert batches.append(TIME, None, b"value", (), 0) is not None
    assert batches.append(TIME, None, b"value", (), 0) is None


def sections(kernel: ModuleType, fill: Callable[[Any], object]) -> list[bytes]:
    """Return the sections of a topic's three batches after `fill` has appended records."""
    batches = topic(kernel, 3)
    each = [kernel.OpenBatch(None, ROOM) for _ in range(3)]
    for partition, batch in enumerate(each):
        batches.add(partition, batch)
    batches.sticky_partition = 1
    fill(batches)
    return [batch.close() for batch in each]


@pytest.mark.parametrize("partition", [None, 2])
@pytest.mark.parametrize("keyed", [True, False])
def test_append_many_equals_repeated_append(
    kernel: ModuleType, keyed: bool, partition: int | None
) -> None:
    values = [b"%d" % number for number in range(100)]
    keys = [None if number % 5 == 0 else b"k%d" % number for number in range(100)]

    def append_many(batches: Any) -> None:
        deliveries = batches.append_many(TIME, values, keys if keyed else None, partition)
        assert len(deliveries) == len(values)

    def append_each(batches: Any) -> None:
        for key, value in zip(keys, values, strict=True):
            batches.append(TIME, key if keyed else None, value, (), partition)

    assert sections(kernel, append_many) == sections(kernel, append_each)


def test_append_many_stops_at_partition_without_open_batch(kernel: ModuleType) -> None:
    batches = topic(kernel, 12, *range(12))
    missing = (JAVA_HASHES[2] & 0x7FFF_FFFF) % 12
    batches.remove(missing)
    deliveries = batches.append_many(TIME, [b"a", b"b", b"c", b"d"], KEYS)
    assert [delivery.index for delivery in deliveries] == [0, 0]
    assert all(delivery.outcome != missing for delivery in deliveries)


def test_append_many_stops_when_batch_is_full(kernel: ModuleType) -> None:
    batches = topic(kernel, 1, 0, capacity=16)
    assert len(batches.append_many(TIME, [b"a"] * 5, [b""] * 5)) == 2
    batches = topic(kernel, 1, 0, capacity=16)
    assert len(batches.append_many(TIME, [b"a"] * 5, partition=0)) == 2


def test_append_many_with_fewer_keys_than_values_raises(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        topic(kernel, 1, 0).append_many(TIME, [b"a", b"b"], [None])


@pytest.mark.parametrize("bad", [("key", b"value"), (b"key", "value")])
def test_append_many_returns_deliveries_before_invalid_record(
    kernel: ModuleType, bad: tuple[Any, Any]
) -> None:
    batches = topic(kernel, 1, 0)
    keys, values = [b"k", b"k", bad[0]], [b"v", b"v", bad[1]]
    assert len(batches.append_many(TIME, values, keys)) == 2
    with pytest.raises(TypeError):
        batches.append_many(TIME, values[2:], keys[2:])
    with pytest.raises(TypeError):
        batches.append(TIME, *bad)


class ShrinkingList(list[bytes]):
    """Deletes all but the first `kept` items when its length is read."""

    def __init__(self, items: list[bytes], kept: int) -> None:
        super().__init__(items)
        self._kept = kept

    def __len__(self) -> int:
        count = super().__len__()
        del self[self._kept :]
        return count


@pytest.mark.parametrize("keyed", [True, False])
def test_append_many_returns_deliveries_if_values_disappear(
    kernel: ModuleType, keyed: bool
) -> None:
    keys = [b"k"] * 5 if keyed else None
    batches = topic(kernel, 1, 0)
    batches.sticky_partition = 0
    assert len(batches.append_many(TIME, ShrinkingList([b"v"] * 5, 3), keys)) == 3
    with pytest.raises(IndexError):
        batches.append_many(TIME, ShrinkingList([b"v"] * 5, 0), keys)
    if keyed:
        assert len(batches.append_many(TIME, [b"v"] * 5, ShrinkingList([b"k"] * 5, 2))) == 2


@pytest.mark.parametrize("keyed", [True, False])
def test_append_many_to_closed_batch_raises(kernel: ModuleType, keyed: bool) -> None:
    batches, batch = topic(kernel, 1), kernel.OpenBatch(None, ROOM)
    batches.add(0, batch)
    batch.close()
    with pytest.raises(IllegalStateError):
        batches.append_many(TIME, [b"v"], [b"k"] if keyed else None, 0)


def test_append_many_of_no_values_returns_nothing(kernel: ModuleType) -> None:
    assert topic(kernel, 1, 0).append_many(TIME, [], partition=0) == []


@pytest.mark.parametrize("timestamp", [-2, 1 << 63])
def test_invalid_timestamp_raises(kernel: ModuleType, timestamp: int) -> None:
    batches = topic(kernel, 1, 0)
    with pytest.raises(ValueError, match="timestamp"):
        batches.append(timestamp, b"k", b"v")
    with pytest.raises(ValueError, match="timestamp"):
        batches.append_many(timestamp, [b"v"], [b"k"])
    with pytest.raises(ValueError, match="timestamp"):
        batches.append_many(timestamp, [b"v"], partition=0)
