"""Requests with several topics and partitions, in an order that is not sorted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.contract.cases.log import UNKNOWN_TOPIC_ID
from tests.contract.model import Batch, Fields, Name, Scenario, SendRequest, TopicId, group, topic

INDEXES: Final = (2, 0, 1)
KEYS: Final = ("z", "m", "a", "k", "b")


def of_topics(rows: str, index: str, name: str = "name", **row: Any) -> list[Fields]:
    """Return the topics of a request, each with a structure for each partition."""
    return [
        {name: topic(key), rows: [{index: number, **row} for number in INDEXES]} for key in KEYS
    ]


def indexes(rows: str) -> list[Fields]:
    """Return the topics of a request that has the numbers of partitions."""
    return [{"name": topic(key), rows: list(INDEXES)} for key in KEYS]


def new(key: str) -> Fields:
    """Return a topic of CreateTopics."""
    return {"name": Name("topic", key), "num_partitions": 1, "replication_factor": 1}


TWICE: Final = [
    {"index": 0, "records": Batch((b"first",))},
    {"index": 0, "records": Batch((b"second", b"third"))},
]
LIMITS: Final = {"max_bytes": 1 << 20, "min_bytes": 0, "max_wait_ms": 0, "session_epoch": -1}
COMMIT: Final[Fields] = {"committed_offset": 1, "committed_metadata": ""}
TOPICS: Final[Mapping[str, Mapping[str, Any]]] = {key: {"partitions": len(INDEXES)} for key in KEYS}
NO_LEADER_YET: Final = (3, 5, 6)
"""Errors of a partition whose leader has not begun to lead it."""
MADE: Final = ("y", "c", "x")

SCENARIOS: Final = [
    Scenario(
        "order-log",
        [
            SendRequest(
                "ListOffsets",
                8,
                {"topics": of_topics("partitions", "partition_index", timestamp=-1)},
                retry=NO_LEADER_YET,
                setup=True,
            ),
            SendRequest(
                "Produce",
                9,
                {
                    "acks": -1,
                    "timeout_ms": 10_000,
                    "topic_data": of_topics("partition_data", "index", records=Batch()),
                },
            ),
            SendRequest(
                "Produce",
                9,
                {
                    "acks": -1,
                    "timeout_ms": 10_000,
                    "topic_data": [{"name": topic("z"), "partition_data": TWICE}],
                },
            ),
            SendRequest(
                "Fetch",
                12,
                LIMITS
                | {
                    "topics": of_topics(
                        "partitions",
                        "partition",
                        "topic",
                        fetch_offset=0,
                        partition_max_bytes=1 << 20,
                    )
                },
            ),
            SendRequest(
                "ListOffsets",
                8,
                {"topics": of_topics("partitions", "partition_index", timestamp=-1)},
            ),
            SendRequest(
                "OffsetForLeaderEpoch",
                4,
                {"topics": of_topics("partitions", "partition", "topic", leader_epoch=0)},
            ),
            SendRequest("DescribeProducers", 0, {"topics": indexes("partition_indexes")}),
            SendRequest(
                "DeleteRecords",
                2,
                {
                    "timeout_ms": 10_000,
                    "topics": of_topics("partitions", "partition_index", offset=1),
                },
            ),
            SendRequest(
                "Metadata",
                9,
                {
                    "topics": [{"name": topic(key)} for key in KEYS[:4]],
                    "allow_auto_topic_creation": False,
                },
            ),
            SendRequest(
                "Metadata",
                12,
                {
                    "topics": [
                        {"topic_id": it, "name": None} for it in (TopicId("z"), UNKNOWN_TOPIC_ID)
                    ],
                    "allow_auto_topic_creation": False,
                },
            ),
            SendRequest(
                "DescribeTopicPartitions",
                0,
                {
                    "topics": [{"name": topic(key)} for key in KEYS],
                    "response_partition_limit": 100,
                },
            ),
        ],
        TOPICS,
    ),
    Scenario(
        "order-offsets",
        [
            SendRequest(
                "OffsetCommit",
                8,
                {
                    "group_id": group(),
                    "topics": of_topics("partitions", "partition_index", **COMMIT),
                },
            ),
            SendRequest(
                "OffsetFetch", 7, {"group_id": group(), "topics": indexes("partition_indexes")}
            ),
            SendRequest(
                "OffsetFetch",
                9,
                {"groups": [{"group_id": group(), "topics": indexes("partition_indexes")}]},
            ),
            SendRequest(
                "OffsetDelete",
                0,
                {"group_id": group(), "topics": of_topics("partitions", "partition_index")},
            ),
        ],
        TOPICS,
    ),
    Scenario(
        "order-topics",
        [
            SendRequest(
                "CreateTopics",
                5,
                {"timeout_ms": 10_000, "topics": [new(key) for key in MADE]},
            ),
            SendRequest(
                "DescribeConfigs",
                4,
                {
                    "resources": [
                        {
                            "resource_type": 2,
                            "resource_name": topic(key),
                            "configuration_keys": ["retention.ms", "cleanup.policy"],
                        }
                        for key in KEYS
                    ]
                },
            ),
            SendRequest(
                "CreatePartitions",
                3,
                {
                    "timeout_ms": 10_000,
                    "topics": [{"name": topic(key), "count": 1} for key in KEYS],
                },
            ),
            SendRequest(
                "DeleteTopics",
                5,
                {"timeout_ms": 10_000, "topic_names": [topic(key) for key in KEYS]},
            ),
        ],
        TOPICS,
    ),
]
