"""ApiVersions, Metadata, coordinators, and the APIs of administrators."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.contract.cases.log import UNKNOWN_TOPIC_ID
from tests.contract.model import (
    TOPIC,
    Fields,
    Name,
    Scenario,
    SendRequest,
    TopicId,
    group,
    topic,
    txn,
)


def versions(name: str = "raw", version: str = "1", **fields: Any) -> Fields:
    """Return an ApiVersions request."""
    return {"client_software_name": name, "client_software_version": version, **fields}


def metadata(*topics: Any, auto: bool = False, **fields: Any) -> Fields:
    """Return a Metadata request of version 4 or later for topics by name."""
    rows: list[Any] = [it if isinstance(it, dict) else {"name": it} for it in topics]
    return {"topics": rows, "allow_auto_topic_creation": auto, **fields}


def create(
    name: Any = None,
    partitions: int = 1,
    factor: int = 1,
    *,
    dry: bool = False,
    assignments: Sequence[tuple[int, list[int]]] = (),
    more: tuple[Fields, ...] = (),
    configs: Mapping[str, str | None] | None = None,
) -> Fields:
    """Return a CreateTopics request for one topic, and more."""
    row: Fields = {
        "name": Name("topic", "new") if name is None else name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in assignments
        ],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    return {"topics": [row, *more], "timeout_ms": 30_000, "validate_only": dry}


def grow(
    count: int, *, name: Any = None, assignments: Any = None, dry: bool = False, **more: Any
) -> Fields:
    """Return a CreatePartitions request for one topic."""
    rows = None if assignments is None else [{"broker_ids": it} for it in assignments]
    row = {"name": topic() if name is None else name, "count": count, "assignments": rows}
    return {"topics": [row], "timeout_ms": 30_000, "validate_only": dry, **more}


def describe(kind: int = 2, name: Any = None, keys: Any = ("retention.ms",), **more: Any) -> Fields:
    """Return a DescribeConfigs request for one resource."""
    row = {
        "resource_type": kind,
        "resource_name": topic() if name is None else name,
        "configuration_keys": None if keys is None else list(keys),
    }
    return {"resources": [row], **more}


def alter(
    *changes: tuple[str, str | None, int], kind: int = 2, name: Any = None, dry: bool = False
) -> Fields:
    """Return an IncrementalAlterConfigs request; a change is a name, a value and an operation."""
    rows = [
        {"name": key, "value": value, "config_operation": operation}
        for key, value, operation in changes
    ]
    row = {
        "resource_type": kind,
        "resource_name": topic() if name is None else name,
        "configs": rows,
    }
    return {"resources": [row], "validate_only": dry}


def limit(fields: Fields, partitions: int = 2_000) -> Fields:
    """Return a DescribeTopicPartitions request with a limit."""
    return {**fields, "response_partition_limit": partitions}


def row(key: str) -> Fields:
    """Return a topic of a CreateTopics request."""
    return {"name": Name("topic", key), "num_partitions": 1, "replication_factor": 1}


def drop(*names: Any) -> Fields:
    """Return a DeleteTopics request before version 6."""
    return {"topic_names": list(names), "timeout_ms": 30_000}


SET, DELETE, APPEND, SUBTRACT = range(4)
NEW: Final = Name("topic", "new")
LONG: Final = "x" * 250

BAD_ASSIGNMENTS: Final[Sequence[Sequence[tuple[int, list[int]]]]] = (
    ((1, [1]),),
    ((0, []),),
    ((0, [1, 1]),),
    ((0, [77]),),
    ((0, [-1]),),
    ((0, [1]), (0, [2])),
    ((0, [1]), (1, [1, 2])),
    ((-1, [1]),),
)

BAD_CONFIGS: Final[Sequence[dict[str, str | None]]] = (
    {"no.such": "1"},
    {"retention.ms": "abc"},
    {"retention.ms": "-2"},
    {"cleanup.policy": "nonsense"},
    {"compression.type": "nonsense"},
    {"message.timestamp.type": "nonsense"},
    {"min.insync.replicas": "0"},
    {"max.message.bytes": "-1"},
    {"segment.bytes": "1"},
    {"retention.ms": None},
    {"unclean.leader.election.enable": "maybe"},
)

VERSIONS: Final = [
    Scenario(
        "api-versions",
        [
            *[SendRequest("ApiVersions", version, {}, own=True) for version in range(3)],
            *[SendRequest("ApiVersions", version, versions(), own=True) for version in range(3, 6)],
            SendRequest("ApiVersions", 9, {}, own=True),
            SendRequest("ApiVersions", -1, {}, own=True),
            SendRequest("ApiVersions", 3, versions("")),
            SendRequest("ApiVersions", 3, versions("-x")),
            SendRequest("ApiVersions", 3, versions("x y")),
            SendRequest("ApiVersions", 4, versions(version="")),
            SendRequest("ApiVersions", 4, versions(version="1_0")),
            SendRequest("ApiVersions", 4, versions(version="1.0-beta.2"), own=True),
            SendRequest("ApiVersions", 3, versions(), cut=4),
        ],
    ),
]

VERSIONS_OF_CLUSTERS: Final = [
    Scenario(
        "api-versions-cluster",
        [
            SendRequest("ApiVersions", 5, versions(cluster_id=None, node_id=2)),
            SendRequest("ApiVersions", 5, versions(cluster_id="another", node_id=-1)),
            SendRequest("ApiVersions", 5, versions(cluster_id="another", node_id=1)),
            SendRequest("ApiVersions", 5, versions(cluster_id=None, node_id=-1), own=True),
        ],
    ),
]

METADATA: Final = [
    Scenario(
        "metadata",
        [
            *[
                SendRequest("Metadata", version, {"topics": [{"name": topic()}]})
                for version in range(4)
            ],
            *[SendRequest("Metadata", version, metadata(topic())) for version in range(4, 14)],
            *[
                SendRequest("Metadata", version, metadata("contract-missing"))
                for version in (4, 8, 12, 13)
            ],
            SendRequest("Metadata", 9, metadata(topic(), topic())),
            SendRequest("Metadata", 12, metadata({"topic_id": TopicId(), "name": None})),
            SendRequest("Metadata", 12, metadata({"topic_id": UNKNOWN_TOPIC_ID, "name": None})),
            SendRequest("Metadata", 10, metadata({"topic_id": UNKNOWN_TOPIC_ID, "name": topic()})),
            SendRequest("Metadata", 12, metadata({"topic_id": uuid.UUID(int=0), "name": None})),
            SendRequest("Metadata", 12, metadata({"topic_id": TopicId(), "name": topic()})),
            *[
                SendRequest("Metadata", 9, metadata(name))
                for name in ("", ".", "..", "no/name", "no name", LONG)
            ],
            *[
                SendRequest("Metadata", 9, metadata(name, auto=True))
                for name in ("", "..", "no/name")
            ],
            SendRequest("Metadata", 9, metadata("contract-missing", topic())),
            SendRequest("Metadata", 1, {"topics": []}),
            SendRequest("Metadata", 9, {"topics": []}),
            SendRequest("Metadata", 0, {"topics": []}, own=True),
            SendRequest("Metadata", 9, {"topics": None}, own=True),
            SendRequest("Metadata", 9, metadata(topic(), include_topic_authorized_operations=True)),
            SendRequest("Metadata", 9, metadata(include_cluster_authorized_operations=True)),
            SendRequest("Metadata", 9, metadata(topic()), cut=3),
            SendRequest("Metadata", 99, {}),
        ],
        TOPIC,
    ),
    Scenario(
        "metadata-creates",
        [
            SendRequest("Metadata", 9, metadata(NEW, auto=True)),
        ],
    ),
    Scenario(
        "describe-topic-partitions",
        [
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": [{"name": topic()}]})),
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": [{"name": topic()}]}, 1)),
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": [{"name": topic()}]}, 0)),
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": [{"name": topic()}]}, -3)),
            SendRequest(
                "DescribeTopicPartitions",
                0,
                limit(
                    {
                        "topics": [{"name": topic()}],
                        "cursor": {"topic_name": topic(), "partition_index": 1},
                    }
                ),
            ),
            SendRequest(
                "DescribeTopicPartitions",
                0,
                limit(
                    {
                        "topics": [{"name": topic()}],
                        "cursor": {"topic_name": topic(), "partition_index": -1},
                    }
                ),
            ),
            SendRequest(
                "DescribeTopicPartitions",
                0,
                limit(
                    {
                        "topics": [{"name": topic()}],
                        "cursor": {"topic_name": topic(), "partition_index": 9},
                    }
                ),
            ),
            SendRequest(
                "DescribeTopicPartitions", 0, limit({"topics": [{"name": "contract-missing"}]})
            ),
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": [{"name": "no/name"}]})),
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": [{"name": ""}]})),
            SendRequest("DescribeTopicPartitions", 0, limit({"topics": []}), own=True),
        ],
        {"t": {"partitions": 3}},
    ),
    Scenario(
        "describe-cluster",
        [
            *[SendRequest("DescribeCluster", version, {}) for version in range(3)],
            SendRequest("DescribeCluster", 0, {"include_cluster_authorized_operations": True}),
            SendRequest("DescribeCluster", 2, {"include_fenced_brokers": True}),
            SendRequest("DescribeCluster", 1, {"endpoint_type": 2}),
            SendRequest("DescribeCluster", 2, {"endpoint_type": 2}),
            SendRequest("DescribeCluster", 1, {"endpoint_type": 7}),
            SendRequest("DescribeCluster", 1, {}, cut=2),
            SendRequest("DescribeCluster", 99, {}),
        ],
    ),
    Scenario(
        "find-coordinator",
        [
            *[SendRequest("FindCoordinator", version, {"key": group()}) for version in range(4)],
            *[
                SendRequest("FindCoordinator", version, {"key": txn(), "key_type": 1})
                for version in (1, 3)
            ],
            *[
                SendRequest("FindCoordinator", version, {"coordinator_keys": [group()]})
                for version in (4, 5, 6)
            ],
            SendRequest("FindCoordinator", 6, {"coordinator_keys": [txn()], "key_type": 1}),
            SendRequest("FindCoordinator", 4, {"coordinator_keys": []}),
            SendRequest("FindCoordinator", 2, {"key": group(), "key_type": 9}),
            SendRequest("FindCoordinator", 4, {"coordinator_keys": [group()], "key_type": 9}),
            SendRequest("FindCoordinator", 5, {"coordinator_keys": [group()], "key_type": 2}),
            SendRequest("FindCoordinator", 6, {"coordinator_keys": ["nonsense"], "key_type": 2}),
            SendRequest("FindCoordinator", 4, {"coordinator_keys": [group()]}, cut=2),
            SendRequest("FindCoordinator", 99, {}),
        ],
    ),
]


TOPICS: Final = [
    Scenario(
        "create-topics",
        [
            *[
                SendRequest("CreateTopics", version, create(Name("topic", f"n{version}")))
                for version in range(2, 8)
            ],
            SendRequest("CreateTopics", 7, create(Name("topic", "d"), -1, -1)),
            SendRequest("CreateTopics", 3, create(Name("topic", "d3"), -1, -1)),
            SendRequest("CreateTopics", 4, create(Name("topic", "d4"), -1, -1)),
            SendRequest("CreateTopics", 7, create(dry=True)),
            SendRequest("CreateTopics", 5, create(dry=True)),
            SendRequest(
                "CreateTopics",
                7,
                create(assignments=((0, [1, 2]), (1, [2, 3])), partitions=-1, factor=-1),
            ),
            SendRequest("CreateTopics", 7, create()),
            SendRequest("CreateTopics", 2, create()),
            SendRequest(
                "CreateTopics", 7, create(Name("topic", "c"), configs={"retention.ms": "5000"})
            ),
            SendRequest(
                "CreateTopics", 7, create(Name("topic", "c2"), configs={"max.message.bytes": "77"})
            ),
            *[
                SendRequest("CreateTopics", 7, create(name))
                for name in ("", ".", "..", "no/name", LONG, "__consumer_offsets")
            ],
            SendRequest("CreateTopics", 2, create("no/name")),
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), 0)),
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), -2)),
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), 1, 0)),
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), 1, -2)),
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), 1, 9)),
            SendRequest("CreateTopics", 3, create(Name("topic", "e"), 1, 9)),
            SendRequest(
                "CreateTopics", 7, create(Name("topic", "e"), 1, 1, assignments=((0, [1]),))
            ),
            *[
                SendRequest("CreateTopics", 7, create(Name("topic", "e"), -1, -1, assignments=rows))
                for rows in BAD_ASSIGNMENTS
            ],
            *[
                SendRequest("CreateTopics", 7, create(Name("topic", "e"), configs=configs))
                for configs in BAD_CONFIGS
            ],
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), more=(row("e"),))),
            SendRequest("CreateTopics", 7, {"topics": [], "timeout_ms": 1000}),
            SendRequest("CreateTopics", 7, create(Name("topic", "e")), cut=2),
            SendRequest("CreateTopics", 99, {}),
        ],
    ),
    Scenario(
        "create-topics-configs",
        [
            SendRequest("CreateTopics", 7, create(Name("topic", "e"), configs=configs))
            for configs in (
                {"remote.storage.enable": "true"},
                {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
                {"min.cleanable.dirty.ratio": "much"},
                {"min.cleanable.dirty.ratio": "2"},
                {"retention.ms": "99999999999999999999"},
                {"preallocate": "1"},
            )
        ],
    ),
    Scenario(
        "delete-topics",
        [
            *[
                SendRequest("DeleteTopics", version, drop(Name("topic", f"t{version}")))
                for version in range(1, 6)
            ],
            SendRequest(
                "DeleteTopics", 6, {"topics": [{"name": topic("t6")}], "timeout_ms": 30_000}
            ),
            SendRequest(
                "DeleteTopics",
                6,
                {"topics": [{"name": None, "topic_id": TopicId("t7")}], "timeout_ms": 30_000},
            ),
            *[
                SendRequest("DeleteTopics", version, drop("contract-missing"))
                for version in (1, 4, 5)
            ],
            SendRequest(
                "DeleteTopics", 6, {"topics": [{"name": "contract-missing"}], "timeout_ms": 1000}
            ),
            SendRequest("DeleteTopics", 6, {"topics": [{"name": "no/name"}], "timeout_ms": 1000}),
            SendRequest("DeleteTopics", 5, drop("")),
            SendRequest(
                "DeleteTopics",
                6,
                {"topics": [{"name": None, "topic_id": UNKNOWN_TOPIC_ID}], "timeout_ms": 1000},
            ),
            SendRequest(
                "DeleteTopics",
                6,
                {"topics": [{"name": None, "topic_id": uuid.UUID(int=0)}], "timeout_ms": 1000},
            ),
            SendRequest(
                "DeleteTopics",
                6,
                {
                    "topics": [{"name": topic("kept"), "topic_id": TopicId("kept")}],
                    "timeout_ms": 1000,
                },
            ),
            SendRequest(
                "DeleteTopics",
                6,
                {
                    "topics": [{"name": topic("twice")}, {"name": topic("twice")}],
                    "timeout_ms": 1000,
                },
            ),
            SendRequest("DeleteTopics", 5, drop(topic("twice"), topic("twice"))),
            SendRequest("DeleteTopics", 6, {"topics": [], "timeout_ms": 1000}),
            SendRequest("DeleteTopics", 99, {}),
        ],
        {name: {} for name in ("t1", "t2", "t3", "t4", "t5", "t6", "t7", "kept", "twice")},
    ),
    Scenario(
        "create-partitions",
        [
            *[
                SendRequest("CreatePartitions", version, grow(2 + version, assignments=[[1]]))
                for version in range(4)
            ],
            SendRequest("CreatePartitions", 3, grow(6, assignments=[[1]], dry=True)),
            SendRequest("CreatePartitions", 3, grow(7, dry=True)),
            SendRequest("CreatePartitions", 3, grow(5)),
            SendRequest("CreatePartitions", 3, grow(2)),
            SendRequest("CreatePartitions", 0, grow(2)),
            SendRequest("CreatePartitions", 3, grow(0)),
            SendRequest("CreatePartitions", 3, grow(-1)),
            SendRequest("CreatePartitions", 3, grow(9, name="contract-missing")),
            SendRequest("CreatePartitions", 3, grow(9, name="no/name")),
            SendRequest("CreatePartitions", 3, grow(7, assignments=[[1]])),
            SendRequest("CreatePartitions", 3, grow(6, assignments=[])),
            SendRequest("CreatePartitions", 3, grow(6, assignments=[[]])),
            SendRequest("CreatePartitions", 3, grow(6, assignments=[[1, 2]])),
            SendRequest("CreatePartitions", 3, grow(6, assignments=[[1, 1]])),
            SendRequest("CreatePartitions", 3, grow(6, assignments=[[77]])),
            SendRequest("CreatePartitions", 3, {**grow(9), "topics": []}),
            SendRequest("CreatePartitions", 3, {**grow(9), "topics": grow(9)["topics"] * 2}),
            SendRequest("CreatePartitions", 99, {}),
        ],
        TOPIC,
    ),
]

CONFIGS: Final = [
    Scenario(
        "describe-configs",
        [
            *[SendRequest("DescribeConfigs", version, describe()) for version in range(1, 5)],
            SendRequest("DescribeConfigs", 4, describe(include_synonyms=True)),
            SendRequest("DescribeConfigs", 4, describe(name=topic("set"), include_synonyms=True)),
            SendRequest("DescribeConfigs", 4, describe(name=topic("set"))),
            SendRequest("DescribeConfigs", 4, describe(keys=("no.such", "cleanup.policy"))),
            SendRequest("DescribeConfigs", 4, describe(keys=())),
            SendRequest("DescribeConfigs", 4, describe(keys=None)),
            SendRequest("DescribeConfigs", 4, describe(name="contract-missing")),
            SendRequest("DescribeConfigs", 1, describe(name="contract-missing")),
            SendRequest("DescribeConfigs", 4, describe(name="no/name")),
            SendRequest("DescribeConfigs", 4, describe(name="")),
            SendRequest("DescribeConfigs", 4, describe(4, "77")),
            SendRequest("DescribeConfigs", 4, describe(4, "abc")),
            SendRequest("DescribeConfigs", 4, describe(4, "1", ("node.id",))),
            SendRequest("DescribeConfigs", 4, describe(4, "2", ("node.id",))),
            SendRequest("DescribeConfigs", 4, describe(4, "", ("num.partitions",))),
            SendRequest("DescribeConfigs", 4, describe(77, "x")),
            SendRequest("DescribeConfigs", 4, {"resources": []}),
            SendRequest("DescribeConfigs", 4, describe(), cut=2),
            SendRequest("DescribeConfigs", 99, {}),
        ],
        {"t": {}, "set": {"configs": {"retention.ms": "5000"}}},
    ),
    Scenario(
        "alter-configs",
        [
            *[
                SendRequest(
                    "IncrementalAlterConfigs", version, alter(("retention.ms", "1000", SET))
                )
                for version in (0, 1)
            ],
            SendRequest(
                "IncrementalAlterConfigs", 1, alter(("retention.ms", "7000", SET), dry=True)
            ),
            SendRequest("DescribeConfigs", 4, describe(), passing='"604800000"'),
            SendRequest("IncrementalAlterConfigs", 1, alter(("retention.ms", None, DELETE))),
            SendRequest("DescribeConfigs", 4, describe(), passing='"1000"'),
            SendRequest("IncrementalAlterConfigs", 1, alter(("cleanup.policy", "compact", APPEND))),
            SendRequest(
                "DescribeConfigs", 4, describe(keys=("cleanup.policy",)), passing='"delete"'
            ),
            SendRequest(
                "IncrementalAlterConfigs", 1, alter(("cleanup.policy", "delete", SUBTRACT))
            ),
            SendRequest("DescribeConfigs", 4, describe(keys=("cleanup.policy",)), passing="delete"),
            SendRequest("IncrementalAlterConfigs", 1, alter()),
            *[
                SendRequest("IncrementalAlterConfigs", 1, alter(change))
                for change in (
                    ("no.such", "1", SET),
                    ("no.such", None, DELETE),
                    ("retention.ms", "abc", SET),
                    ("retention.ms", None, SET),
                    ("retention.ms", "1", APPEND),
                    ("retention.ms", "1", SUBTRACT),
                    ("retention.ms", "1", 9),
                    ("cleanup.policy", "nonsense", APPEND),
                    ("cleanup.policy", None, APPEND),
                    ("max.message.bytes", "-5", SET),
                    ("retention.ms", "-2", SET),
                )
            ],
            SendRequest(
                "IncrementalAlterConfigs",
                1,
                alter(("retention.ms", "1", SET), ("retention.ms", "2", SET)),
            ),
            SendRequest(
                "IncrementalAlterConfigs",
                1,
                alter(("retention.ms", "1", SET), name="contract-missing"),
            ),
            SendRequest(
                "IncrementalAlterConfigs", 1, alter(("retention.ms", "1", SET), name="no/name")
            ),
            SendRequest("IncrementalAlterConfigs", 1, alter(("retention.ms", "1", SET), kind=77)),
            SendRequest("IncrementalAlterConfigs", 1, {"resources": [], "validate_only": False}),
            SendRequest(
                "IncrementalAlterConfigs",
                1,
                {
                    "resources": alter(("retention.ms", "1", SET))["resources"] * 2,
                    "validate_only": False,
                },
            ),
            SendRequest("IncrementalAlterConfigs", 99, {}),
        ],
        TOPIC,
    ),
]

SCENARIOS: Final = [*VERSIONS, *VERSIONS_OF_CLUSTERS, *METADATA, *TOPICS, *CONFIGS]
