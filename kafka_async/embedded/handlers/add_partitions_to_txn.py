"""AddPartitionsToTxn: one transaction up to version 3, later several, to add to or only verify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.requests import fencing_error_code, topic_partitions_of
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from kafka_async.types import TopicPartition

PRODUCER_FENCED_MIN_VERSION: Final = 2
BATCHED_MIN_VERSION: Final = 4


async def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all partitions of each transaction, or none; with `verify_only`, only check them."""
    if context.version >= BATCHED_MIN_VERSION:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=_verify(context, transaction)
                    if transaction.verify_only
                    else _add(
                        context,
                        transaction.transactional_id,
                        ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
                        transaction.topics,
                    ),
                )
                for transaction in request.transactions
            ]
        )
    producer = ProducerIdAndEpoch(
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_add(
            context, request.v3_and_below_transactional_id, producer, request.v3_and_below_topics
        )
    )


def _add(
    context: RequestContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Sequence[AddPartitionsToTxnTopic],
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = topic_partitions_of(topics)
    unknown = {tp for tp in partitions if context.cluster.topics.partition(tp) is None}
    if unknown:
        return _results(
            {
                tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if tp in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED
                for tp in partitions
            }
        )
    transactions = context.cluster.transactions
    code = transactions.check_coordinator(context.broker.id, transactional_id)
    if code is ErrorCode.NONE:
        code = transactions.add(transactional_id, producer, partitions)
    return _results(
        dict.fromkeys(
            partitions, fencing_error_code(code, context.version >= PRODUCER_FENCED_MIN_VERSION)
        )
    )


def _verify(
    context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    transactions = context.cluster.transactions
    code = transactions.check_coordinator(context.broker.id, transaction.transactional_id)
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    return _results(
        {
            tp: transactions.verify(transaction.transactional_id, producer, tp)
            if code is ErrorCode.NONE
            else code
            for tp in topic_partitions_of(transaction.topics)
        }
    )


def _results(codes: dict[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for tp, code in codes.items():
        topics.setdefault(tp.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=tp.partition, partition_error_code=code
            )
        )
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=results)
        for name, results in topics.items()
    ]


ROUTE = Route(24, 0, 5, handle)
