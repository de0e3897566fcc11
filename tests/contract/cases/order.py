"""Requests with several topics and partitions, in an order that is not sorted."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.cases.admin import (
    create,
    describe,
    describe_partitions,
    drop,
    grow,
    metadata,
    row,
)
from tests.contract.cases.groups import committed, committed_by
from tests.contract.cases.log import UNKNOWN_TOPIC_ID, delete_records, fetch, produce
from tests.contract.model import GROUP, Batch, Fields, TopicId, Topics, scenario, send, topic

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


TWICE: Final = [
    {"index": 0, "records": Batch((b"first",))},
    {"index": 0, "records": Batch((b"second", b"third"))},
]
COMMIT: Final[Fields] = {"committed_offset": 1, "committed_metadata": ""}
TOPICS: Final[Topics] = {key: {"partitions": len(INDEXES)} for key in KEYS}
NO_LEADER_YET: Final = (3, 5, 6)
"""Errors of a partition whose leader has not begun to lead it."""
MADE: Final = ("y", "c", "x")

OFFSETS: Final = of_topics("partitions", "partition_index", timestamp=-1)
PARTITIONS: Final = indexes("partition_indexes")

SCENARIOS: Final = [
    scenario(
        "order-log",
        TOPICS,
        send("ListOffsets", 8, topics=OFFSETS, retry=NO_LEADER_YET, setup=True),
        produce(9, topic_data=of_topics("partition_data", "index", records=Batch())),
        produce(9, topic_data=[{"name": topic("z"), "partition_data": TWICE}]),
        fetch(
            12,
            topics=of_topics(
                "partitions", "partition", "topic", fetch_offset=0, partition_max_bytes=1 << 20
            ),
        ),
        send("ListOffsets", 8, topics=OFFSETS),
        send(
            "OffsetForLeaderEpoch",
            4,
            topics=of_topics("partitions", "partition", "topic", leader_epoch=0),
        ),
        send("DescribeProducers", 0, topics=PARTITIONS),
        delete_records(2, 0, topics=of_topics("partitions", "partition_index", offset=1)),
        metadata(9, *map(topic, KEYS[:4])),
        metadata(12, *[{"topic_id": it, "name": None} for it in (TopicId("z"), UNKNOWN_TOPIC_ID)]),
        describe_partitions(0, topics=[{"name": topic(key)} for key in KEYS], limit=100),
    ),
    scenario(
        "order-offsets",
        TOPICS,
        send(
            "OffsetCommit",
            8,
            group_id=GROUP,
            topics=of_topics("partitions", "partition_index", **COMMIT),
        ),
        committed(7, topics=PARTITIONS),
        committed_by(9, topics=PARTITIONS),
        send("OffsetDelete", 0, group_id=GROUP, topics=of_topics("partitions", "partition_index")),
    ),
    scenario(
        "order-topics",
        TOPICS,
        create(5, topics=[row(key) for key in MADE], timeout_ms=10_000),
        describe(
            4,
            resources=[
                {
                    "resource_type": 2,
                    "resource_name": topic(key),
                    "configuration_keys": ["retention.ms", "cleanup.policy"],
                }
                for key in KEYS
            ],
        ),
        grow(3, 1, topics=[{"name": topic(key), "count": 1} for key in KEYS]),
        drop(5, *map(topic, KEYS)),
    ),
]
