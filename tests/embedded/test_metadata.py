"""Metadata, ApiVersions and the APIs that describe cluster, partitions and producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.describe_producers import DescribeProducersRequest
from kafka_async.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness
    from tests.embedded.harness import ClusterHarness

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def metadata(*names: str, **fields: Any) -> MetadataRequest:
    topics = [{"name": name} for name in names]
    return MetadataRequest.from_dict({"topics": topics, **fields})


@pytest.mark.parametrize("version", range(14))
async def test_metadata_describes_brokers_and_topics_in_every_version(
    start_harness: StartHarness, version: int
) -> None:
    harness = await start_harness(3)
    topic = await harness.cluster.create_topic("t", 2, 3)
    connection = await harness.connect(2)
    response = await connection.call(metadata("t"), version)
    assert [broker.node_id for broker in response.brokers] == [1, 2, 3]
    (described,) = response.topics
    assert (described.name, described.error_code) == ("t", 0)
    assert [partition.leader_id for partition in described.partitions] == [1, 2]
    assert list(described.partitions[1].replica_nodes) == [2, 3, 1]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == harness.cluster.settings.cluster_id
    if version >= 10:
        assert described.topic_id == topic.id


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
async def test_metadata_without_topics_returns_all(
    harness: ClusterHarness, version: int, topics: list[Any] | None
) -> None:
    await harness.cluster.create_topic("u")
    connection = await harness.connect()
    response = await connection.call(MetadataRequest.from_dict({"topics": topics}), version)
    assert [topic.name for topic in response.topics] == ["t", "u"]


async def test_metadata_with_empty_list_returns_no_topics(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    assert list((await connection.call(metadata(), 1)).topics) == []


async def test_metadata_finds_topics_by_id(harness: ClusterHarness) -> None:
    known = harness.cluster.topics.get("t")
    assert known is not None
    connection = await harness.connect()
    ids = [{"topic_id": known.id, "name": None}, {"topic_id": UUID(int=1), "name": None}]
    response = await connection.call(MetadataRequest.from_dict({"topics": ids}), 12)
    missing, found = response.topics  # in this order, as in Kafka
    assert (found.name, found.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_metadata_creates_missing_topic_for_next_request(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(default_partitions=4)
    connection = await harness.connect()
    (first,) = (await connection.call(metadata("new"), 12)).topics
    assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (second,) = (await connection.call(metadata("new"), 12)).topics
    assert (second.error_code, len(second.partitions)) == (0, 4)


@pytest.mark.parametrize(("broker_allows", "client_allows"), [(True, False), (False, True)])
async def test_topic_is_created_only_if_both_sides_allow_it(
    start_harness: StartHarness, broker_allows: bool, client_allows: bool
) -> None:
    harness = await start_harness(auto_create_topics=broker_allows)
    connection = await harness.connect()
    request = metadata("new", allow_auto_topic_creation=client_allows)
    for _ in range(2):
        (topic,) = (await connection.call(request, 12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.cluster.topics.get("new") is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
async def test_invalid_topic_names_are_rejected(harness: ClusterHarness, name: str) -> None:
    connection = await harness.connect()
    for allowed in (True, False):
        request = metadata(name, allow_auto_topic_creation=allowed)
        (topic,) = (await connection.call(request, 12)).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topic_is_not_created_with_too_few_brokers(start_harness: StartHarness) -> None:
    harness = await start_harness(2, default_replication_factor=2)
    connection = await harness.connect(2)
    await harness.cluster.stop_broker(1)
    [topic] = (await connection.call(metadata("new"), 12)).topics
    assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_leaders_move_when_broker_stops_and_isr_recovers(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(2)
    await harness.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    await harness.cluster.create_topic("alone", 1, assignments={0: [1]})
    connection = await harness.connect(2)
    await harness.cluster.stop_broker(1)
    response = await connection.call(metadata("t", "alone"), 12)
    assert [broker.node_id for broker in response.brokers] == [2]
    assert response.controller_id == 2
    moved, lost = (topic.partitions[0] for topic in response.topics)
    assert (moved.leader_id, moved.leader_epoch, list(moved.isr_nodes)) == (2, 1, [2])
    assert list(moved.offline_replicas) == [1]
    assert (lost.leader_id, lost.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    await harness.cluster.start_broker(1)
    response = await connection.call(metadata("t", "alone"), 12)
    moved, found = (topic.partitions[0] for topic in response.topics)
    assert (moved.leader_id, list(moved.isr_nodes)) == (2, [1, 2])
    assert (found.leader_id, found.error_code) == (1, 0)


async def test_returns_authorized_operations_on_request(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    request = metadata(
        "t",
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = await connection.call(request, 10)
    assert response.topics[0].topic_authorized_operations > 0
    assert response.cluster_authorized_operations > 0
    response = await connection.call(metadata("t"), 10)
    assert response.topics[0].topic_authorized_operations == -(2**31)


async def test_describes_cluster(start_harness: StartHarness) -> None:
    harness = await start_harness(2)
    await harness.cluster.stop_broker(2)
    connection = await harness.connect()
    response = await connection.call(DescribeClusterRequest(), 1)
    assert [broker.broker_id for broker in response.brokers] == [1]
    assert response.controller_id == 1
    response = await connection.call(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(row.broker_id, row.is_fenced) for row in response.brokers] == [(1, False), (2, True)]
    response = await connection.call(DescribeClusterRequest(endpoint_type=2), 1)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_describes_topic_partitions_in_pages(harness: ClusterHarness) -> None:
    await harness.cluster.create_topic("u", 3)
    connection = await harness.connect()
    pages: list[list[tuple[str | None, int]]] = []
    cursor: dict[str, Any] | None = None
    for _ in range(5):
        request = DescribeTopicPartitionsRequest.from_dict(
            {"topics": [], "response_partition_limit": 2, "cursor": cursor}
        )
        response = await connection.call(request, 0)
        pages.append(
            [
                (row.name, entry.partition_index)
                for row in response.topics
                for entry in row.partitions
            ]
        )
        if response.next_cursor is None:
            break
        cursor = response.next_cursor.to_dict()
    assert pages == [[("t", 0), ("t", 1)], [("u", 0), ("u", 1)], [("u", 2)]]


async def test_describe_topic_partitions_reports_missing_leader(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness(2)
    await harness.cluster.create_topic("alone", 1, assignments={0: [1]})
    connection = await harness.connect(2)
    await harness.cluster.stop_broker(1)
    request = DescribeTopicPartitionsRequest.from_dict({"topics": [{"name": "alone"}]})
    [topic] = (await connection.call(request, 0)).topics
    [partition] = topic.partitions
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


async def test_describe_topic_partitions_reports_missing_topics(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    request = DescribeTopicPartitionsRequest.from_dict(
        {"topics": [{"name": "a b"}, {"name": "no"}]}
    )
    response = await connection.call(request, 0)
    assert [ErrorCode(topic.error_code) for topic in response.topics] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# -- ApiVersions ----------------------------------------------------------------------------------


def versions(**fields: Any) -> ApiVersionsRequest:
    named = {"client_software_name": "test", "client_software_version": "1.0"}
    return ApiVersionsRequest.from_dict(named | fields)


@pytest.mark.parametrize("version", range(6))
async def test_api_versions_returns_ranges_and_features(
    harness: ClusterHarness, version: int
) -> None:
    connection = await harness.connect()
    response = await connection.call(versions(), version)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[18] == (0, 5)
    finalized = {row.name: row.max_version_level for row in response.finalized_features}
    assert finalized == ({"transaction.version": 2} if version >= 3 else {})


async def test_settings_emulate_older_brokers(start_harness: StartHarness) -> None:
    harness = await start_harness(transaction_version=0, api_versions={1: (4, 11), 75: (0, -1)})
    connection = await harness.connect()
    response = await connection.call(versions(), 3)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert ranges[1] == (4, 11)
    assert 75 not in ranges
    assert list(response.finalized_features) == []


@pytest.mark.parametrize("name", ["", "-x", "a b", "x\n"])
async def test_invalid_software_name_is_rejected(harness: ClusterHarness, name: str) -> None:
    connection = await harness.connect()
    response = await connection.call(versions(client_software_name=name), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        ("ours", 1, ErrorCode.NONE),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("ours", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
        (None, -2, ErrorCode.INVALID_REQUEST),
        ("ours", -2, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_client_of_other_broker_must_rebootstrap(
    start_harness: StartHarness, cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    harness = await start_harness(cluster_id="ours")
    connection = await harness.connect()
    response = await connection.call(versions(cluster_id=cluster_id, node_id=node_id), 5)
    assert ErrorCode(response.error_code) is code


@pytest.mark.parametrize(("replicas", "error"), [(3, 0), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)])
async def test_replicas_describe_producers(
    start_harness: StartHarness, replicas: int, error: int
) -> None:
    harness = await start_harness(3)
    await harness.cluster.create_topic("t", 1, replicas)
    connection = await harness.connect(2)  # broker 1 leads
    wanted = {"topics": [{"name": "t", "partition_indexes": [0]}]}
    response = await connection.call(DescribeProducersRequest.from_dict(wanted), 0)
    assert [row.error_code for topic in response.topics for row in topic.partitions] == [error]


async def test_responses_have_advertised_hosts(start_harness: StartHarness) -> None:
    harness = await start_harness(2, advertised_hosts={2: "broker2.example"})
    connection = await harness.connect(1)
    response = await connection.call(MetadataRequest(topics=[]), 13)
    assert [broker.host for broker in response.brokers] == ["127.0.0.1", "broker2.example"]
    assert "broker2" not in harness.cluster.bootstrap_servers
