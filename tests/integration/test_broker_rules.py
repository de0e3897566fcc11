"""Rules of Kafka's brokers that clients depend on, checked by raw requests on every backend."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.embedded.state.configs import BROKER_CONFIGS, TOPIC_CONFIGS
from kafka_async.protocol.header import decode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResult,
)
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kafka_async.protocol.messages.produce import PartitionProduceResponse, ProduceRequest
from kafka_async.records.batch import RecordBatch
from kafka_async.types import ProducerRecord
from tests.hostile.malformed_batches import SECRET, batch
from tests.hostile.test_compression import MALFORMED, UNUSUAL
from tests.integration.raw_cluster import RawCluster, when_ready

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.asyncio

GROUP = 0
TOPIC, BROKER = 2, 4
HOUR_MS = 3_600_000


async def produced(
    cluster: RawCluster, topic: str, version: int, *records: ProducerRecord
) -> PartitionProduceResponse:
    """Return the response of the partition's leader to one batch."""
    return await produced_batch(cluster, topic, version, RecordBatch.build(records, "none").frame())


async def produced_batch(
    cluster: RawCluster, topic: str, version: int, frame: Buffer
) -> PartitionProduceResponse:
    """Return the response of the partition's leader to the bytes of a batch."""
    data = {"index": 0, "records": frame}
    request = ProduceRequest.from_dict(
        {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [data]}],
        }
    )

    async def send() -> PartitionProduceResponse:
        response = await (await cluster.leader(topic)).call(request, version)
        return response.responses[0].partition_responses[0]

    return await when_ready(send)


def record(key: bytes | None, *, later_ms: int = 0) -> ProducerRecord:
    return ProducerRecord("", b"value", key=key, timestamp=int(time.time() * 1000) + later_ms)


async def configs_of(cluster: RawCluster, kind: int, name: str) -> DescribeConfigsResult:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    request = DescribeConfigsRequest.from_dict({"resources": [resource], "include_synonyms": True})
    [result] = (await cluster.any.call(request, 4)).results
    return result


async def own_id(cluster: RawCluster) -> str:
    """Return the id of the broker that `cluster.any` is connected to."""
    brokers = (await cluster.any.call(MetadataRequest(topics=[]), 9)).brokers
    return str({(row.host, row.port): row.node_id for row in brokers}[cluster.address])


# -- frames and versions --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 9, 13])
async def test_ignores_bytes_after_the_end_of_a_request(
    raw_cluster: RawCluster, version: int
) -> None:
    request = MetadataRequest(topics=[])
    body = raw_cluster.any.encode(request, version) + b"\0\1surplus"
    assert decode_response(await raw_cluster.any.submit(body), MetadataResponse, version)[1].brokers


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_advertises_produce_from_version_0_and_refuses_it(
    raw_cluster: RawCluster, version: int
) -> None:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    response = await raw_cluster.any.call(request, 3)
    assert {row.api_key: row.min_version for row in response.api_keys}[0] == 0
    with pytest.raises(ConnectionResetError):
        await raw_cluster.any.submit(struct.pack(">hhihhii", 0, version, 77, -1, 1, 1_000, 0))


