"""Produce: batches into logs, with the checks of idempotence and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code, code_of
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import led_partition, topic_name
from kafka_async.embedded.network import Disconnect
from kafka_async.embedded.refusal import Refusal
from kafka_async.embedded.request_validation import (
    VALID_ACKS,
    lacks_transactional_id,
    producer_batch,
    validate_batch,
)
from kafka_async.embedded.topics import is_internal
from kafka_async.embedded.transactions.coordinator import ADDS_PARTITIONS
from kafka_async.errors import (
    CorruptRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_async.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_async.records.batch import NO_PRODUCER_ID
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.partition import Partition
    from kafka_async.embedded.record_rules import Rejection
    from kafka_async.records.batch import BatchHeader, BatchView

LEADER_HINTS_SINCE: Final = 10
ADMIN_CLIENT: Final = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""
BY_TOPIC_ID: Final = 13


async def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Return where each batch went. With acks=0 there is no response; an error disconnects."""
    if lacks_transactional_id(request):
        refusal = Refusal(context, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        response = refusal.whole(request) or ProduceResponse()
    else:
        response = ProduceResponse(
            responses=[_topic(context, request, topic) for topic in request.topic_data]
        )
    if request.acks == 0:
        _disconnect_on_error(response)
        return None
    if context.version >= LEADER_HINTS_SINCE:
        response.node_endpoints = _endpoints(context, response)
    return response


def _topic(
    context: RequestContext, request: ProduceRequest, topic: TopicProduceData
) -> TopicProduceResponse:
    answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
    rows = {data.index: data for data in topic.partition_data}.values()  # the last of twins counts
    try:
        name = topic_name(context, topic.name, topic.topic_id, by_id=context.version >= BY_TOPIC_ID)
    except KafkaError as error:
        answer.partition_responses = [_refused(context, "", data, error) for data in rows]
        return answer
    answer.partition_responses = [_partition(context, request, name, data) for data in rows]
    return answer


def _partition(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> PartitionProduceResponse:
    try:
        partition, batch = _admitted(context, request, topic, data)
    except (CorruptRecordError, InvalidTxnStateError) as error:
        return _refused(context, topic, data, error, error.message)
    except KafkaError as error:
        return _refused(context, topic, data, error)
    try:
        _check_replicas(request, partition)
        partition.log.check_bytes(batch)
    except KafkaError as error:
        return _refused(context, topic, data, error)
    try:
        return _write(context, partition, batch, data.index)
    except KafkaError as error:
        refused = _refused(context, topic, data, error)
        refused.log_start_offset = partition.log.start_offset
        return refused


def _admitted(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> tuple[Partition, BatchView]:
    """Return the partition and the batch, unless the request or its transaction forbids it."""
    tp = TopicPartition(topic, data.index)
    if context.cluster.topics.partition(tp) is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    batch = producer_batch(data.records, context.version)
    if request.acks not in VALID_ACKS:
        raise InvalidRequiredAcksError(f"acks is -1, 0 or 1, not {request.acks}")
    if is_internal(topic) and context.client_id != ADMIN_CLIENT:
        raise InvalidTopicError(f"Cannot append to internal topic {topic}")
    partition = led_partition(context, topic, data.index)
    _check_transaction(context, request, tp, batch.header)
    return partition, batch


def _check_replicas(request: ProduceRequest, partition: Partition) -> None:
    """Raise NotEnoughReplicasError if acks=all asks for more in-sync replicas than there are."""
    needed = partition.log.min_insync_replicas
    needed = min(needed, len(partition.replicas))  # one replica is enough if alone
    if request.acks == -1 and len(partition.isr) < needed:
        raise NotEnoughReplicasError(
            f"The size of the current ISR {partition.isr} is insufficient to satisfy the min.isr "
            f"requirement of {needed} for partition {partition.tp}"
        )


def _write(
    context: RequestContext, partition: Partition, batch: BatchView, index: int
) -> PartitionProduceResponse:
    """Write a batch to the log, which may refuse it."""
    log = partition.log
    validate_batch(batch)
    rejection = log.rules.rejection(batch, partition.tp, context.cluster.now_ms())
    if rejection is not None:
        return _rejected(index, rejection, log.start_offset)
    from_zero = batch.header.is_transactional and context.version >= ADDS_PARTITIONS
    appended = log.write(batch, context.cluster.now_ms(), from_zero=from_zero)
    if not appended.duplicate:
        partition.changed()
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=log.start_offset,
    )


def _rejected(index: int, rejection: Rejection, log_start_offset: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=rejection.code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(
                batch_index=error.batch_index, batch_index_error_message=error.message
            )
            for error in rejection.errors
        ],
        error_message=rejection.message,
    )


def _check_transaction(
    context: RequestContext, request: ProduceRequest, tp: TopicPartition, header: BatchHeader
) -> None:
    """Raise what forbids a transactional batch in its transaction."""
    if not header.is_transactional or header.producer_id == NO_PRODUCER_ID:
        return
    assert request.transactional_id is not None  # else the whole request was refused
    code = context.cluster.transactions.check_produce(
        request.transactional_id, header.producer_id, header.producer_epoch, tp, context.version
    )
    if code:
        raise error_for(code)


def _refused(
    context: RequestContext,
    topic: str,
    data: PartitionProduceData,
    error: KafkaError,
    message: str | None = None,
) -> PartitionProduceResponse:
    """Return the response to a refused batch; Kafka explains few errors with a message."""
    answer = PartitionProduceResponse(
        index=data.index,
        error_code=code_of(error),
        base_offset=-1,
        error_message=message,
    )
    partition = context.cluster.topics.partition(TopicPartition(topic, data.index))
    if partition is None:
        return answer
    if isinstance(error, NotLeaderOrFollowerError) and context.version >= LEADER_HINTS_SINCE:
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return answer


def _endpoints(context: RequestContext, response: ProduceResponse) -> list[NodeEndpoint]:
    """The addresses of the leaders that were hinted at (KIP-951)."""
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
    }
    return [
        NodeEndpoint(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in context.cluster.brokers.values()
        if broker.id in leaders and broker.alive
    ]


def _disconnect_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise Disconnect(f"acks=0, and error {partition.error_code} for {topic.name}")


# Versions 0 to 2 are named though they are refused: librdkafka before 2.11 would otherwise write
# batches without compression (KIP-896).
ROUTE = Route(0, 3, 13, handle, advertised=0)
