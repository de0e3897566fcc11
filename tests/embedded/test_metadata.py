"""Metadata, ApiVersions and the APIs that describe cluster, partitions and producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.describe_cluster import DescribeClusterRequest
from kafka_async.protocol.messages.describe_producers import DescribeProducersRequest
from kafka_async.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage
    from tests.embedded.stage import Stage

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


def metadata(*names: str, **fields: Any) -> MetadataRequest:
    topics = [{"name": name} for name in names]
    return MetadataRequest.from_dict({"topics": topics, **fields})


@pytest.mark.parametrize("version", range(14))
async def test_every_version_describes_brokers_and_topics(
    start_stage: StartStage, version: int
) -> None:
    stage = await start_stage(3)
    topic = await stage.cluster.create_topic("t", 2, 3)
    peer = await stage.peer(2)
    response = await peer.ask(metadata("t"), version)
    assert [broker.node_id for broker in response.brokers] == [1, 2, 3]
    (described,) = response.topics
    assert (described.name, described.error_code) == ("t", 0)
    assert [partition.leader_id for partition in described.partitions] == [1, 2]
    assert list(described.partitions[1].replica_nodes) == [2, 3, 1]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == stage.cluster.settings.cluster_id
    if version >= 10:
        assert described.topic_id == topic.id


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
async def test_all_topics(stage: Stage, version: int, topics: list[Any] | None) -> None:
    await stage.cluster.create_topic("u")
    peer = await stage.peer()
    response = await peer.ask(MetadataRequest.from_dict({"topics": topics}), version)
    assert [topic.name for topic in response.topics] == ["t", "u"]


async def test_no_topics(stage: Stage) -> None:
    peer = await stage.peer()
    assert list((await peer.ask(metadata(), 1)).topics) == []


async def test_topics_by_id(stage: Stage) -> None:
    known = stage.cluster.topics.get("t")
    assert known is not None
    peer = await stage.peer()
    ids = [{"topic_id": known.id, "name": None}, {"topic_id": UUID(int=1), "name": None}]
    response = await peer.ask(MetadataRequest.from_dict({"topics": ids}), 12)
    missing, found = response.topics  # in this order, as in Kafka
    assert (found.name, found.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == (None, Code.UNKNOWN_TOPIC_ID)


async def test_a_topic_is_created_when_asked_for_and_there_the_next_time(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(default_partitions=4)
    peer = await stage.peer()
    (first,) = (await peer.ask(metadata("new"), 12)).topics
    assert first.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    (second,) = (await peer.ask(metadata("new"), 12)).topics
    assert (second.error_code, len(second.partitions)) == (0, 4)


@pytest.mark.parametrize(("broker_allows", "client_allows"), [(True, False), (False, True)])
async def test_a_topic_is_created_only_if_both_sides_allow_it(
    start_stage: StartStage, broker_allows: bool, client_allows: bool
) -> None:
    stage = await start_stage(auto_create_topics=broker_allows)
    peer = await stage.peer()
    request = metadata("new", allow_auto_topic_creation=client_allows)
    for _ in range(2):
        (topic,) = (await peer.ask(request, 12)).topics
        assert topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.cluster.topics.get("new") is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250])
async def test_bad_names(stage: Stage, name: str) -> None:
    peer = await stage.peer()
    for allowed in (True, False):
        request = metadata(name, allow_auto_topic_creation=allowed)
        (topic,) = (await peer.ask(request, 12)).topics
        assert topic.error_code == Code.INVALID_TOPIC_EXCEPTION


async def test_a_topic_is_not_created_with_too_few_brokers(start_stage: StartStage) -> None:
    stage = await start_stage(2, default_replication_factor=2)
    peer = await stage.peer(2)
    await stage.cluster.stop_broker(1)
    [refused] = (await peer.ask(metadata("new"), 12)).topics
    assert refused.error_code == Code.INVALID_REPLICATION_FACTOR


async def test_leaders_move_when_their_broker_stops_and_replicas_return(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(2)
    await stage.cluster.create_topic("t", 1, assignments={0: [1, 2]})
    await stage.cluster.create_topic("alone", 1, assignments={0: [1]})
    peer = await stage.peer(2)
    await stage.cluster.stop_broker(1)
    response = await peer.ask(metadata("t", "alone"), 12)
    assert [broker.node_id for broker in response.brokers] == [2]
    assert response.controller_id == 2
    moved, lost = (topic.partitions[0] for topic in response.topics)
    assert (moved.leader_id, moved.leader_epoch, list(moved.isr_nodes)) == (2, 1, [2])
    assert list(moved.offline_replicas) == [1]
    assert (lost.leader_id, lost.error_code) == (-1, Code.LEADER_NOT_AVAILABLE)
    await stage.cluster.start_broker(1)
    response = await peer.ask(metadata("t", "alone"), 12)
    moved, found = (topic.partitions[0] for topic in response.topics)
    assert (moved.leader_id, list(moved.isr_nodes)) == (2, [1, 2])
    assert (found.leader_id, found.error_code) == (1, 0)


async def test_permitted_operations_if_asked(stage: Stage) -> None:
    peer = await stage.peer()
    asked = metadata(
        "t",
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = await peer.ask(asked, 10)
    assert response.topics[0].topic_authorized_operations > 0
    assert response.cluster_authorized_operations > 0
    response = await peer.ask(metadata("t"), 10)
    assert response.topics[0].topic_authorized_operations == -(2**31)


async def test_describe_cluster(start_stage: StartStage) -> None:
    stage = await start_stage(2)
    await stage.cluster.stop_broker(2)
    peer = await stage.peer()
    response = await peer.ask(DescribeClusterRequest(), 1)
    assert [broker.broker_id for broker in response.brokers] == [1]
    assert response.controller_id == 1
    response = await peer.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(row.broker_id, row.is_fenced) for row in response.brokers] == [(1, False), (2, True)]
    response = await peer.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert response.error_code == Code.MISMATCHED_ENDPOINT_TYPE


async def test_describe_topic_partitions_in_pages(stage: Stage) -> None:
    await stage.cluster.create_topic("u", 3)
    peer = await stage.peer()
    pages: list[list[tuple[str | None, int]]] = []
    cursor: dict[str, Any] | None = None
    for _ in range(5):
        request = DescribeTopicPartitionsRequest.from_dict(
            {"topics": [], "response_partition_limit": 2, "cursor": cursor}
        )
        response = await peer.ask(request, 0)
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


async def test_describe_topic_partitions_reports_a_missing_leader(
    start_stage: StartStage,
) -> None:
    stage = await start_stage(2)
    await stage.cluster.create_topic("alone", 1, assignments={0: [1]})
    peer = await stage.peer(2)
    await stage.cluster.stop_broker(1)
    request = DescribeTopicPartitionsRequest.from_dict({"topics": [{"name": "alone"}]})
    [topic] = (await peer.ask(request, 0)).topics
    [partition] = topic.partitions
    assert (partition.leader_id, partition.error_code) == (-1, Code.LEADER_NOT_AVAILABLE)


async def test_describe_topic_partitions_names_what_is_missing(stage: Stage) -> None:
    peer = await stage.peer()
    request = DescribeTopicPartitionsRequest.from_dict(
        {"topics": [{"name": "a b"}, {"name": "no"}]}
    )
    response = await peer.ask(request, 0)
    assert [Code(topic.error_code) for topic in response.topics] == [
        Code.INVALID_TOPIC_EXCEPTION,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# -- ApiVersions ----------------------------------------------------------------------------------


def versions(**fields: Any) -> ApiVersionsRequest:
    named = {"client_software_name": "test", "client_software_version": "1.0"}
    return ApiVersionsRequest.from_dict(named | fields)


@pytest.mark.parametrize("version", range(6))
async def test_api_versions(stage: Stage, version: int) -> None:
    peer = await stage.peer()
    response = await peer.ask(versions(), version)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert ranges[0] == (0, 13)
    assert ranges[18] == (0, 5)
    finalized = {row.name: row.max_version_level for row in response.finalized_features}
    assert finalized == ({"transaction.version": 2} if version >= 3 else {})


async def test_older_brokers_can_be_imitated(start_stage: StartStage) -> None:
    stage = await start_stage(transaction_version=0, api_versions={1: (4, 11), 75: (0, -1)})
    peer = await stage.peer()
    response = await peer.ask(versions(), 3)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    assert ranges[1] == (4, 11)
    assert 75 not in ranges
    assert list(response.finalized_features) == []


@pytest.mark.parametrize("name", ["", "-x", "a b", "x\n"])
async def test_a_client_must_be_called_something_decent(stage: Stage, name: str) -> None:
    peer = await stage.peer()
    response = await peer.ask(versions(client_software_name=name), 3)
    assert response.error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        ("ours", 1, Code.NONE),
        ("another", 1, Code.REBOOTSTRAP_REQUIRED),
        ("ours", 2, Code.REBOOTSTRAP_REQUIRED),
        ("ours", -1, Code.INVALID_REQUEST),
        (None, 1, Code.INVALID_REQUEST),
        (None, -2, Code.INVALID_REQUEST),
        ("ours", -2, Code.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_client_that_meant_another_broker_is_told_to_bootstrap_again(
    start_stage: StartStage, cluster_id: str | None, node_id: int, code: Code
) -> None:
    stage = await start_stage(cluster_id="ours")
    peer = await stage.peer()
    response = await peer.ask(versions(cluster_id=cluster_id, node_id=node_id), 5)
    assert Code(response.error_code) is code


@pytest.mark.parametrize(("replicas", "error"), [(3, 0), (1, Code.NOT_LEADER_OR_FOLLOWER)])
async def test_every_replica_describes_producers(
    start_stage: StartStage, replicas: int, error: int
) -> None:
    stage = await start_stage(3)
    await stage.cluster.create_topic("t", 1, replicas)
    peer = await stage.peer(2)  # broker 1 leads
    wanted = {"topics": [{"name": "t", "partition_indexes": [0]}]}
    response = await peer.ask(DescribeProducersRequest.from_dict(wanted), 0)
    assert [row.error_code for topic in response.topics for row in topic.partitions] == [error]


async def test_brokers_name_themselves_by_their_advertised_hosts(start_stage: StartStage) -> None:
    stage = await start_stage(2, advertised_hosts={2: "broker2.example"})
    peer = await stage.peer(1)
    response = await peer.ask(MetadataRequest(topics=[]), 13)
    assert [broker.host for broker in response.brokers] == ["127.0.0.1", "broker2.example"]
    assert "broker2" not in stage.cluster.bootstrap_servers
