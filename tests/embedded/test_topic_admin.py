"""CreateTopics, DeleteTopics, CreatePartitions and the settings of topics, over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.protocol.messages.create_partitions import CreatePartitionsRequest
from kafka_async.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from kafka_async.protocol.messages.delete_topics import DeleteTopicsRequest
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResult,
)
from kafka_async.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from tests.embedded.conftest import StartStage
    from tests.embedded.stage import Stage
    from tests.embedded.wire import Peer

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def create(
    peer: Peer, *topics: dict[str, Any], version: int = 7, **fields: Any
) -> list[CreatableTopicResult]:
    defaults = {"num_partitions": 1, "replication_factor": 1}
    request = CreateTopicsRequest.from_dict(
        {"topics": [{**defaults, **topic} for topic in topics]} | fields
    )
    return list((await peer.ask(request, version)).topics)


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates(start_stage: StartStage, version: int) -> None:
    stage = await start_stage(2)
    peer = await stage.peer(2)  # any broker will do
    asked = {"name": "new", "num_partitions": 3, "replication_factor": 2}
    (result,) = await create(peer, asked, version=version)
    assert result.error_code == 0
    topic = stage.cluster.topics.get("new")
    assert topic is not None
    assert [partition.replicas for partition in topic.partitions] == [(1, 2), (2, 1), (1, 2)]
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 2)
        assert result.configs
    if version >= 7:
        assert result.topic_id == topic.id


async def test_defaults(start_stage: StartStage) -> None:
    stage = await start_stage(2, default_partitions=5)
    peer = await stage.peer()
    (result,) = await create(peer, {"name": "n", "num_partitions": -1, "replication_factor": -1})
    assert (result.num_partitions, result.replication_factor) == (5, 2)


async def test_a_trial_creates_nothing(stage: Stage) -> None:
    peer = await stage.peer()
    (good, bad) = await create(peer, {"name": "n"}, {"name": "t"}, validate_only=True)
    assert (good.error_code, bad.error_code) == (0, Code.TOPIC_ALREADY_EXISTS)
    assert stage.cluster.topics.get("n") is None


REFUSED: dict[str, tuple[dict[str, Any], Code]] = {
    "exists": ({"name": "t"}, Code.TOPIC_ALREADY_EXISTS),
    "bad name": ({"name": "a b"}, Code.INVALID_TOPIC_EXCEPTION),
    "no partitions": ({"name": "n", "num_partitions": 0}, Code.INVALID_PARTITIONS),
    "too many replicas": ({"name": "n", "replication_factor": 2}, Code.INVALID_REPLICATION_FACTOR),
    "no replicas": ({"name": "n", "replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
    "unknown setting": (
        {"name": "n", "configs": [{"name": "x", "value": "1"}]},
        Code.INVALID_CONFIG,
    ),
    "no number": (
        {"name": "n", "configs": [{"name": "retention.ms", "value": "long"}]},
        Code.INVALID_CONFIG,
    ),
    "no such choice": (
        {"name": "n", "configs": [{"name": "message.timestamp.type", "value": "Now"}]},
        Code.INVALID_CONFIG,
    ),
    "assigned and counted": (
        {"name": "n", "assignments": [{"partition_index": 0, "broker_ids": [1]}]},
        Code.INVALID_REQUEST,
    ),
    "assigned to nobody": (
        {
            "name": "n",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [9]}],
        },
        Code.INVALID_REPLICA_ASSIGNMENT,
    ),
    "a gap": (
        {
            "name": "n",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 1, "broker_ids": [1]}],
        },
        Code.INVALID_REPLICA_ASSIGNMENT,
    ),
}


async def test_the_error_message_of_a_created_topic_is_null(stage: Stage) -> None:
    peer = await stage.peer()
    (result,) = await create(peer, {"name": "n"})
    assert (result.error_code, result.error_message) == (Code.NONE, None)


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_topics(stage: Stage, name: str) -> None:
    asked, code = REFUSED[name]
    peer = await stage.peer()
    (result,) = await create(peer, asked)
    assert Code(result.error_code) is code
    assert result.error_message
    assert stage.cluster.topics.get("n") is None


async def test_the_same_name_twice_is_refused(stage: Stage) -> None:
    peer = await stage.peer()
    (result,) = await create(peer, {"name": "n"}, {"name": "n"})
    assert result.error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("version", range(1, 7))
async def test_every_version_deletes_by_name(stage: Stage, version: int) -> None:
    peer = await stage.peer()
    request = DeleteTopicsRequest(topic_names=["t", "other"])
    if version >= 6:
        names = [{"name": "t"}, {"name": "other"}]
        request = DeleteTopicsRequest.from_dict({"topics": names})
    gone, missing = (await peer.ask(request, version)).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == ("other", Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert stage.cluster.topics.get("t") is None


async def test_deletion_by_id(stage: Stage) -> None:
    topic = stage.cluster.topics.get("t")
    assert topic is not None
    peer = await stage.peer()
    ids = [{"topic_id": topic.id}, {"topic_id": UUID(int=1)}]
    request = DeleteTopicsRequest.from_dict({"topics": ids})
    gone, missing = (await peer.ask(request, 6)).responses
    assert (gone.name, gone.error_code) == ("t", 0)
    assert (missing.name, missing.error_code) == (None, Code.UNKNOWN_TOPIC_ID)


async def test_a_topic_made_again_has_another_id(stage: Stage) -> None:
    first = stage.cluster.topics.get("t")
    assert first is not None
    await stage.cluster.delete_topic("t")
    assert (await stage.cluster.create_topic("t")).id != first.id


async def test_more_partitions(stage: Stage) -> None:
    peer = await stage.peer()

    async def grow(name: str, count: int, **fields: Any) -> int:
        request = CreatePartitionsRequest.from_dict(
            {"topics": [{"name": name, "count": count, "assignments": None, **fields}]}
        )
        (result,) = (await peer.ask(request, 3)).results
        return result.error_code

    assert await grow("t", 4) == 0
    topic = stage.cluster.topics.get("t")
    assert topic is not None
    assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
    assert await grow("t", 4) == Code.INVALID_PARTITIONS
    assert await grow("other", 4) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await grow("t", 5, assignments=[]) == Code.INVALID_REPLICA_ASSIGNMENT
    assert await grow("t", 5, assignments=[{"broker_ids": [1]}]) == 0


# -- settings -----------------------------------------------------------------------------------


async def described(peer: Peer, kind: int, name: str, **fields: Any) -> DescribeConfigsResult:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None, **fields}
    request = DescribeConfigsRequest.from_dict({"resources": [resource], "include_synonyms": True})
    (result,) = (await peer.ask(request, 4)).results
    return result


async def alter(peer: Peer, *changes: tuple[str, int, str | None], **fields: Any) -> int:
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
    request = IncrementalAlterConfigsRequest.from_dict({"resources": [resource | fields]})
    (result,) = (await peer.ask(request, 1)).responses
    return result.error_code


async def test_settings_are_described_with_their_source(stage: Stage) -> None:
    peer = await stage.peer()
    assert await alter(peer, ("retention.ms", 0, "5")) == 0
    result = await described(peer, 2, "t")
    values = {config.name: config for config in result.configs}
    assert (values["retention.ms"].value, values["retention.ms"].config_source) == ("5", 1)
    assert (values["cleanup.policy"].value, values["cleanup.policy"].config_source) == ("delete", 5)
    only = await described(peer, 2, "t", configuration_keys=["retention.ms", "nonsense"])
    assert [config.name for config in only.configs] == ["retention.ms"]


async def test_settings_of_brokers(stage: Stage) -> None:
    peer = await stage.peer()
    values = {config.name: config.value for config in (await described(peer, 4, "1")).configs}
    assert values["node.id"] == "1"
    assert values["message.max.bytes"] == "1048588"
    assert (await described(peer, 4, "9")).error_code == Code.INVALID_REQUEST
    assert (await described(peer, 2, "no")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await described(peer, 77, "no")).error_code == Code.INVALID_REQUEST


async def test_settings_are_set_appended_subtracted_and_reset(stage: Stage) -> None:
    peer = await stage.peer()
    topic = stage.cluster.topics.get("t")
    assert topic is not None
    assert await alter(peer, ("cleanup.policy", 2, "compact")) == 0
    assert topic.configs == {"cleanup.policy": "delete,compact"}
    assert await alter(peer, ("cleanup.policy", 3, "delete")) == 0
    assert topic.configs == {"cleanup.policy": "compact"}
    assert await alter(peer, ("cleanup.policy", 1, None)) == 0
    assert topic.configs == {}
    assert await alter(peer, ("max.message.bytes", 0, "100")) == 0
    assert topic.partitions[1].log.max_message_bytes == 100


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("nonsense", 0, "1"), Code.INVALID_CONFIG),
        (("retention.ms", 0, "x"), Code.INVALID_CONFIG),
        (("retention.ms", 2, "1"), Code.INVALID_CONFIG),
        (("retention.ms", 9, "1"), Code.UNKNOWN_SERVER_ERROR),
        (("retention.ms", 0, None), Code.INVALID_REQUEST),
    ],
)
async def test_a_bad_change_changes_nothing(
    stage: Stage, change: tuple[str, int, str | None], code: Code
) -> None:
    peer = await stage.peer()
    assert await alter(peer, ("segment.ms", 0, "7"), change) == code
    topic = stage.cluster.topics.get("t")
    assert topic is not None
    assert topic.configs == {}
    assert await alter(peer, resource_name="other") == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(peer, resource_type=4) == Code.INVALID_REQUEST
