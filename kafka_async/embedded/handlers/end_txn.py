"""EndTxn: commits or aborts; from version 5 on it returns the next epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.requests import fencing_error_code
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.protocol.messages.end_txn import EndTxnResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.end_txn import EndTxnRequest

PRODUCER_FENCED_MIN_VERSION: Final = 2
EPOCH_BUMP_MIN_VERSION: Final = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Respond before the markers are written."""
    transactions = context.cluster.transactions
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


ROUTE = Route(26, 0, 5, handle)
