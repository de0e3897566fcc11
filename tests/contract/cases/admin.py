"""ApiVersions, Metadata, coordinators, and the APIs of administrators."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.contract.cases.log import UNKNOWN_TOPIC_ID
from tests.contract.model import (
    GROUP,
    TOPIC,
    TXN,
    Fields,
    T,
    TopicId,
    request,
    scenario,
    send,
    topic,
)

NEW: Final = topic("new")


@request("ApiVersions")
def versions(name: str = "raw", version: str = "1") -> Fields:
    """Return an ApiVersions request."""
    return {"client_software_name": name, "client_software_version": version}


@request("Metadata")
def metadata(*topics: Any, auto: bool = False) -> Fields:
    """Return a Metadata request of version 4 or later for topics by name."""
    rows: list[Any] = [it if isinstance(it, dict) else {"name": it} for it in topics]
    return {"topics": rows, "allow_auto_topic_creation": auto}


@request("CreateTopics")
def create(
    name: Any = NEW,
    partitions: int = 1,
    factor: int = 1,
    *,
    dry: bool = False,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> Fields:
    """Return a CreateTopics request for one topic."""
    row: Fields = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in assignments
        ],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    return {"topics": [row], "timeout_ms": 30_000, "validate_only": dry}


def row(key: str) -> Fields:
    """Return a topic of a CreateTopics request."""
    return {"name": topic(key), "num_partitions": 1, "replication_factor": 1}


@request("CreatePartitions")
def grow(count: int, *, name: Any = T, assignments: Any = None, dry: bool = False) -> Fields:
    """Return a CreatePartitions request for one topic."""
    rows = None if assignments is None else [{"broker_ids": it} for it in assignments]
    row = {"name": name, "count": count, "assignments": rows}
    return {"topics": [row], "timeout_ms": 30_000, "validate_only": dry}


@request("DescribeConfigs")
def describe(kind: int = 2, name: Any = T, keys: Any = ("retention.ms",)) -> Fields:
    """Return a DescribeConfigs request for one resource."""
    row = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None if keys is None else list(keys),
    }
    return {"resources": [row]}


@request("IncrementalAlterConfigs")
def alter(
    *changes: tuple[str, str | None, int], kind: int = 2, name: Any = T, dry: bool = False
) -> Fields:
    """Return an IncrementalAlterConfigs request; a change is a name, a value and an operation."""
    rows = [
        {"name": key, "value": value, "config_operation": operation}
        for key, value, operation in changes
    ]
    row = {"resource_type": kind, "resource_name": name, "configs": rows}
    return {"resources": [row], "validate_only": dry}


@request("DescribeTopicPartitions")
def describe_partitions(name: Any = T, limit: int = 2_000, cursor: int | None = None) -> Fields:
    """Return a DescribeTopicPartitions request for one topic, from a partition on."""
    fields: Fields = {"topics": [{"name": name}], "response_partition_limit": limit}
    if cursor is not None:
        fields["cursor"] = {"topic_name": name, "partition_index": cursor}
    return fields


@request("DeleteTopics")
def drop(*names: Any) -> Fields:
    """Return a DeleteTopics request before version 6."""
    return {"topic_names": list(names), "timeout_ms": 30_000}


@request("DeleteTopics")
def remove(*rows: Fields) -> Fields:
    """Return a DeleteTopics request of version 6 or later."""
    return {"topics": list(rows), "timeout_ms": 1_000}


SET, DELETE, APPEND, SUBTRACT = range(4)
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
    scenario(
        "api-versions",
        {},
        send("ApiVersions", range(3), own=True),
        versions(range(3, 6), own=True),
        send("ApiVersions", 9, own=True),
        send("ApiVersions", -1, own=True),
        versions(3, ""),
        versions(3, "-x"),
        versions(3, "x y"),
        versions(4, version=""),
        versions(4, version="1_0"),
        versions(4, version="1.0-beta.2", own=True),
        versions(3, cut=4),
    ),
    scenario(
        "api-versions-cluster",
        {},
        versions(5, cluster_id=None, node_id=2),
        versions(5, cluster_id="another", node_id=-1),
        versions(5, cluster_id="another", node_id=1),
        versions(5, cluster_id=None, node_id=-1, own=True),
    ),
]

METADATA: Final = [
    scenario(
        "metadata",
        TOPIC,
        send("Metadata", range(4), topics=[{"name": T}]),
        metadata(range(4, 14), T),
        metadata((4, 8, 12, 13), "contract-missing"),
        metadata(9, T, T),
        metadata(12, {"topic_id": TopicId(), "name": None}),
        metadata(12, {"topic_id": UNKNOWN_TOPIC_ID, "name": None}),
        metadata(10, {"topic_id": UNKNOWN_TOPIC_ID, "name": T}),
        metadata(12, {"topic_id": uuid.UUID(int=0), "name": None}),
        metadata(12, {"topic_id": TopicId(), "name": T}),
        *[metadata(9, name) for name in ("", ".", "..", "no/name", "no name", LONG)],
        *[metadata(9, name, auto=True) for name in ("", "..", "no/name")],
        metadata(9, "contract-missing", T),
        send("Metadata", 1, topics=[]),
        send("Metadata", 9, topics=[]),
        send("Metadata", 0, topics=[], own=True),
        send("Metadata", 9, topics=None, own=True),
        metadata(9, T, include_topic_authorized_operations=True),
        metadata(9, include_cluster_authorized_operations=True),
        metadata(9, T, cut=3),
        send("Metadata", 99),
    ),
    scenario("metadata-creates", {}, metadata(9, NEW, auto=True)),
    scenario(
        "describe-topic-partitions",
        {"t": {"partitions": 3}},
        describe_partitions(0),
        *[describe_partitions(0, limit=limit) for limit in (1, 0, -3)],
        *[describe_partitions(0, cursor=index) for index in (1, -1, 9)],
        *[describe_partitions(0, name) for name in ("contract-missing", "no/name", "")],
        describe_partitions(0, topics=[], own=True),
    ),
    scenario(
        "describe-cluster",
        {},
        send("DescribeCluster", range(3)),
        send("DescribeCluster", 0, include_cluster_authorized_operations=True),
        send("DescribeCluster", 2, include_fenced_brokers=True),
        send("DescribeCluster", 1, endpoint_type=2),
        send("DescribeCluster", 2, endpoint_type=2),
        send("DescribeCluster", 1, endpoint_type=7),
        send("DescribeCluster", 1, cut=2),
        send("DescribeCluster", 99),
    ),
    scenario(
        "find-coordinator",
        {},
        send("FindCoordinator", range(4), key=GROUP),
        send("FindCoordinator", (1, 3), key=TXN, key_type=1),
        send("FindCoordinator", (4, 5, 6), coordinator_keys=[GROUP]),
        send("FindCoordinator", 6, coordinator_keys=[TXN], key_type=1),
        send("FindCoordinator", 4, coordinator_keys=[]),
        send("FindCoordinator", 2, key=GROUP, key_type=9),
        send("FindCoordinator", 4, coordinator_keys=[GROUP], key_type=9),
        send("FindCoordinator", 5, coordinator_keys=[GROUP], key_type=2),
        send("FindCoordinator", 6, coordinator_keys=["nonsense"], key_type=2),
        send("FindCoordinator", 4, coordinator_keys=[GROUP], cut=2),
        send("FindCoordinator", 99),
    ),
]


TOPICS: Final = [
    scenario(
        "create-topics",
        {},
        *[create(version, topic(f"n{version}")) for version in range(2, 8)],
        create(7, topic("d"), -1, -1),
        create(3, topic("d3"), -1, -1),
        create(4, topic("d4"), -1, -1),
        create(7, dry=True),
        create(5, dry=True),
        create(7, assignments=((0, [1, 2]), (1, [2, 3])), partitions=-1, factor=-1),
        create(7),
        create(2),
        create(7, topic("c"), configs={"retention.ms": "5000"}),
        create(7, topic("c2"), configs={"max.message.bytes": "77"}),
        *[create(7, name) for name in ("", ".", "..", "no/name", LONG, "__consumer_offsets")],
        create(2, "no/name"),
        create(7, topic("e"), 0),
        create(7, topic("e"), -2),
        create(7, topic("e"), 1, 0),
        create(7, topic("e"), 1, -2),
        create(7, topic("e"), 1, 9),
        create(3, topic("e"), 1, 9),
        create(7, topic("e"), 1, 1, assignments=((0, [1]),)),
        *[create(7, topic("e"), -1, -1, assignments=rows) for rows in BAD_ASSIGNMENTS],
        *[create(7, topic("e"), configs=configs) for configs in BAD_CONFIGS],
        create(7, topics=[row("e"), row("e")]),
        create(7, topics=[]),
        create(7, topic("e"), cut=2),
        send("CreateTopics", 99),
    ),
    scenario(
        "create-topics-configs",
        {},
        *[
            create(7, topic("e"), configs=configs)
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
    scenario(
        "delete-topics",
        {name: {} for name in ("t1", "t2", "t3", "t4", "t5", "t6", "t7", "kept", "twice")},
        *[drop(version, topic(f"t{version}")) for version in range(1, 6)],
        remove(6, {"name": topic("t6")}, timeout_ms=30_000),
        remove(6, {"name": None, "topic_id": TopicId("t7")}, timeout_ms=30_000),
        drop((1, 4, 5), "contract-missing"),
        remove(6, {"name": "contract-missing"}),
        remove(6, {"name": "no/name"}),
        drop(5, ""),
        remove(6, {"name": None, "topic_id": UNKNOWN_TOPIC_ID}),
        remove(6, {"name": None, "topic_id": uuid.UUID(int=0)}),
        remove(6, {"name": topic("kept"), "topic_id": TopicId("kept")}),
        remove(6, {"name": topic("twice")}, {"name": topic("twice")}),
        drop(5, topic("twice"), topic("twice")),
        remove(6),
        send("DeleteTopics", 99),
    ),
    scenario(
        "create-partitions",
        TOPIC,
        *[grow(version, 2 + version, assignments=[[1]]) for version in range(4)],
        grow(3, 6, assignments=[[1]], dry=True),
        grow(3, 7, dry=True),
        grow(3, 5),
        grow(3, 2),
        grow(0, 2),
        grow(3, 0),
        grow(3, -1),
        grow(3, 9, name="contract-missing"),
        grow(3, 9, name="no/name"),
        grow(3, 7, assignments=[[1]]),
        grow(3, 6, assignments=[]),
        grow(3, 6, assignments=[[]]),
        grow(3, 6, assignments=[[1, 2]]),
        grow(3, 6, assignments=[[1, 1]]),
        grow(3, 6, assignments=[[77]]),
        grow(3, 9, topics=[]),
        grow(3, 9, topics=grow.fields(9)["topics"] * 2),
        send("CreatePartitions", 99),
    ),
]

CONFIGS: Final = [
    scenario(
        "describe-configs",
        {"t": {}, "set": {"configs": {"retention.ms": "5000"}}},
        describe(range(1, 5)),
        describe(4, include_synonyms=True),
        describe(4, name=topic("set"), include_synonyms=True),
        describe(4, name=topic("set")),
        describe(4, keys=("no.such", "cleanup.policy")),
        describe(4, keys=()),
        describe(4, keys=None),
        describe(4, name="contract-missing"),
        describe(1, name="contract-missing"),
        describe(4, name="no/name"),
        describe(4, name=""),
        describe(4, 4, "77"),
        describe(4, 4, "abc"),
        describe(4, 4, "1", ("node.id",)),
        describe(4, 4, "2", ("node.id",)),
        describe(4, 4, "", ("num.partitions",)),
        describe(4, 77, "x"),
        describe(4, resources=[]),
        describe(4, cut=2),
        send("DescribeConfigs", 99),
    ),
    scenario(
        "alter-configs",
        TOPIC,
        alter((0, 1), ("retention.ms", "1000", SET)),
        alter(1, ("retention.ms", "7000", SET), dry=True),
        describe(4, passing='"604800000"'),
        alter(1, ("retention.ms", None, DELETE)),
        describe(4, passing='"1000"'),
        alter(1, ("cleanup.policy", "compact", APPEND)),
        describe(4, keys=("cleanup.policy",), passing='"delete"'),
        alter(1, ("cleanup.policy", "delete", SUBTRACT)),
        describe(4, keys=("cleanup.policy",), passing="delete"),
        alter(1),
        *[
            alter(1, change)
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
        alter(1, ("retention.ms", "1", SET), ("retention.ms", "2", SET)),
        alter(1, ("retention.ms", "1", SET), name="contract-missing"),
        alter(1, ("retention.ms", "1", SET), name="no/name"),
        alter(1, ("retention.ms", "1", SET), kind=77),
        alter(1, resources=[]),
        alter(1, resources=alter.fields(("retention.ms", "1", SET))["resources"] * 2),
        send("IncrementalAlterConfigs", 99),
    ),
]

SCENARIOS: Final = [*VERSIONS, *METADATA, *TOPICS, *CONFIGS]
