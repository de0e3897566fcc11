"""AddOffsetsToTxn: adds a group's offsets to a transaction (transactions v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.transactions.requests import fencing_error_code
from kafka_async.embedded.transactions.transaction_coordinator import offsets_topic_partition
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

PRODUCER_FENCED_MIN_VERSION: Final = 2


async def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the group's partition of the offsets topic."""
    transactions = context.cluster.transactions
    code = transactions.check_coordinator(context.broker.id, request.transactional_id)
    if code is ErrorCode.NONE:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        code = transactions.add(
            request.transactional_id, producer, (offsets_topic_partition(request.group_id),)
        )
    return AddOffsetsToTxnResponse(
        error_code=fencing_error_code(code, context.version >= PRODUCER_FENCED_MIN_VERSION)
    )


ROUTE = Route(25, 0, 4, handle)
