"""AddOffsetsToTxn: the transaction will commit offsets of a group (transactions v1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.transactions.coordinator import offsets_of
from kafka_async.embedded.transactions.entry import ProducerIdAndEpoch
from kafka_async.embedded.transactions.wire import fenced
from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest

KNOWS_FENCED: Final = 2


async def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Adds the partition that holds the group's offsets."""
    transactions = context.cluster.transactions
    code = transactions.route(context.broker.id, request.transactional_id)
    if code is Code.NONE:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        code = transactions.add(request.transactional_id, producer, (offsets_of(request.group_id),))
    return AddOffsetsToTxnResponse(error_code=fenced(code, context.version >= KNOWS_FENCED))


ROUTE = Route(25, 0, 4, handle)
