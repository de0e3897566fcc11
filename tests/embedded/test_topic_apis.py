"""CreateTopics, DeleteTopics, CreatePartitions and configurations, over raw connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.create_partitions import CreatePartitionsRequest
from kafka_async.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from kafka_async.protocol.messages.delete_topics import DeleteTopicsRequest
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResult,
)
from kafka_async.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness
    from tests.embedded.harness import ClusterHarness
    from tests.embedded.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def create(
    connection: RawConnection, *topics: dict[str, Any], version: int = 7, **fields: Any
) -> list[CreatableTopicResult]:
    defaults = {"num_partitions": 1, "replication_factor": 1}
    request = CreateTopicsRequest.from_dict(
        {"topics": [{**defaults, **topic} for topic in topics]} | fields
    )
    return list((await connection.call(request, version)).topics)


@pytest.mark.parametrize("version", range(2, 8))
async def test_creates_topics_in_every_version(start_harness: StartHarness, version: int) -> None:
    harness = await start_harness(2)
    connection = await harness.connect(2)  # any broker handles it
    topic_request = {"name": "new", "num_partitions": 3, "replication_factor": 2}
    (result,) = await create(connection, topic_request, version=version)
    assert result.error_code == 0
    topic = harness.cluster.topics.get("new")
    assert topic is not None
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 1), (1, 2)]
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 2)
        assert result.configs
    if version >= 7:
        assert result.topic_id == topic.id


async def test_creates_topic_with_default_settings(start_harness: StartHarness) -> None:
    harness = await start_harness(2, default_partitions=5)
    connection = await harness.connect()
    (result,) = await create(
        connection, {"name": "n", "num_partitions": -1, "replication_factor": -1}
    )
    assert (result.num_partitions, result.replication_factor) == (5, 2)


async def test_validate_only_creates_nothing(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    (good, bad) = await create(connection, {"name": "n"}, {"name": "t"}, validate_only=True)
    assert (good.error_code, bad.error_code) == (0, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert harness.cluster.topics.get("n") is None


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "exists": ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
    "bad name": ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": ({"name": "n", "num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    "too many replicas": (
        {"name": "n", "replication_factor": 2},
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ),
    "no replicas": ({"name": "n", "replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "unknown setting": (
        {"name": "n", "configs": [{"name": "x", "value": "1"}]},
        ErrorCode.INVALID_CONFIG,
    ),
    "no number": (
        {"name": "n", "configs": [{"name": "retention.ms", "value": "long"}]},
        ErrorCode.INVALID_CONFIG,
    ),
    "no such choice": (
        {"name": "n", "configs": [{"name": "message.timestamp.type", "value": "Now"}]},
        ErrorCode.INVALID_CONFIG,
    ),
    "assigned and counted": (
        {"name": "n", "assignments": [{"partition_index": 0, "broker_ids": [1]}]},
        ErrorCode.INVALID_REQUEST,
    ),
    "assigned to unknown broker": (
        {
            "name": "n",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [9]}],
        },
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "a gap": (
        {
            "name": "n",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 1, "broker_ids": [1]}],
        },
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
}


async def test_created_topic_has_null_error_message(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    (result,) = await create(connection, {"name": "n"})
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("name", REFUSED)
async def test_invalid_topics_are_rejected(harness: ClusterHarness, name: str) -> None:
    topic_request, code = REFUSED[name]
    connection = await harness.connect()
    (result,) = await create(connection, topic_request)
    assert ErrorCode(result.error_code) is code
    assert result.error_message
    assert harness.cluster.topics.get("n") is None


async def test_duplicate_topic_name_is_rejected(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    (result,) = await create(connection, {"name": "n"}, {"name": "n"})
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 7))
async def test_deletes_by_name_in_every_version(harness: ClusterHarness, version: int) -> None:
    connection = await harness.connect()
    request = DeleteTopicsRequest(topic_names=["t", "other"])
    if version >= 6:
        names = [{"name": "t"}, {"name": "other"}]
        request = DeleteTopicsRequest.from_dict({"topics": names})
    gone, missing = (await connection.call(request, version)).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == ("other", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert harness.cluster.topics.get("t") is None


async def test_deletes_by_id(harness: ClusterHarness) -> None:
    topic = harness.cluster.topics.get("t")
    assert topic is not None
    connection = await harness.connect()
    ids = [{"topic_id": topic.id}, {"topic_id": UUID(int=1)}]
    request = DeleteTopicsRequest.from_dict({"topics": ids})
    gone, missing = (await connection.call(request, 6)).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_recreated_topic_has_new_id(harness: ClusterHarness) -> None:
    first = harness.cluster.topics.get("t")
    assert first is not None
    await harness.cluster.delete_topic("t")
    assert (await harness.cluster.create_topic("t")).id != first.id


async def test_creates_partitions(harness: ClusterHarness) -> None:
    connection = await harness.connect()

    async def add(name: str, count: int, **fields: Any) -> int:
        request = CreatePartitionsRequest.from_dict(
            {"topics": [{"name": name, "count": count, "assignments": None, **fields}]}
        )
        (result,) = (await connection.call(request, 3)).results
        return result.error_code

    assert await add("t", 4) == 0
    topic = harness.cluster.topics.get("t")
    assert topic is not None
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
    assert await add("t", 4) == ErrorCode.INVALID_PARTITIONS
    assert await add("other", 4) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await add("t", 5, assignments=[]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await add("t", 5, assignments=[{"broker_ids": [1]}]) == 0


# -- settings -------------------------------------------------------------------------------------


async def described(
    connection: RawConnection, resource_type: int, name: str, **fields: Any
) -> DescribeConfigsResult:
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configuration_keys": None,
        **fields,
    }
    request = DescribeConfigsRequest.from_dict({"resources": [resource], "include_synonyms": True})
    (result,) = (await connection.call(request, 4)).results
    return result


async def alter(
    connection: RawConnection, *changes: tuple[str, int, str | None], **fields: Any
) -> int:
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
    request = IncrementalAlterConfigsRequest.from_dict({"resources": [resource | fields]})
    (result,) = (await connection.call(request, 1)).responses
    return result.error_code


async def test_describes_topic_configs_with_source(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    assert await alter(connection, ("retention.ms", 0, "5")) == 0
    result = await described(connection, 2, "t")
    values = {config.name: config for config in result.configs}
    assert (values["retention.ms"].value, values["retention.ms"].config_source) == ("5", 1)
    assert (values["cleanup.policy"].value, values["cleanup.policy"].config_source) == ("delete", 5)
    only = await described(connection, 2, "t", configuration_keys=["retention.ms", "nonsense"])
    assert [config.name for config in only.configs] == ["retention.ms"]


async def test_describes_broker_configs(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    values = {config.name: config.value for config in (await described(connection, 4, "1")).configs}
    assert values["node.id"] == "1"
    assert values["message.max.bytes"] == "1048588"
    assert (await described(connection, 4, "9")).error_code == ErrorCode.INVALID_REQUEST
    assert (await described(connection, 2, "no")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await described(connection, 77, "no")).error_code == ErrorCode.INVALID_REQUEST


async def test_alters_configs_by_each_operation(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    topic = harness.cluster.topics.get("t")
    assert topic is not None
    assert await alter(connection, ("cleanup.policy", 2, "compact")) == 0
    assert topic.configs == {"cleanup.policy": "delete,compact"}
    assert await alter(connection, ("cleanup.policy", 3, "delete")) == 0
    assert topic.configs == {"cleanup.policy": "compact"}
    assert await alter(connection, ("cleanup.policy", 1, None)) == 0
    assert topic.configs == {}
    assert await alter(connection, ("max.message.bytes", 0, "100")) == 0
    assert topic.partitions[1].log.max_message_bytes == 100


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("nonsense", 0, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 0, "x"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 2, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (("retention.ms", 0, None), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_invalid_alteration_changes_nothing(
    harness: ClusterHarness, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    connection = await harness.connect()
    assert await alter(connection, ("segment.ms", 0, "7"), change) == code
    topic = harness.cluster.topics.get("t")
    assert topic is not None
    assert topic.configs == {}
    assert await alter(connection, resource_name="other") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(connection, resource_type=4) == ErrorCode.INVALID_REQUEST
