"""Metadata of clusters with stopped brokers and other settings than those of the contract."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.handlers.metadata import partition_fields
from tests.contract.cases.admin import NEW, metadata, versions
from tests.contract.cases.log import producers
from tests.contract.model import T, send
from tests.embedded.harness import running_session

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_metadata_creates_missing_topic_for_next_request() -> None:
    async with running_session(default_partitions=4) as it:
        [first] = (await it.ask(metadata(12, NEW, auto=True))).topics
        assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        [second] = (await it.ask(metadata(12, NEW, auto=True))).topics
        assert (second.error_code, len(second.partitions)) == (0, 4)


@pytest.mark.parametrize(("broker_allows", "client_allows"), [(True, False), (False, True)])
async def test_topic_is_created_only_if_both_sides_allow_it(
    broker_allows: bool, client_allows: bool
) -> None:
    async with running_session(auto_create_topics=broker_allows) as it:
        for _ in range(2):
            code = await it.code(metadata(12, NEW, auto=client_allows))
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert it.embedded.topics.get(NEW.key) is None


async def test_topic_is_not_created_with_too_few_brokers() -> None:
    async with running_session(2, default_replication_factor=2) as it:
        await it.embedded.stop_broker(1)
        it.broker = 2
        code = await it.code(metadata(12, NEW, auto=True))
        assert code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_leaders_move_when_broker_stops_and_isr_recovers() -> None:
    async with running_session(2) as it:
        await it.embedded.create_topic("alone", 1, assignments={0: [1]})
        it.broker = 2
        await it.embedded.stop_broker(1)
        response = await it.ask(metadata(12, T, "alone"))
        assert [broker.node_id for broker in response.brokers] == [2]
        assert response.controller_id == 2
        moved, lost = (topic.partitions[0] for topic in response.topics)
        assert (moved.leader_id, moved.leader_epoch, list(moved.isr_nodes)) == (2, 1, [2])
        assert list(moved.offline_replicas) == [1]
        assert (lost.leader_id, lost.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
        await it.embedded.start_broker(1)
        response = await it.ask(metadata(12, T, "alone"))
        moved, found = (topic.partitions[0] for topic in response.topics)
        assert (moved.leader_id, list(moved.isr_nodes)) == (2, [1, 2])
        assert (found.leader_id, found.error_code) == (1, 0)


async def test_leader_that_has_stopped_is_not_named_before_the_next_one_is_elected() -> None:
    async with running_session(2) as it:
        found = it.embedded.topics.get("t")
        assert found is not None
        led, unled = (partition_fields(found.partitions[0], alive) for alive in ((1, 2), (2,)))
        assert (led["leader_id"], led["error_code"]) == (1, ErrorCode.NONE)
        assert (unled["leader_id"], unled["error_code"]) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


async def test_describes_cluster() -> None:
    async with running_session(2) as it:
        await it.embedded.stop_broker(2)
        response = await it.ask(send("DescribeCluster", 1))
        assert [broker.broker_id for broker in response.brokers] == [1]
        assert response.controller_id == 1
        response = await it.ask(send("DescribeCluster", 2, include_fenced_brokers=True))
        rows = [(row.broker_id, row.is_fenced) for row in response.brokers]
        assert rows == [(1, False), (2, True)]


async def test_describes_topic_partitions_in_pages() -> None:
    async with running_session() as it:
        await it.embedded.create_topic("u", 3)
        pages: list[list[tuple[str | None, int]]] = []
        position: dict[str, Any] = {}
        for _ in range(5):
            page = send(
                "DescribeTopicPartitions", 0, topics=[], response_partition_limit=2, **position
            )
            response = await it.ask(page)
            pages.append(
                [
                    (row.name, entry.partition_index)
                    for row in response.topics
                    for entry in row.partitions
                ]
            )
            if response.next_cursor is None:
                break
            position = {"cursor": response.next_cursor.to_dict()}
        assert pages == [[("t", 0), ("t", 1)], [("u", 0), ("u", 1)], [("u", 2)]]


async def test_settings_emulate_older_brokers() -> None:
    async with running_session(transaction_version=0, api_versions={1: (4, 11), 75: (0, -1)}) as it:
        response = await it.ask(versions(3))
        ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        assert ranges[1] == (4, 11)
        assert 75 not in ranges
        assert "transaction.version" not in {it.name for it in response.finalized_features}


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
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    async with running_session(cluster_id="ours") as it:
        assert await it.code(versions(5, cluster_id=cluster_id, node_id=node_id)) is code


@pytest.mark.parametrize(
    ("replicas", "code"), [(3, ErrorCode.NONE), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
async def test_replicas_describe_producers(replicas: int, code: ErrorCode) -> None:
    async with running_session(3) as it:
        await it.embedded.create_topic("u", 1, assignments={0: [1, 2, 3][:replicas]})
        it.broker = 2  # broker 1 leads
        assert await it.code(producers(0, name="u")) is code


async def test_responses_have_advertised_hosts() -> None:
    async with running_session(2, advertised_hosts={2: "broker2.example"}) as it:
        response = await it.ask(metadata(13))
        assert [broker.host for broker in response.brokers] == ["127.0.0.1", "broker2.example"]
        assert "broker2" not in it.embedded.bootstrap_servers
