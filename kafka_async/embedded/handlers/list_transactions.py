"""ListTransactions: the transactional ids of this broker (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.transaction_state import TransactionState as State
from kafka_async.protocol.messages.list_transactions import (
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.transactions.transaction_metadata import TransactionMetadata
    from kafka_async.protocol.messages.list_transactions import ListTransactionsRequest


async def handle(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Return the ids that match all filters, and the unknown states among the filters."""
    try:
        pattern = re.compile(request.transactional_id_pattern or "")
    except re.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    state_names = {state.value for state in State}
    now = context.cluster.now_ms()
    states, ids = set(request.state_filters), set(request.producer_id_filters)

    def matches(entry: TransactionMetadata) -> bool:
        return (
            (not states or entry.state.value in states)
            and (not ids or entry.producer_id in ids)
            and (request.duration_filter < 0 or now - entry.start_time_ms > request.duration_filter)
            and (not request.transactional_id_pattern or bool(pattern.fullmatch(entry.id)))
        )

    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - state_names),
        transaction_states=[
            TransactionState(
                transactional_id=entry.id,
                producer_id=entry.producer_id,
                transaction_state=entry.state.value,
            )
            for entry in context.cluster.transactions.coordinated_by(context.broker.id)
            if matches(entry)
        ],
    )


ROUTE = Route(66, 0, 2, handle)
