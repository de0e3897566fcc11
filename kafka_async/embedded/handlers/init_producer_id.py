"""InitProducerId: an id and epoch for an idempotent or transactional producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.request_validation import has_only_id_or_epoch
from kafka_async.embedded.transactions.requests import fencing_error_code
from kafka_async.embedded.transactions.transaction_metadata import ProducerIdAndEpoch
from kafka_async.protocol.messages.init_producer_id import InitProducerIdResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

PRODUCER_FENCED_MIN_VERSION: Final = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Allocate an id on any broker, or on the coordinator for a transactional id."""
    cluster = context.cluster
    given = (request.producer_id, request.producer_epoch)
    if has_only_id_or_epoch(*given):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=cluster.next_producer_id(), producer_epoch=0)
    expected = ProducerIdAndEpoch(*given) if given >= (0, 0) else None
    code, producer = (
        cluster.transactions.check_coordinator(context.broker.id, request.transactional_id),
        ProducerIdAndEpoch(),
    )
    if code is ErrorCode.NONE:
        code, producer = cluster.transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected
        )
    return InitProducerIdResponse(
        error_code=fencing_error_code(code, context.version >= PRODUCER_FENCED_MIN_VERSION),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )


ROUTE = Route(22, 0, 5, handle)
