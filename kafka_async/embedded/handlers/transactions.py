"""Producer ids and transactions: requests of producers, then descriptions (KIP-664)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.request_validation import has_only_id_or_epoch
from kafka_async.embedded.state.acls import CLUSTER_NAME, Operation, ResourceType
from kafka_async.embedded.state.topics import is_internal
from kafka_async.embedded.transactions.transaction_coordinator import fencing_error_code
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.embedded.transactions.transaction_state import TransactionState
from kafka_async.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kafka_async.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from kafka_async.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from kafka_async.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from kafka_async.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_async.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kafka_async.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_async.protocol.messages.list_transactions import TransactionState as ListedTransaction
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.embedded.transactions.transaction_coordinator import TransactionCoordinator
    from kafka_async.embedded.transactions.transaction_metadata import TransactionMetadata

INIT_FENCED_MIN_VERSION: Final = 4
PRODUCER_FENCED_MIN_VERSION: Final = 2
ADD_PARTITIONS_BATCHED_MIN_VERSION: Final = 4
EPOCH_BUMP_MIN_VERSION: Final = 5


async def init_producer_id(
    transactions: TransactionCoordinator,
    authorization: Authorization,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    """Allocate an id on any broker, or on the coordinator for a transactional id."""
    if code := _check_init(authorization, context, request.transactional_id):
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    given = (request.producer_id, request.producer_epoch)
    if has_only_id_or_epoch(*given):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=transactions.next_producer_id(), producer_epoch=0)
    expected = ProducerIdAndEpoch(*given) if given >= (0, 0) else None
    code = transactions.check_coordinator(context.broker.id, request.transactional_id)
    producer = ProducerIdAndEpoch()
    if code is ErrorCode.NONE:
        code, producer = transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    return InitProducerIdResponse(
        error_code=fencing_error_code(code, context.version >= INIT_FENCED_MIN_VERSION),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


def _check_init(
    authorization: Authorization, context: RequestContext, transactional_id: str | None
) -> ErrorCode:
    """Return the error code for a client that may not get a producer id, else NONE.

    Without transactions, WRITE on any topic is enough (KIP-679).
    """
    if transactional_id is not None:
        resource = (ResourceType.TRANSACTIONAL_ID, transactional_id)
        return authorization.code(context, Operation.WRITE, *resource)
    if authorization.allows_some_topic(context, Operation.WRITE):
        return ErrorCode.NONE
    return authorization.code(
        context, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    )


async def add_partitions_to_txn(
    transactions: TransactionCoordinator,
    topics: TopicTable,
    authorization: Authorization,
    context: RequestContext,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse:
    """Add all partitions of each transaction, or none; with `verify_only`, only check them."""
    if context.version >= ADD_PARTITIONS_BATCHED_MIN_VERSION:
        cluster = (ResourceType.CLUSTER, CLUSTER_NAME)
        if code := authorization.code(context, Operation.CLUSTER_ACTION, *cluster):
            return AddPartitionsToTxnResponse(error_code=code)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=_topic_results(
                        _add_or_verify(context, transaction, transactions, topics, authorization)
                    ),
                )
                for transaction in request.transactions
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_topic_results(
            _add_or_verify(context, only, transactions, topics, authorization)
        )
    )


def _add_or_verify(
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    transactions: TransactionCoordinator,
    topics: TopicTable,
    authorization: Authorization,
) -> Mapping[TopicPartition, ErrorCode]:
    """Add or verify the partitions of a transaction; return their error codes."""
    partitions = [
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    ]
    transactional_id = transaction.transactional_id
    denied: dict[TopicPartition, ErrorCode] = {}
    if context.version < ADD_PARTITIONS_BATCHED_MIN_VERSION:  # from a client, not from a broker
        resource = (ResourceType.TRANSACTIONAL_ID, transactional_id)
        if code := authorization.code(context, Operation.WRITE, *resource):
            return dict.fromkeys(partitions, code)
        denied = {
            tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for tp in partitions
            if is_internal(tp.topic)
            or not authorization.allows_topic(context, Operation.WRITE, tp.topic)
        }
    unknown = {tp for tp in partitions if tp not in denied and topics.partition(tp) is None}
    if denied or (unknown and not transaction.verify_only):
        return {
            tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if tp in unknown
            else denied.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED)
            for tp in partitions
        }
    producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    code = transactions.check_coordinator(context.broker.id, transactional_id)
    if code is ErrorCode.NONE and transaction.verify_only:
        return {tp: transactions.verify(transactional_id, producer, tp) for tp in partitions}
    if code is ErrorCode.NONE:
        code = transactions.add(transactional_id, producer, partitions)
    return dict.fromkeys(
        partitions, fencing_error_code(code, context.version >= PRODUCER_FENCED_MIN_VERSION)
    )


def _topic_results(
    codes: Mapping[TopicPartition, ErrorCode],
) -> list[AddPartitionsToTxnTopicResult]:
    results: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for tp, code in codes.items():
        results.setdefault(tp.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=tp.partition, partition_error_code=code
            )
        )
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows)
        for name, rows in results.items()
    ]


async def add_offsets_to_txn(
    transactions: TransactionCoordinator,
    groups: GroupCoordinator,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse:
    """Add the group's partition of the offsets topic."""
    code = transactions.check_coordinator(context.broker.id, request.transactional_id)
    if code is ErrorCode.NONE:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        code = transactions.add(
            request.transactional_id, producer, (groups.offsets.partition_for(request.group_id),)
        )
    return AddOffsetsToTxnResponse(
        error_code=fencing_error_code(code, context.version >= PRODUCER_FENCED_MIN_VERSION)
    )


