"""Messages of the wire benchmark, in sizes as in busy clients; always the same ones."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_async.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from kafka_async.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kafka_async.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.protocol.message import Message

BROKERS = 3
_RECORDS = random.Random(4).randbytes(4096)


@dataclass(frozen=True)
class Subject:
    """A message to encode and decode; each version omits the fields that it does not have.

    Attributes:
        title: the message and its size.
        make: returns the message with a number of elements in its main array, at least 1.
        size: that number in the steady state.
        newest: the version of current brokers, with compact lengths and tagged fields.
        classic: the newest version that aiokafka supports, without these.
    """

    title: str
    make: Callable[[int], Message]
    size: int
    newest: int
    classic: int


def metadata(topics: int, partitions: int = 10) -> MetadataResponse:
    """Return metadata of `topics` topics on three brokers."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=n, host=f"broker-{n}.internal", port=9092, rack=f"z{n}")
            for n in range(BROKERS)
        ],
        cluster_id="4L6g3nShT-eMCtK--X86sw",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"service.events-{number}",
                topic_id=uuid.UUID(int=number + 1),
                partitions=[_metadata_partition(number, index) for index in range(partitions)],
            )
            for number in range(topics)
        ],
    )


def _metadata_partition(topic: int, index: int) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=(topic + index) % BROKERS,
        leader_epoch=topic,
        replica_nodes=(0, 1, 2),
        isr_nodes=(0, 1, 2),
    )


def fetch(partitions: int) -> FetchResponse:
    """Return a read_committed response with 4 KiB for each of `partitions` partitions."""
    topic = FetchableTopicResponse(
        topic="service.events",
        topic_id=uuid.UUID(int=7),
        partitions=[_fetched(index) for index in range(partitions)],
    )
    return FetchResponse(session_id=1234, responses=[topic])


def _fetched(index: int) -> PartitionData:
    aborted = [AbortedTransaction(producer_id=index + 1, first_offset=900)]
    return PartitionData(
        partition_index=index,
        high_watermark=1_000_000 + index,
        last_stable_offset=1_000_000,
        log_start_offset=0,
        aborted_transactions=aborted if index % 10 == 0 else [],
        preferred_read_replica=-1,
        records=_RECORDS,
    )


def produce(partitions: int) -> ProduceRequest:
    """Return a request with a batch of 4 KiB for each of `partitions` partitions of a topic."""
    data = [PartitionProduceData(index=index, records=_RECORDS) for index in range(partitions)]
    topic = TopicProduceData(name="service.events", topic_id=uuid.UUID(int=7), partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def offset_commit(partitions: int) -> OffsetCommitRequest:
    """Return a request with offsets of `partitions` partitions, ten per topic."""
    per_topic = min(partitions, 10)
    return OffsetCommitRequest(
        group_id="billing",
        generation_id_or_member_epoch=12,
        member_id="billing-1-6a1c9f3e-7f0e-4f51-8a55-0d0d5b0c3a77",
        topics=[
            OffsetCommitRequestTopic(
                name=f"service.events-{number}",
                topic_id=uuid.UUID(int=number + 1),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=number * 1_000_000 + index,
                        committed_leader_epoch=5,
                        committed_metadata="",
                    )
                    for index in range(per_topic)
                ],
            )
            for number in range(partitions // per_topic)
        ],
    )


def join_group(members: int) -> JoinGroupResponse:
    """Return the response to the leader of a group of `members` members."""
    joined = [
        JoinGroupResponseMember(
            member_id=f"billing-{number}-{uuid.UUID(int=number)}",
            group_instance_id=f"billing-{number}" if number % 2 else None,
            metadata=_RECORDS[:80],
        )
        for number in range(members)
    ]
    return JoinGroupResponse(
        generation_id=12,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader=joined[0].member_id,
        member_id=joined[0].member_id,
        members=joined,
    )


SUBJECTS = {
    "metadata": Subject("Metadata response, 1,000 topics x 10 partitions", metadata, 1000, 13, 5),
    "fetch": Subject("Fetch response, 100 partitions x 4 KiB", fetch, 100, 18, 11),
    "produce": Subject("Produce request, 100 partitions x 4 KiB", produce, 100, 13, 8),
    "offset_commit": Subject("OffsetCommit request, 1,000 partitions", offset_commit, 1000, 10, 3),
    "join_group": Subject("JoinGroup response, 500 members", join_group, 500, 9, 5),
}
"""Subjects by the name of their API's module."""
