"""Committed and pending offsets of groups."""

from __future__ import annotations

import pytest

from kafka_async.embedded.groups.group_coordinator import subscribed_topics
from kafka_async.embedded.state.offset_metadata_manager import (
    CommittedOffset,
    OffsetMetadataManager,
)
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
@pytest.mark.parametrize("partitions", [50, 7])
def test_offsets_partition_matches_java_hash(
    group_id: str, java_hash: int, partitions: int
) -> None:
    expected = 0 if java_hash == -(2**31) else abs(java_hash) % partitions
    found = OffsetMetadataManager(partitions).partition_for(group_id)
    assert found == ("__consumer_offsets", expected)


def test_commit_replaces_earlier_offset() -> None:
    offsets = OffsetMetadataManager(50)
    offsets.commit("g", {TP: CommittedOffset(1)})
    offsets.commit(
        "g", {TP: CommittedOffset(2, 5, "note"), TopicPartition("t", 1): CommittedOffset(3)}
    )
    assert offsets.committed("g")[TP] == (2, 5, "note")
    assert len(offsets.committed("g")) == 2
    assert offsets.committed("h") == {}


@pytest.mark.parametrize("committed", [True, False])
def test_pending_offsets_wait_for_marker(committed: bool) -> None:
    offsets = OffsetMetadataManager(50)
    offsets.commit("g", {TP: CommittedOffset(1)})
    offsets.commit_transactional("g", PRODUCER, {TP: CommittedOffset(2)})
    assert offsets.is_pending("g", TP)
    assert not offsets.is_pending("h", TP)
    offsets.end_transaction(PRODUCER, offsets.partition_for("other"), committed=True)
    assert offsets.is_pending("g", TP)
    offsets.end_transaction(PRODUCER, offsets.partition_for("g"), committed=committed)
    assert not offsets.is_pending("g", TP)
    assert offsets.committed("g")[TP].offset == (2 if committed else 1)


def test_marker_of_other_producer_keeps_pending_offsets() -> None:
    offsets = OffsetMetadataManager(50)
    offsets.commit_transactional("g", PRODUCER, {TP: CommittedOffset(2)})
    offsets.end_transaction(PRODUCER + 1, offsets.partition_for("g"), committed=True)
    assert offsets.is_pending("g", TP)
    assert offsets.committed("g") == {}


def test_deletes_offsets_of_topic_and_group() -> None:
    offsets = OffsetMetadataManager(50)
    other = TopicPartition("u", 0)
    offsets.commit("g", {TP: CommittedOffset(1), other: CommittedOffset(2)})
    offsets.commit_transactional("g", PRODUCER, {TP: CommittedOffset(3)})
    offsets.commit_transactional("h", PRODUCER, {TP: CommittedOffset(3)})
    offsets.delete_topic("t")
    assert set(offsets.committed("g")) == {other}
    assert not offsets.is_pending("h", TP)
    offsets.end_transaction(PRODUCER, offsets.partition_for("g"), committed=True)
    assert set(offsets.committed("g")) == {other}
    offsets.commit_transactional("g", PRODUCER, {other: CommittedOffset(9)})
    offsets.delete_group("g")
    assert offsets.committed("g") == {}
    assert not offsets.is_pending("g", other)


@pytest.mark.parametrize("version", range(4))
def test_reads_subscribed_topics_of_every_version(version: int) -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"]).encode(version)
    assert subscribed_topics(version.to_bytes(2, "big") + subscription) == {"a", "b"}


def test_reads_subscription_of_newer_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a"]).encode(3)
    assert subscribed_topics(b"\0\x09" + subscription + b"more") == {"a"}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\0", b"\xff\xff\0\0", b"\0\0\0\0\0\x09"])
def test_invalid_subscription_has_no_topics(metadata: bytes) -> None:
    assert subscribed_topics(metadata) == frozenset()
