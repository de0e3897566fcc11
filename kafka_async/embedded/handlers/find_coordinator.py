"""FindCoordinator: the coordinator of a group or a transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafka_async.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE_GROUP = 0, 1, 2
TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""Topics that the first request for a type of coordinator creates, as in Kafka."""
BATCHED_MIN_VERSION: Final = 4


async def handle(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Return the coordinators; share groups are not supported."""
    if context.version >= BATCHED_MIN_VERSION:
        found = [_find(context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(context, request.key_type, request.key)
    # As in Kafka, these versions have an error message without an error.
    message = one.error_message if one.error_code else "NONE"
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(context: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type == SHARE_GROUP:
        return _missing(key, ErrorCode.INVALID_REQUEST, "")
    if key_type not in (GROUP, TRANSACTION):
        return _missing(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator for {key!r}")
    broker_id = context.cluster.coordinator_for(key)
    if broker_id is None:
        return _missing(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is alive")
    context.cluster.topics.create_internal_topic(TOPICS[key_type])
    broker = context.cluster.brokers[broker_id]
    return Coordinator(
        key=key,
        node_id=broker.id,
        host=broker.host,
        port=broker.port,
        error_code=ErrorCode.NONE,
    )


def _missing(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason)


ROUTE = Route(10, 0, 6, handle)
