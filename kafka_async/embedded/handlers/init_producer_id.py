"""InitProducerId: an id and an epoch for an idempotent or a transactional producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.request_validation import has_only_id_or_epoch
from kafka_async.embedded.transactions.entry import ProducerIdAndEpoch
from kafka_async.embedded.transactions.wire import fenced
from kafka_async.protocol.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

KNOWS_FENCED: Final = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Any broker gives ids to idempotent producers; a transactional id has its coordinator."""
    cluster = context.cluster
    given = (request.producer_id, request.producer_epoch)
    if has_only_id_or_epoch(*given):
        return InitProducerIdResponse(error_code=Code.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=cluster.next_producer_id(), producer_epoch=0)
    expected = ProducerIdAndEpoch(*given) if given >= (0, 0) else None
    code, producer = (
        cluster.transactions.route(context.broker.id, request.transactional_id),
        ProducerIdAndEpoch(),
    )
    if code is Code.NONE:
        code, producer = cluster.transactions.initialize(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    return InitProducerIdResponse(
        error_code=fenced(code, context.version >= KNOWS_FENCED),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


ROUTE = Route(22, 0, 5, handle)
