"""Conversion of messages to trees, and descriptions of differences."""

from __future__ import annotations

import uuid

import pytest

from kafka_async.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from tools.conformance.trees import byte_difference, difference, tree_of

NAN = float("nan")


def test_tree_has_fields_of_version_and_bytes_in_base64() -> None:
    partition = PartitionData(partition_index=3, high_watermark=4, records=b"\0\1\2")
    topic = FetchableTopicResponse(topic_id=uuid.UUID(int=1), partitions=[partition])
    tree = tree_of(FetchResponse(responses=[topic]), 16)
    assert tree["responses"] == [
        {
            "topicId": "AAAAAAAAAAAAAAAAAAAAAQ",
            "partitions": [
                {
                    "partitionIndex": 3,
                    "errorCode": 0,
                    "highWatermark": 4,
                    "lastStableOffset": -1,
                    "logStartOffset": -1,
                    "abortedTransactions": [],
                    "preferredReadReplica": -1,
                    "records": "AAEC",
                }
            ],
        }
    ]
    assert "nodeEndpoints" not in tree  # a tagged field at its default


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ".a[1].b: 2, 3"),
        ({"a": 1, "b": 2}, {"a": 1}, ".: only one of them has b"),
        ([1, 2], [1], ".: 2 elements, 1"),
        (0.0, -0.0, ".: 0.0, -0.0"),
        (True, 1, ".: True, 1"),
        (None, "", ".: None, ''"),
        (HeartbeatRequest(group_id="a"), HeartbeatRequest(), ".group_id: 'a', ''"),
        (memoryview(b"a"), b"b", ".: b'a', b'b'"),
    ],
)
def test_describes_path_of_first_difference(ours: object, theirs: object, shown: str) -> None:
    assert difference(ours, theirs) == shown


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([1, (2,)], (1, [2])),
        (NAN, float("nan")),
        (memoryview(b"a"), b"a"),
        (HeartbeatRequest(group_id="a"), HeartbeatRequest(group_id="a")),
    ],
)
def test_equal_values_have_no_difference(ours: object, theirs: object) -> None:
    assert difference(ours, theirs) is None


def test_describes_different_bytes_with_adjacent_ones() -> None:
    shown = byte_difference(bytes(range(20)), bytes(range(10)) + b"\xff" + bytes(range(11, 20)))
    assert shown == (
        "byte 10 of 20, 20: 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11, "
        "02 03 04 05 06 07 08 09 ff 0b 0c 0d 0e 0f 10 11 (from byte 2)"
    )
    assert byte_difference(b"ab", b"a") == "byte 1 of 2, 1: 61 62, 61 (from byte 0)"
    assert byte_difference(b"ab", b"ab") is None
