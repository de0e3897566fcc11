"""Apache Kafka's command-line tools, which the embedded cluster serves too."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.helpers import create_topic_blocking, read_values

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.integration.kafka_tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def create_filled_topic(cluster: ClusterHandle, count: int, prefix: str = "tools") -> str:
    """Create a topic with one partition and `count` records."""
    topic = create_topic_blocking(cluster, prefix)
    asyncio.run(cluster.produce(topic, [b"value %d" % index for index in range(count)]))
    return topic


def test_topics(tools: Tools, kafka_cluster: ClusterHandle) -> None:
    topic = kafka_cluster.topic("commanded")
    words = "--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=100000"
    assert f"Created topic {topic}" in tools.run(
        kafka_cluster, "TopicCommand", "--create", "--topic", topic, *words
    )
    tools.run(kafka_cluster, "TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    described = tools.run(kafka_cluster, "TopicCommand", "--describe", "--topic", topic)
    header, *partitions = described.strip().splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 3" in header
    assert "retention.ms=100000" in header
    assert len(partitions) == 3
    assert all("\tElr: \tLastKnownElr:" in line for line in partitions)
    assert topic in tools.run(kafka_cluster, "TopicCommand", "--list").split()
    tools.run(kafka_cluster, "TopicCommand", "--delete", "--topic", topic)


def test_configs(tools: Tools, kafka_cluster: ClusterHandle) -> None:
    topic = create_topic_blocking(kafka_cluster)
    command = "kafka.admin.ConfigCommand"
    entity = "--entity-type", "topics", "--entity-name", topic
    added = "retention.bytes=5000,cleanup.policy=[compact,delete]"
    tools.run(kafka_cluster, command, "--alter", *entity, "--add-config", added)
    described = tools.run(kafka_cluster, command, "--describe", *entity)
    assert "cleanup.policy=compact,delete sensitive=false" in described
    assert "DEFAULT_CONFIG:log.retention.bytes=-1" in described
    tools.run(kafka_cluster, command, "--alter", *entity, "--delete-config", "retention.bytes")
    described = tools.run(kafka_cluster, command, "--describe", "--all", *entity)
    assert "  retention.bytes=-1 " in described
    assert described.count("sensitive=") == 37
    broker = "--entity-type", "brokers", "--entity-name", "1"
    assert "node.id=1" in tools.run(kafka_cluster, command, "--describe", "--all", *broker)


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.slow)])
def test_verifiable_producer_and_consumer_and_groups(
    tools: Tools, kafka_cluster: ClusterHandle, protocol: str
) -> None:
    topic, group = create_topic_blocking(kafka_cluster), kafka_cluster.group()
    words = "--topic", topic, "--max-messages", "20", "--acks", "-1"
    assert tools.rows(kafka_cluster, "VerifiableProducer", *words)[-1]["acked"] == 20
    assert f"{topic}:0:20" in tools.run(kafka_cluster, "GetOffsetShell", "--topic", topic)
    words = "--topic", topic, "--group-id", group, "--max-messages", "20"
    words += "--group-protocol", protocol
    rows = tools.rows(kafka_cluster, "VerifiableConsumer", "--reset-policy", "earliest", *words)
    consumed = [row["count"] for row in rows if row["name"] == "records_consumed"]
    assert sum(consumed) == 20

    def groups(*more: str) -> str:
        return tools.run(kafka_cluster, "consumer.group.ConsumerGroupCommand", *more)

    [row] = [line for line in groups("--describe", "--group", group).splitlines() if topic in line]
    assert row.split()[:6] == [group, topic, "0", "20", "20", "0"]
    assert [group, "Empty"] in [line.split() for line in groups("--list", "--state").splitlines()]
    reset = groups(
        "--group", group, "--reset-offsets", "--to-earliest", "--topic", topic, "--execute"
    )
    assert [group, topic, "0", "0"] in [line.split() for line in reset.splitlines()]
    assert "was successful" in groups("--group", group, "--delete")


def test_console_share_consumer_and_share_groups(
    tools: Tools, kafka_cluster: ClusterHandle
) -> None:
    topic, group = create_filled_topic(kafka_cluster, 20, "shared"), kafka_cluster.group()
    entity = "--entity-type", "groups", "--entity-name", group
    reset = "--alter", "--add-config", "share.auto.offset.reset=earliest"
    tools.run(kafka_cluster, "kafka.admin.ConfigCommand", *entity, *reset)
    words = "--topic", topic, "--group", group, "--max-messages", "20", "--timeout-ms", "60000"
    values = tools.run(kafka_cluster, "consumer.ConsoleShareConsumer", *words)
    assert values.split("\n")[:20] == [f"value {index}" for index in range(20)]

    def groups(*more: str) -> str:
        return tools.run(kafka_cluster, "consumer.group.ShareGroupCommand", *more)

    [row] = [line for line in groups("--describe", "--group", group).splitlines() if topic in line]
    *place, _, lag = row.split()[:5]
    assert [*place, lag] == [group, topic, "0", "0"]
    earliest = "--reset-offsets", "--to-earliest", "--topic", topic, "--execute"
    assert [group, topic, "0", "0"] in [
        line.split() for line in groups("--group", group, *earliest).splitlines()
    ]
    assert "successful" in groups("--group", group, "--delete")


def test_delete_records_and_get_offsets(
    tools: Tools, kafka_cluster: ClusterHandle, tmp_path: Path
) -> None:
    topic = create_filled_topic(kafka_cluster, 20)
    offsets = tmp_path / "offsets.json"
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 5}], "version": 1}
    offsets.write_text(json.dumps(wanted))
    output = tools.run(kafka_cluster, "DeleteRecordsCommand", "--offset-json-file", str(offsets))
    assert f"partition: {topic}-0\tlow_watermark: 5" in output
    for time, offset in [("earliest", 5), ("latest", 20)]:
        found = tools.run(kafka_cluster, "GetOffsetShell", "--topic", topic, "--time", time)
        assert found.strip() == f"{topic}:0:{offset}"


def test_transactional_message_copier_and_transactions(
    tools: Tools, kafka_cluster: ClusterHandle
) -> None:
    source = create_filled_topic(kafka_cluster, 20, "source")
    target = create_topic_blocking(kafka_cluster, "target")
    name = kafka_cluster.transactional_id()
    rows = tools.rows(
        kafka_cluster,
        "TransactionalMessageCopier",
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transactional-id", name, "--consumer-group", kafka_cluster.group()),
        *("--transaction-size", "5", "--max-messages", "20"),
    )
    assert (rows[-1]["stage"], rows[-1]["consumed"]) == ("ShutdownComplete", 20)
    values = asyncio.run(read_values(kafka_cluster, target))
    assert values == [b"value %d" % index for index in range(20)]

    def transactions(*more: str) -> list[list[str]]:
        shown = tools.run(kafka_cluster, "TransactionsCommand", *more)
        return [line.split() for line in shown.splitlines()]

    [listed] = [row for row in transactions("list") if row[:1] == [name]]
    assert listed[3] == "CompleteCommit"
    _, described = transactions("describe", "--transactional-id", name)[:2]
    assert described[1] == name
    header, *producers = transactions("describe-producers", "--topic", target, "--partition", "0")
    assert header[0] == "ProducerId"
    assert [row[0] for row in producers] == [listed[2]]
    hanging = transactions("find-hanging", "--broker-id", "1", "--topic", target)
    assert [row for row in hanging if target in row] == []


def test_performance_tools(tools: Tools, kafka_cluster: ClusterHandle) -> None:
    topic, group = create_topic_blocking(kafka_cluster), kafka_cluster.group()
    size = "--num-records", "1000", "--record-size", "100", "--throughput", "-1"
    output = tools.run(kafka_cluster, "ProducerPerformance", "--topic", topic, *size)
    assert output.startswith("1000 records sent")
    words = "--topic", topic, "--num-records", "1000", "--group", group
    header, row = tools.run(kafka_cluster, "ConsumerPerformance", *words).strip().splitlines()[-2:]
    names = [name.strip() for name in header.split(",")]
    assert row.split(",")[names.index("data.consumed.in.nMsg")].strip() == "1000"
