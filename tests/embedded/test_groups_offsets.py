"""Committed and pending offsets, and where Kafka would keep them."""

from __future__ import annotations

import pytest

from kafka_async.embedded.groups.offsets import CommittedOffset, OffsetStore, offsets_partition
from kafka_async.embedded.groups.subscriptions import subscribed_topics
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from kafka_async.types import TopicPartition

TP = TopicPartition("t", 0)
PRODUCER = 7


@pytest.mark.parametrize(
    ("group_id", "java_hash"),
    [
        ("", 0),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_the_partition_of_a_group_is_javas(group_id: str, java_hash: int) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % 50
    assert offsets_partition(group_id) == expected


def test_what_is_committed_replaces_what_was() -> None:
    store = OffsetStore()
    store.commit("g", {TP: CommittedOffset(1)})
    store.commit(
        "g", {TP: CommittedOffset(2, 5, "note"), TopicPartition("t", 1): CommittedOffset(3)}
    )
    assert store.committed("g")[TP] == (2, 5, "note")
    assert len(store.committed("g")) == 2
    assert store.committed("h") == {}


@pytest.mark.parametrize("committed", [True, False])
def test_pending_offsets_wait_for_their_marker(committed: bool) -> None:
    store = OffsetStore()
    store.commit("g", {TP: CommittedOffset(1)})
    store.stage("g", PRODUCER, {TP: CommittedOffset(2)})
    assert store.unstable("g", TP)
    assert not store.unstable("h", TP)
    store.end(PRODUCER, offsets_partition("g") + 1, committed=True)  # another partition's marker
    assert store.unstable("g", TP)
    store.end(PRODUCER, offsets_partition("g"), committed=committed)
    assert not store.unstable("g", TP)
    assert store.committed("g")[TP].offset == (2 if committed else 1)


def test_producers_do_not_end_each_others_transactions() -> None:
    store = OffsetStore()
    store.stage("g", PRODUCER, {TP: CommittedOffset(2)})
    store.end(PRODUCER + 1, offsets_partition("g"), committed=True)
    assert store.unstable("g", TP)
    assert store.committed("g") == {}


def test_forgetting() -> None:
    store = OffsetStore()
    other = TopicPartition("u", 0)
    store.commit("g", {TP: CommittedOffset(1), other: CommittedOffset(2)})
    store.stage("g", PRODUCER, {TP: CommittedOffset(3)})
    store.forget_topic("t")
    assert set(store.committed("g")) == {other}
    store.end(PRODUCER, offsets_partition("g"), committed=True)
    assert set(store.committed("g")) == {other}
    store.stage("g", PRODUCER, {other: CommittedOffset(9)})
    store.forget_group("g")
    assert store.committed("g") == {}
    assert not store.unstable("g", other)


@pytest.mark.parametrize("version", range(4))
def test_subscribed_topics_of_every_version(version: int) -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"]).encode(version)
    assert subscribed_topics(version.to_bytes(2, "big") + subscription) == {"a", "b"}


def test_a_subscription_of_the_future_begins_like_the_newest_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a"]).encode(3)
    assert subscribed_topics(b"\0\x09" + subscription + b"more") == {"a"}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0", b"\xff\xff\0\0", b"\0\0\0\0\0\x09"])
def test_other_metadata_names_no_topics(metadata: bytes) -> None:
    assert subscribed_topics(metadata) == frozenset()