# -- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 12])
async def test_refuses_records_without_key_in_compacted_topics(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle, version: int
) -> None:
    topic = kafka_cluster.topic("compacted")
    await raw_cluster.create_topic(topic, {"cleanup.policy": "compact"})
    rows = record(b"k"), record(None), record(b"k"), record(None)
    response = await produced(raw_cluster, topic, version, *rows)
    assert (response.error_code, response.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    if version >= 8:
        assert [row.batch_index for row in response.record_errors] == [1, 3]
        assert response.error_message is not None
        assert response.error_message.startswith("One or more records have been rejected")
    assert (await produced(raw_cluster, topic, version, record(b"k"))).base_offset == 0


async def test_refuses_records_with_a_time_in_the_future(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("clock")
    await raw_cluster.create_topic(topic)
    response = await produced(
        raw_cluster, topic, 12, record(None), record(None, later_ms=2 * HOUR_MS)
    )
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [row.batch_index for row in response.record_errors] == [1]
    assert (
        await produced(raw_cluster, topic, 12, record(None, later_ms=HOUR_MS // 2))
    ).base_offset == 0


async def test_accepts_the_compressed_streams_that_clients_read(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("unusual")
    await raw_cluster.create_topic(topic)
    refused = {
        name: response.error_code
        for name, (codec, stream) in UNUSUAL.items()
        if (
            response := await produced_batch(
                raw_cluster, topic, 12, batch(codec=codec, payload=stream, base=0)
            )
        ).error_code
    }
    assert refused == {}
    values = [record.value for record in await kafka_cluster.read(topic)]
    assert values == [SECRET[100 * n : 100 * n + 100] for n in range(5)] * len(UNUSUAL)


async def test_refuses_the_compressed_streams_that_clients_refuse(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("malformed")
    await raw_cluster.create_topic(topic)
    codes = {
        f"{codec.name} {name}": (
            await produced_batch(raw_cluster, topic, 12, batch(codec=codec, payload=data, base=0))
        ).error_code
        for codec, cases in MALFORMED.items()
        for name, (data, _) in cases.items()
    }
    assert set(codes.values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}, codes


# -- topics and their configurations --------------------------------------------------------------


async def test_refuses_more_than_10000_partitions_per_request(raw_cluster: RawCluster) -> None:
    row = {"name": "many", "num_partitions": 10_001, "replication_factor": 1}
    request = CreateTopicsRequest.from_dict({"topics": [row], "timeout_ms": 10_000})
    [created] = (await raw_cluster.any.call(request, 5)).topics
    assert created.error_code == ErrorCode.POLICY_VIOLATION


async def test_describes_all_topic_configurations(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("configs")
    configs = {"retention.ms": " 5 ", "cleanup.policy": "compact, delete,compact"}
    result = await raw_cluster.creation(topic, configs)
    assert result.configs is not None
    created = {row.name: row for row in result.configs}
    assert len(created) == 37
    assert created["retention.ms"].value == " 5 "
    await raw_cluster.leader(topic)
    rows = {row.name: row for row in (await configs_of(raw_cluster, TOPIC, topic)).configs}
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


async def test_accepts_legal_configurations_and_refuses_others(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    topic = kafka_cluster.topic("checked")

    async def code(name: str, text: str) -> int:
        return (await raw_cluster.creation(topic, {name: text}, validate_only=True)).error_code

    accepted = {pair: await code(*pair) for pair in LEGAL}
    assert accepted == dict.fromkeys(LEGAL, ErrorCode.NONE)
    refused = {pair: await code(*pair) for pair in ILLEGAL}
    assert refused == dict.fromkeys(ILLEGAL, ErrorCode.INVALID_CONFIG)


async def test_describes_brokers(raw_cluster: RawCluster) -> None:
    own = await own_id(raw_cluster)
    rows = {row.name: row for row in (await configs_of(raw_cluster, BROKER, own)).configs}
    for name, known in BROKER_CONFIGS.items():
        row = rows[name]
        assert (name, row.config_type, row.read_only) == (name, known.type, known.read_only)
        assert row.synonyms[-1].value == known.default
    assert rows["node.id"].value == own
    defaults = await configs_of(raw_cluster, BROKER, "")
    found = [(row.name, row.value, row.config_source) for row in defaults.configs]
    assert found == [("min.insync.replicas", "2", 3)]
    assert (await configs_of(raw_cluster, BROKER, "4711")).error_code == ErrorCode.INVALID_REQUEST


# -- the coordinators' topics ---------------------------------------------------------------------


async def test_creates_the_offsets_topic_for_the_first_group(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    await raw_cluster.coordinator(GROUP, kafka_cluster.group())
    name = "__consumer_offsets"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    [topic] = (await raw_cluster.any.call(request, 9)).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.NONE, True)
    described = await configs_of(raw_cluster, BROKER, await own_id(raw_cluster))
    broker = {row.name: row.value for row in described.configs}
    assert str(len(topic.partitions)) == broker["offsets.topic.num.partitions"]
    own = {
        row.name: row.value
        for row in (await configs_of(raw_cluster, TOPIC, name)).configs
        if row.config_source == 1
    }
    assert own == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
