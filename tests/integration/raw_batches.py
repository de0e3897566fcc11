"""The batches of a partition as the broker has them, over a raw connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.records.batch import iter_batches
from tests.integration.raw_wire import RawConnection

if TYPE_CHECKING:
    from kafka_async.records.batch import BatchView
    from kafka_async.testing.fixtures import ClusterHandle

MOST = 1 << 25
VERSION = 12
"""The last one of Fetch that asks by a topic's name."""


def batches_of(cluster: ClusterHandle, topic: str) -> list[BatchView]:
    """Partition 0 from its beginning, as much as one answer has."""
    host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
    any_broker = RawConnection(host, int(port))
    answer = any_broker.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), VERSION)
    any_broker.close()
    [partition] = answer.topics[0].partitions
    broker = next(row for row in answer.brokers if row.node_id == partition.leader_id)
    leader = RawConnection(broker.host, broker.port)
    wanted = FetchPartition(partition=0, partition_max_bytes=MOST)
    request = FetchRequest(
        max_bytes=MOST, session_epoch=-1, topics=[FetchTopic(topic=topic, partitions=[wanted])]
    )
    [data] = leader.call(request, VERSION).responses[0].partitions
    leader.close()
    assert data.error_code == ErrorCode.NONE
    return list(iter_batches(data.records or b"", topic=topic, partition=0))
