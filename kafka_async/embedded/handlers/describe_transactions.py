"""DescribeTransactions: the state of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.describe_transactions import DescribeTransactionsRequest


async def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id; errors are per id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, id_) for id_ in request.transactional_ids]
    )


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    transactions = context.cluster.transactions
    code = transactions.check_coordinator(context.broker.id, transactional_id)
    entry = transactions.get(transactional_id)
    if code is ErrorCode.NONE and entry is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if code is not ErrorCode.NONE or entry is None:
        return TransactionState(transactional_id=transactional_id, error_code=code)
    topics: dict[str, list[int]] = {}
    for tp in sorted(entry.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=entry.state.value,
        transaction_timeout_ms=entry.timeout_ms,
        transaction_start_time_ms=entry.start_time_ms,
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


ROUTE = Route(65, 0, 0, handle)
