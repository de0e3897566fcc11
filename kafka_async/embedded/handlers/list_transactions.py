"""ListTransactions: the transactional ids of this broker (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.transactions.state import TransactionState as State
from kafka_async.protocol.messages.list_transactions import (
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.transactions.entry import TransactionEntry
    from kafka_async.protocol.messages.list_transactions import ListTransactionsRequest


async def handle(
    context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Filters are combined; one that names no state that there is is told back."""
    try:
        pattern = re.compile(request.transactional_id_pattern or "")
    except re.error:
        return ListTransactionsResponse(error_code=Code.INVALID_REGULAR_EXPRESSION)
    known = {state.value for state in State}
    now = context.cluster.now_ms()
    states, ids = set(request.state_filters), set(request.producer_id_filters)

    def wanted(entry: TransactionEntry) -> bool:
        return (
            (not states or entry.state.value in states)
            and (not ids or entry.producer_id in ids)
            and (request.duration_filter < 0 or now - entry.started > request.duration_filter)
            and (not request.transactional_id_pattern or bool(pattern.fullmatch(entry.id)))
        )

    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - known),
        transaction_states=[
            TransactionState(
                transactional_id=entry.id,
                producer_id=entry.producer_id,
                transaction_state=entry.state.value,
            )
            for entry in context.cluster.transactions.at(context.broker.id)
            if wanted(entry)
        ],
    )


ROUTE = Route(66, 0, 2, handle)
