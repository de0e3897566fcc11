"""The requests of a transaction, and the error that each answer holds: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import KafkaError, OperationNotAttemptedError, RetriableError, error_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.producer.idempotence import ProducerIdentity
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
    from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition

NEWEST_ADD_PARTITIONS = 3
"""Later versions of AddPartitionsToTxn are for brokers among themselves."""
NEWEST_END_TXN_V1 = 4
NEWEST_END_TXN_V2 = 5
NEWEST_OFFSETS_V1 = 4
NEWEST_OFFSETS_V2 = 5
"""Version 6 of TxnOffsetCommit names topics by id, and offsets may be of topics we do not know."""


def init_producer_id(
    transactional_id: str, timeout_ms: int, identity: ProducerIdentity | None
) -> InitProducerIdRequest:
    """Ask for a producer id, or with the one we have for its next epoch (KIP-360)."""
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1 if identity is None else identity.producer_id,
        producer_epoch=-1 if identity is None else identity.epoch,
    )


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Tell the coordinator which partitions the transaction will write to (before KIP-890)."""
    from kafka_async.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )

    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers)
            for name, numbers in by_topic.items()
        ],
    )


def add_offsets(
    transactional_id: str, identity: ProducerIdentity, group_id: str
) -> AddOffsetsToTxnRequest:
    """Tell the coordinator which group's offsets the transaction will commit (before KIP-890)."""
    from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdentity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Commit offsets with the transaction; the group's metadata fences zombies (KIP-447)."""
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
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id_or_member_epoch=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=rows)
            for name, rows in by_topic.items()
        ],
    )


def end(transactional_id: str, identity: ProducerIdentity, *, commit: bool) -> EndTxnRequest:
    """End the transaction; with transactions v2 the answer brings the next epoch."""
    from kafka_async.protocol.messages.end_txn import EndTxnRequest

    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )


def partitions_error(response: AddPartitionsToTxnResponse) -> KafkaError | None:
    """The error that explains why a partition was not added."""
    return _worst(
        error_for(row.partition_error_code, topic=topic.name, partition=row.partition_index)
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
        if row.partition_error_code
    )


def offsets_error(response: TxnOffsetCommitResponse) -> KafkaError | None:
    """The error that explains why an offset was not taken."""
    return _worst(
        error_for(row.error_code, topic=topic.name, partition=row.partition_index)
        for topic in response.topics
        for row in topic.partitions
        if row.error_code
    )


def code_error(response: object) -> KafkaError | None:
    """The error of an answer that has one code for all."""
    code: int = getattr(response, "error_code", 0)
    return error_for(code) if code else None


def _worst(errors: Iterable[KafkaError]) -> KafkaError | None:
    """What cannot be retried comes first; "not attempted" only says that another row failed."""
    ranked = sorted(
        errors,
        key=lambda e: (isinstance(e, OperationNotAttemptedError), isinstance(e, RetriableError)),
    )
    return ranked[0] if ranked else None
