"""Produce: batches into logs, with the checks of idempotence and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import led_partition, topic_name
from kafka_async.embedded.network import Disconnect
from kafka_async.embedded.topics import is_internal
from kafka_async.embedded.transactions.coordinator import ADDS_PARTITIONS
from kafka_async.errors import (
    InvalidProducerEpochError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    TransactionalIdAuthorizationError,
    UnsupportedCompressionTypeError,
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
from kafka_async.records.compression import Codec
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.record_rules import Rejection
    from kafka_async.records.batch import BatchHeader

ZSTD_SINCE: Final = 7
LEADER_HINTS_SINCE: Final = 10
ADMIN_CLIENT: Final = "__admin_client"
"""The client id with which Kafka's own tools may write to internal topics."""
BY_TOPIC_ID: Final = 13


async def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Where each batch went. With acks=0 there is no answer, and an error disconnects."""
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
    try:
        name = topic_name(context, topic.name, topic.topic_id, by_id=context.version >= BY_TOPIC_ID)
    except KafkaError as error:
        answer.partition_responses = [
            _refused(context, "", data, error) for data in topic.partition_data
        ]
        return answer
    answer.partition_responses = [
        _partition(context, request, name, data) for data in topic.partition_data
    ]
    return answer


def _partition(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> PartitionProduceResponse:
    try:
        return _append(context, request, topic, data)
    except KafkaError as error:
        return _refused(context, topic, data, error)


def _append(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> PartitionProduceResponse:
    if request.acks not in (-1, 0, 1):
        raise InvalidRequiredAcksError(f"acks is -1, 0 or 1, not {request.acks}")
    if is_internal(topic) and context.client_id != ADMIN_CLIENT:
        raise InvalidTopicError(f"Cannot append to internal topic {topic}")
    partition = led_partition(context, topic, data.index)
    log = partition.log
    needed = min(log.min_insync_replicas, len(partition.replicas))  # one replica is enough if alone
    if request.acks == -1 and len(partition.isr) < needed:
        raise NotEnoughReplicasError(
            f"The size of the current ISR {partition.isr} is insufficient to satisfy the min.isr "
            f"requirement of {needed} for partition {partition.tp}"
        )
    batch = log.validate(data.records)
    _check_header(context, request, partition.tp, batch.header)
    rejection = log.rules.rejection(batch, partition.tp, context.cluster.now_ms())
    if rejection is not None:
        return _rejected(data, rejection, log.start_offset)
    from_zero = batch.header.is_transactional and context.version >= ADDS_PARTITIONS
    appended = log.write(batch, context.cluster.now_ms(), from_zero=from_zero)
    if not appended.duplicate:
        partition.changed()
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=log.start_offset,
    )


def _rejected(
    data: PartitionProduceData, rejection: Rejection, log_start_offset: int
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
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


def _check_header(
    context: RequestContext, request: ProduceRequest, tp: TopicPartition, header: BatchHeader
) -> None:
    """What depends on the request's version and its transaction."""
    if header.codec is Codec.zstd and context.version < ZSTD_SINCE:
        raise UnsupportedCompressionTypeError("Produce requests before version 7 have no ZStandard")
    if not header.is_transactional:
        return
    if request.transactional_id is None:
        raise TransactionalIdAuthorizationError("a transactional batch without a transactional id")
    code = context.cluster.transactions.check_produce(
        request.transactional_id, header.producer_id, header.producer_epoch, tp, context.version
    )
    if code:
        raise error_for(code)


def _refused(
    context: RequestContext, topic: str, data: PartitionProduceData, error: KafkaError
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(
        index=data.index,
        error_code=Code.UNKNOWN_SERVER_ERROR if error.code is None else error.code,
        base_offset=-1,
        error_message=error.message,
    )
    partition = context.cluster.topics.partition(TopicPartition(topic, data.index))
    if partition is None:
        return answer
    if isinstance(error, InvalidProducerEpochError | OutOfOrderSequenceError):
        answer.log_start_offset = partition.log.start_offset
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
