"""Rules of Kafka's brokers that clients depend on, checked by raw requests on every backend."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.embedded.configs import BROKER_CONFIGS, TOPIC_CONFIGS
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from kafka_async.protocol.messages.delete_records import DeleteRecordsRequest
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResult,
)
from kafka_async.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kafka_async.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from kafka_async.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord
from tests.integration.raw_cluster import NOT_READY, TIMEOUT, RawCluster

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

GROUP = 0
TOPIC, BROKER = 2, 4
HOUR_MS = 3_600_000
NO_CONFIGS: Mapping[str, str] = {}


@pytest.fixture
def cluster(kafka_cluster: ClusterHandle) -> Iterator[RawCluster]:
    opened = RawCluster(kafka_cluster.bootstrap_servers)
    yield opened
    opened.close()


def creation(
    cluster: RawCluster, topic: str, configs: Mapping[str, str], *, validate_only: bool = False
) -> CreatableTopicResult:
    """Return the response to the creation of a topic with one partition."""
    named = [{"name": name, "value": text} for name, text in configs.items()]
    asked = {"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": named}
    request = CreateTopicsRequest.from_dict(
        {"topics": [asked], "timeout_ms": 10_000, "validate_only": validate_only}
    )
    [result] = cluster.any.call(request, 7).topics
    return result


def described(cluster: RawCluster, topic: str) -> MetadataResponseTopic:
    request = MetadataRequest.from_dict(
        {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    )
    [found] = cluster.any.call(request, 9).topics
    return found


def create(cluster: RawCluster, topic: str, configs: Mapping[str, str] = NO_CONFIGS) -> None:
    """Create a topic with one partition, and wait until its leader is known."""
    assert creation(cluster, topic, configs).error_code == ErrorCode.NONE
    cluster.leader(topic)


def produced(
    cluster: RawCluster, topic: str, version: int, *records: ProducerRecord
) -> PartitionProduceResponse:
    """Return the response of the partition's leader to one batch."""
    raw = RecordBatch.build(records, "none").frame()
    request = ProduceRequest.from_dict(
        {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": raw}]}],
        }
    )
    deadline = time.monotonic() + TIMEOUT
    while True:
        [response] = cluster.leader(topic).call(request, version).responses[0].partition_responses
        if response.error_code not in NOT_READY or time.monotonic() > deadline:
            return response
        time.sleep(0.05)


def record(key: bytes | None, *, later_ms: int = 0) -> ProducerRecord:
    return ProducerRecord("", b"value", key=key, timestamp=int(time.time() * 1000) + later_ms)


def configs_of(cluster: RawCluster, kind: int, name: str) -> DescribeConfigsResult:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    request = DescribeConfigsRequest.from_dict({"resources": [resource], "include_synonyms": True})
    [result] = cluster.any.call(request, 4).results
    return result


def own_id(cluster: RawCluster) -> str:
    """Return the id of the broker that `cluster.any` is connected to."""
    brokers = cluster.any.call(MetadataRequest(topics=[]), 9).brokers
    ids = {(broker.host, broker.port): broker.node_id for broker in brokers}
    return str(ids[cluster.any.address])


# -- frames and versions --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 9, 13])
def test_ignores_bytes_after_the_end_of_a_request(cluster: RawCluster, version: int) -> None:
    request = MetadataRequest(topics=[])
    assert cluster.any.call(request, version, extra=b"\0\1surplus").brokers


@pytest.mark.parametrize("version", [0, 1, 2])
def test_advertises_produce_from_version_0_and_refuses_it(
    cluster: RawCluster, version: int
) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    ranges = {row.api_key: row.min_version for row in cluster.any.call(request, 3).api_keys}
    assert ranges[0] == 0
    body = struct.pack(">hhihhii", 0, version, 1, -1, 1, 1_000, 0)
    assert cluster.any.is_closed_after(struct.pack(">i", len(body)) + body)


