"""Reads the batches of a partition unchanged, over a raw connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.records.batch import iter_batches
from tests.integration.raw_cluster import RawConnection

if TYPE_CHECKING:
    from kafka_async.records.batch import BatchView
    from kafka_async.testing.fixtures import ClusterHandle

MAX_BYTES = 1 << 25
VERSION = 12
"""The last version of Fetch with topic names."""


def batches_of(cluster: ClusterHandle, topic: str) -> list[BatchView]:
    """Return the batches of partition 0 that fit into one response."""
    host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
    any_broker = RawConnection(host, int(port))
    response = any_broker.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), VERSION)
    any_broker.close()
    [partition] = response.topics[0].partitions
    broker = next(row for row in response.brokers if row.node_id == partition.leader_id)
    leader = RawConnection(broker.host, broker.port)
    partition_request = FetchPartition(partition=0, partition_max_bytes=MAX_BYTES)
    request = FetchRequest(
        max_bytes=MAX_BYTES,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition_request])],
    )
    [data] = leader.call(request, VERSION).responses[0].partitions
    leader.close()
    assert data.error_code == ErrorCode.NONE
    return list(iter_batches(data.records or b"", topic=topic, partition=0))
