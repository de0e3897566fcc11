"""FindCoordinator: which broker speaks for a group or a transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from kafka_async.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE_GROUP = 0, 1, 2
TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
"""The topic that the first request for a kind of coordinator creates, as in Kafka."""
ASKS_FOR_MANY: Final = 4


async def handle(
    context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Answers at once; share groups have no coordinator here."""
    if context.version >= ASKS_FOR_MANY:
        found = [_find(context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _find(context, request.key_type, request.key)
    # Kafka names the error of these versions even where there is none.
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
        return _missing(key, Code.INVALID_REQUEST, "")
    if key_type not in (GROUP, TRANSACTION):
        return _missing(key, Code.INVALID_REQUEST, f"there is no coordinator for {key!r}")
    broker_id = context.cluster.coordinator_for(key)
    if broker_id is None:
        return _missing(key, Code.COORDINATOR_NOT_AVAILABLE, "no broker is alive")
    context.cluster.topics.create_internal(TOPICS[key_type])
    broker = context.cluster.brokers[broker_id]
    return Coordinator(
        key=key,
        node_id=broker.id,
        host=broker.host,
        port=broker.port,
        error_code=Code.NONE,
    )


def _missing(key: str, code: Code, reason: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason)


ROUTE = Route(10, 0, 6, handle)
