"""EndTxn: commit or abort; from version 5 on the answer holds the next epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.transactions.entry import ProducerIdAndEpoch
from kafka_async.embedded.transactions.wire import fenced
from kafka_async.protocol.messages.end_txn import EndTxnResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.end_txn import EndTxnRequest

KNOWS_FENCED: Final = 2
BUMPS_EPOCH: Final = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Answers once the outcome is decided, before the markers are written."""
    transactions = context.cluster.transactions
    code = transactions.route(context.broker.id, request.transactional_id)
    producer = ProducerIdAndEpoch()
    if code is Code.NONE:
        code, producer = transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bumps=context.version >= BUMPS_EPOCH,
        )
    return EndTxnResponse(
        error_code=fenced(code, context.version >= KNOWS_FENCED),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


ROUTE = Route(26, 0, 5, handle)