# -- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 12])
def test_refuses_records_without_key_in_compacted_topics(
    cluster: RawCluster, kafka_cluster: ClusterHandle, version: int
) -> None:
    topic = kafka_cluster.topic("compacted")
    create(cluster, topic, {"cleanup.policy": "compact"})
    rows = record(b"k"), record(None), record(b"k"), record(None)
    response = produced(cluster, topic, version, *rows)
    assert (response.error_code, response.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version >= 8:
        assert [row.batch_index for row in response.record_errors] == [1, 3]
        assert response.error_message is not None
        assert response.error_message.startswith("One or more records have been rejected")
    assert produced(cluster, topic, version, record(b"k")).base_offset == 0


def test_refuses_records_with_a_time_in_the_future(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("clock")
    create(cluster, topic)
    response = produced(cluster, topic, 12, record(None), record(None, later_ms=2 * HOUR_MS))
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [row.batch_index for row in response.record_errors] == [1]
    assert produced(cluster, topic, 12, record(None, later_ms=HOUR_MS // 2)).base_offset == 0


def test_refuses_a_batch_larger_than_a_segment(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("segments")
    create(cluster, topic, {"segment.bytes": "1048576", "max.message.bytes": "5000000"})
    large = ProducerRecord("", bytes(1_100_000), timestamp=int(time.time() * 1000))
    assert produced(cluster, topic, 12, large).error_code == ErrorCode.RECORD_LIST_TOO_LARGE


# -- topics and their configurations --------------------------------------------------------------


def test_creates_a_topic_without_error_message(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    result = creation(cluster, kafka_cluster.topic("new"), {"cleanup.policy": ""})
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)


def test_describes_partitions_with_empty_eligible_replicas(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("described")
    create(cluster, topic)
    request = DescribeTopicPartitionsRequest.from_dict(
        {"topics": [{"name": topic}], "response_partition_limit": 10, "cursor": None}
    )
    [found] = cluster.any.call(request, 0).topics
    [partition] = found.partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_describes_all_topic_configurations(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("configs")
    configs = {"retention.ms": " 5 ", "cleanup.policy": "compact, delete,compact"}
    result = creation(cluster, topic, configs)
    assert result.configs is not None
    created = {row.name: row for row in result.configs}
    assert len(created) == 37
    assert created["retention.ms"].value == " 5 "
    cluster.leader(topic)
    rows = {row.name: row for row in configs_of(cluster, TOPIC, topic).configs}
    assert rows.keys() == created.keys() == TOPIC_CONFIGS.keys()
    own = {"retention.ms": "5", "cleanup.policy": "compact,delete", "min.insync.replicas": "2"}
    for name, row in rows.items():
        known = TOPIC_CONFIGS[name]
        source = {"min.insync.replicas": 3}.get(name, 1 if name in own else 5)
        assert (row.value, row.config_source, row.config_type, row.read_only) == (
            own.get(name, known.default),
            source,
            known.type,
            False,
        )
        assert created[name].config_source == source
        broker = [] if known.broker_name is None else [(known.broker_name, known.default, 5)]
        if name == "min.insync.replicas":
            broker = [(name, "2", 3), (name, "2", 4), (name, "1", 5)]
        topics = [(name, own[name], 1)] if source == 1 else []
        assert [(one.name, one.value, one.source) for one in row.synonyms] == topics + broker


LEGAL = [
    *[("cleanup.policy", text) for text in ("", "delete", "compact, delete", "compact,compact")],
    *[("compression.gzip.level", text) for text in ("-1", "1", "9", "+5")],
    ("compression.lz4.level", "17"),
    *[("compression.type", text) for text in ("uncompressed", "producer", "zstd")],
    ("compression.zstd.level", "-131072"),
    ("follower.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1,1:2"),
    ("local.retention.bytes", "-2"),
    ("max.compaction.lag.ms", "1"),
    *[("min.cleanable.dirty.ratio", text) for text in ("0", "1", "0.25")],
    ("retention.bytes", "-3"),
    ("retention.ms", "-1"),
    ("segment.bytes", "1048576"),
    ("segment.index.bytes", "4"),
    *[("unclean.leader.election.enable", text) for text in ("TRUE", "false")],
]
ILLEGAL = [
    ("no.such.config", "1"),
    *[("cleanup.policy", text) for text in ("x", "compact,x")],
    *[("compression.gzip.level", text) for text in ("0", "10", "")],
    *[("compression.lz4.level", text) for text in ("0", "18")],
    ("compression.type", "GZIP"),
    *[("compression.zstd.level", text) for text in ("-131073", "23")],
    ("delete.retention.ms", "-1"),
    ("flush.messages", "0"),
    ("leader.replication.throttled.replicas", "1"),
    *[("local.retention.ms", text) for text in ("-3", "9223372036854775808")],
    *[("max.message.bytes", text) for text in ("-1", "2147483648", "1.5", "0x10")],
    ("message.timestamp.type", "createtime"),
    *[("min.cleanable.dirty.ratio", text) for text in ("-0.1", "1.1", "half")],
    *[("preallocate", text) for text in ("1", "yes", "")],
    ("remote.storage.enable", "true"),
    ("retention.ms", "-2"),
    ("segment.bytes", "1048575"),
    ("segment.index.bytes", "3"),
    ("segment.ms", "0"),
]


def test_accepts_legal_configurations_and_refuses_others(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("checked")

    def code(name: str, text: str) -> int:
        return creation(cluster, topic, {name: text}, validate_only=True).error_code

    accepted = {pair: code(*pair) for pair in LEGAL}
    assert accepted == dict.fromkeys(LEGAL, ErrorCode.NONE)
    refused = {pair: code(*pair) for pair in ILLEGAL}
    assert refused == dict.fromkeys(ILLEGAL, ErrorCode.INVALID_CONFIG)
    lags = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    result = creation(cluster, topic, lags, validate_only=True)
    assert result.error_code == ErrorCode.INVALID_CONFIG


SET, DELETE, APPEND, SUBTRACT = range(4)
CHANGES: list[tuple[str, int, str | None, int]] = [
    ("cleanup.policy", APPEND, "compact", ErrorCode.NONE),
    ("cleanup.policy", SUBTRACT, "delete", ErrorCode.NONE),
    ("cleanup.policy", SET, "", ErrorCode.NONE),
    ("cleanup.policy", DELETE, None, ErrorCode.NONE),
    ("no.such.config", DELETE, None, ErrorCode.NONE),
    ("cleanup.policy", APPEND, "x", ErrorCode.INVALID_CONFIG),
    ("retention.ms", APPEND, "1", ErrorCode.INVALID_CONFIG),
    ("no.such.config", SUBTRACT, "1", ErrorCode.INVALID_CONFIG),
    ("no.such.config", SET, "1", ErrorCode.INVALID_CONFIG),
    ("retention.ms", SET, None, ErrorCode.INVALID_REQUEST),
    ("retention.ms", 9, "1", ErrorCode.UNKNOWN_SERVER_ERROR),
]


def test_alters_configurations_step_by_step(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("altered")
    create(cluster, topic)
    for name, operation, value, code in CHANGES:
        change = {"name": name, "config_operation": operation, "value": value}
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [change]}
        request = IncrementalAlterConfigsRequest.from_dict({"resources": [resource]})
        [result] = cluster.any.call(request, 1).responses
        assert (name, operation, result.error_code) == (name, operation, code)


def test_describes_brokers(cluster: RawCluster) -> None:
    own = own_id(cluster)
    rows = {row.name: row for row in configs_of(cluster, BROKER, own).configs}
    for name, known in BROKER_CONFIGS.items():
        row = rows[name]
        assert (name, row.config_type, row.read_only) == (name, known.type, known.read_only)
        assert row.synonyms[-1].value == known.default
    assert rows["node.id"].value == own
    defaults = configs_of(cluster, BROKER, "")
    found = [(row.name, row.value, row.config_source) for row in defaults.configs]
    assert found == [("min.insync.replicas", "2", 3)]
    assert configs_of(cluster, BROKER, "4711").error_code == ErrorCode.INVALID_REQUEST


# -- the coordinators' topics ---------------------------------------------------------------------


def test_creates_the_offsets_topic_for_the_first_group(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    cluster.coordinator(GROUP, kafka_cluster.group())
    name = "__consumer_offsets"
    topic = described(cluster, name)
    assert (topic.error_code, topic.is_internal) == (ErrorCode.NONE, True)
    broker = {row.name: row.value for row in configs_of(cluster, BROKER, own_id(cluster)).configs}
    assert str(len(topic.partitions)) == broker["offsets.topic.num.partitions"]
    own = {
        row.name: row.value
        for row in configs_of(cluster, TOPIC, name).configs
        if row.config_source == 1
    }
    assert own == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert produced(cluster, name, 12, record(b"k")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    fields: dict[str, Any] = {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
    request = DeleteRecordsRequest.from_dict({"topics": [fields], "timeout_ms": 10_000})
    [refused] = cluster.leader(name).call(request, 2).topics[0].partitions
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