async def end_txn(
    transactions: TransactionCoordinator, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    """Respond before the markers are written."""
    code = transactions.check_coordinator(context.broker.id, request.transactional_id)
    producer = ProducerIdAndEpoch()
    if code is ErrorCode.NONE:
        code, producer = transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps_epoch=context.version >= EPOCH_BUMP_MIN_VERSION,
        )
    return EndTxnResponse(
        error_code=fencing_error_code(code, context.version >= PRODUCER_FENCED_MIN_VERSION),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


async def describe_transactions(
    transactions: TransactionCoordinator,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse:
    """Describe each transactional id; errors are per id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe_transaction(context, id_, transactions, authorization)
            for id_ in request.transactional_ids
        ]
    )


def _describe_transaction(
    context: RequestContext,
    transactional_id: str,
    transactions: TransactionCoordinator,
    authorization: Authorization,
) -> DescribedTransaction:
    resource = (ResourceType.TRANSACTIONAL_ID, transactional_id)
    code = authorization.code(context, Operation.DESCRIBE, *resource)
    if code is ErrorCode.NONE:
        code = transactions.check_coordinator(context.broker.id, transactional_id)
    entry = transactions.get(transactional_id)
    if code is ErrorCode.NONE and entry is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if code is not ErrorCode.NONE or entry is None:
        return DescribedTransaction(transactional_id=transactional_id, error_code=code)
    topics: dict[str, list[int]] = {}
    for tp in sorted(entry.partitions):
        if not authorization.allows_topic(context, Operation.DESCRIBE, tp.topic):
            continue
        topics.setdefault(tp.topic, []).append(tp.partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=entry.state.value,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_start_time_ms=entry.start_time_ms,
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


async def list_transactions(
    transactions: TransactionCoordinator,
    now_ms: Callable[[], int],
    authorization: Authorization,
    context: RequestContext,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse:
    """Return the ids that match all filters, and the unknown states among the filters."""
    try:
        pattern = re.compile(request.transactional_id_pattern or "")
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    state_names = {state.value for state in TransactionState}
    now = now_ms()
    states, ids = set(request.state_filters), set(request.producer_id_filters)

    def matches(entry: TransactionMetadata) -> bool:
        return (
            (not states or entry.state.value in states)
            and (not ids or entry.producer_id in ids)
            and (request.duration_filter < 0 or now - entry.start_time_ms > request.duration_filter)
            and (not request.transactional_id_pattern or bool(pattern.fullmatch(entry.id)))
            and authorization.allows(
                context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, entry.id
            )
        )

    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - state_names),
        transaction_states=[
            ListedTransaction(
                transactional_id=entry.id,
                producer_id=entry.producer_id,
                transaction_state=entry.state.value,
            )
            for entry in transactions.coordinated_by(context.broker.id)
            if matches(entry)
        ],
    )
