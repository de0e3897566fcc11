"""Builds the requests of a transaction, and finds the errors in its responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.client.wire.requested_rows import requested_rows
from kafka_async.client.wire.topic_ids import max_version_for
from kafka_async.errors import (
    KafkaError,
    OperationNotAttemptedError,
    RetriableError,
    TransactionalIdAuthorizationError,
    error_for,
)
from kafka_async.protocol.wire import ZERO_UUID
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from kafka_async.producer.idempotence import ProducerIdAndEpoch
    from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from kafka_async.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from kafka_async.protocol.messages.end_txn import EndTxnRequest
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
    from kafka_async.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )
    from kafka_async.types import GroupMetadata, OffsetAndMetadata

MAX_ADD_PARTITIONS_VERSION = 3
"""Later versions of AddPartitionsToTxn are for requests between brokers."""
# Version 5 of EndTxn and TxnOffsetCommit stand for transactions v2 (KIP-890), so each protocol has
# its own upper limit.
MAX_END_TXN_VERSION_V1 = 4
MAX_END_TXN_VERSION_V2 = 5
MAX_OFFSETS_VERSION_V1 = 4


def init_producer_id(
    transactional_id: str, timeout_ms: int, id_and_epoch: ProducerIdAndEpoch | None
) -> InitProducerIdRequest:
    """Build an InitProducerId request: for an id, or the next epoch of a given one (KIP-360)."""
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1 if id_and_epoch is None else id_and_epoch.producer_id,
        producer_epoch=-1 if id_and_epoch is None else id_and_epoch.epoch,
    )


def add_partitions_to_txn(
    transactional_id: str, id_and_epoch: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Build an AddPartitionsToTxn request; before KIP-890 it precedes a partition's first write."""
    from kafka_async.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )

    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=id_and_epoch.producer_id,
        v3_and_below_producer_epoch=id_and_epoch.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in by_topic.items()
        ],
    )


def add_offsets_to_txn(
    transactional_id: str, id_and_epoch: ProducerIdAndEpoch, group_id: str
) -> AddOffsetsToTxnRequest:
    """Build an AddOffsetsToTxn request for the offsets of a group (before KIP-890)."""
    from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=id_and_epoch.producer_id,
        producer_epoch=id_and_epoch.epoch,
        group_id=group_id,
    )


def commit_txn_offsets(
    transactional_id: str,
    id_and_epoch: ProducerIdAndEpoch,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[str, UUID],
) -> TxnOffsetCommitRequest:
    """Build a TxnOffsetCommit request; the group's metadata in it fences zombies (KIP-447).

    Its topics have their ids where these are known (KIP-1319).
    """
    from kafka_async.protocol.messages import txn_offset_commit

    by_topic: dict[str, list[txn_offset_commit.TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), position in offsets.items():
        row = txn_offset_commit.TxnOffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=position.offset,
            committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
            committed_metadata=position.metadata,
        )
        by_topic.setdefault(topic, []).append(row)
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=id_and_epoch.producer_id,
        producer_epoch=id_and_epoch.epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=name, topic_id=topic_ids.get(name, ZERO_UUID), partitions=rows
            )
            for name, rows in by_topic.items()
        ],
    )


def max_offsets_version(request: TxnOffsetCommitRequest, *, v2: bool) -> int | None:
    """Return the upper limit for the version of a TxnOffsetCommit request, or None."""
    # Version 5 would make the coordinator add the group to the transaction itself.
    if not v2:
        return MAX_OFFSETS_VERSION_V1
    return max_version_for(request.API_KEY, [topic.topic_id for topic in request.topics])


def end_txn(
    transactional_id: str, id_and_epoch: ProducerIdAndEpoch, *, commit: bool
) -> EndTxnRequest:
    """Build an EndTxn request; with transactions v2 the response contains the next epoch."""
    from kafka_async.protocol.messages.end_txn import EndTxnRequest

    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=id_and_epoch.producer_id,
        producer_epoch=id_and_epoch.epoch,
        committed=commit,
    )


def partitions_error(
    partitions: Iterable[TopicPartition], response: AddPartitionsToTxnResponse
) -> KafkaError | None:
    """Return the error of the first requested partition that was not added, or None."""
    rows = {
        TopicPartition(topic.name, row.partition_index): row.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    return _worst_of(requested_rows(partitions, rows), lambda _: "WRITE")


def offsets_error(
    partitions: Iterable[TopicPartition],
    topic_ids: Mapping[str, UUID],
    response: TxnOffsetCommitResponse,
) -> KafkaError | None:
    """Return the error of the first requested offset that was not accepted, or None."""
    # Versions with topic ids leave the name empty.
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    rows = {
        TopicPartition(
            topic.name or names.get(topic.topic_id, ""), row.partition_index
        ): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }
    return _worst_of(requested_rows(partitions, rows), _needs)


def code_error(response: object) -> KafkaError | None:
    """Return the error of a response with a single error code."""
    code: int = getattr(response, "error_code", 0)
    return error_for(code, needs=_needs(code)) if code else None


def _needs(code: int) -> str:
    """Return the operation that the principal of a request with offsets is not authorized for."""
    return "WRITE" if code == TransactionalIdAuthorizationError.code else "READ"


def _worst_of(
    codes: Mapping[TopicPartition, int | KafkaError], needs: Callable[[int], str]
) -> KafkaError | None:
    """Return the most important error: one that is not retriable, "not attempted" last; or None."""
    errors = [
        code
        if isinstance(code, KafkaError)
        else error_for(
            code, topic=partition.topic, partition=partition.partition, needs=needs(code)
        )
        for partition, code in codes.items()
        if code
    ]
    # Partitions that were not attempted are a consequence of another partition's error.
    ranked = sorted(
        errors,
        key=lambda e: (isinstance(e, OperationNotAttemptedError), isinstance(e, RetriableError)),
    )
    return ranked[0] if ranked else None
