"""Produce: appends batches to logs, with the checks for idempotence and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.error_responses import ErrorResponseBuilder
from kafka_async.embedded.handlers.partition_lookup import leader_partition, topic_name
from kafka_async.embedded.network import Disconnect
from kafka_async.embedded.request_validation import (
    VALID_ACKS,
    lacks_transactional_id,
    require_single_batch,
    validate_batch,
)
from kafka_async.embedded.topics import is_internal
from kafka_async.embedded.transactions.transaction_coordinator import IMPLICIT_ADD_MIN_VERSION
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
    from kafka_async.embedded.record_validator import BatchRejection
    from kafka_async.records.batch import BatchHeader, BatchView

LEADER_HINTS_MIN_VERSION: Final = 10
ADMIN_CLIENT: Final = "__admin_client"
"""Client id of Kafka's tools, which may write to internal topics."""
TOPIC_ID_MIN_VERSION: Final = 13


async def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Append each batch. With acks=0 there is no response, and an error resets the connection."""
    if lacks_transactional_id(request):
        errors = ErrorResponseBuilder(context, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        response = errors.build(request) or ProduceResponse()
    else:
        response = ProduceResponse(
            responses=[_topic(context, request, topic) for topic in request.topic_data]
        )
    if request.acks == 0:
        _disconnect_on_error(response)
        return None
    if context.version >= LEADER_HINTS_MIN_VERSION:
        response.node_endpoints = _endpoints(context, response)
    return response


def _topic(
    context: RequestContext, request: ProduceRequest, topic: TopicProduceData
) -> TopicProduceResponse:
    response = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
    # As in Kafka, the last one of duplicate partitions counts.
    partitions = {data.index: data for data in topic.partition_data}.values()
    try:
        name = topic_name(
            context, topic.name, topic.topic_id, by_id=context.version >= TOPIC_ID_MIN_VERSION
        )
    except KafkaError as error:
        response.partition_responses = [
            _error_response(context, "", data, error) for data in partitions
        ]
        return response
    response.partition_responses = [_partition(context, request, name, data) for data in partitions]
    return response


def _partition(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> PartitionProduceResponse:
    try:
        partition, batch = _validate(context, request, topic, data)
    except (CorruptRecordError, InvalidTxnStateError) as error:
        return _error_response(context, topic, data, error, error.message)
    except KafkaError as error:
        return _error_response(context, topic, data, error)
    try:
        _check_min_insync_replicas(request, partition)
        partition.log.validate_size_and_crc(batch)
    except KafkaError as error:
        return _error_response(context, topic, data, error)
    try:
        return _append(context, partition, batch, data.index)
    except KafkaError as error:
        error_response = _error_response(context, topic, data, error)
        error_response.log_start_offset = partition.log.start_offset
        return error_response


def _validate(
    context: RequestContext, request: ProduceRequest, topic: str, data: PartitionProduceData
) -> tuple[Partition, BatchView]:
    """Return the partition and the batch, if the request and its transaction are valid."""
    tp = TopicPartition(topic, data.index)
    if context.cluster.topics.partition(tp) is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    batch = require_single_batch(data.records, context.version)
    if request.acks not in VALID_ACKS:
        raise InvalidRequiredAcksError(f"acks must be -1, 0 or 1, not {request.acks}")
    if is_internal(topic) and context.client_id != ADMIN_CLIENT:
        raise InvalidTopicError(f"Cannot append to internal topic {topic}")
    partition = leader_partition(context, topic, data.index)
    _check_transaction(context, request, tp, batch.header)
    return partition, batch


def _check_min_insync_replicas(request: ProduceRequest, partition: Partition) -> None:
    """Raise NotEnoughReplicasError if acks=all requires more in-sync replicas."""
    min_isr = partition.log.min_insync_replicas
    min_isr = min(min_isr, len(partition.replicas))  # a topic may have fewer replicas
    if request.acks == -1 and len(partition.isr) < min_isr:
        raise NotEnoughReplicasError(
            f"The size of the current ISR {partition.isr} is insufficient to satisfy the min.isr "
            f"requirement of {min_isr} for partition {partition.tp}"
        )


def _append(
    context: RequestContext, partition: Partition, batch: BatchView, index: int
) -> PartitionProduceResponse:
    """Validate the records and append the batch."""
    log = partition.log
    validate_batch(batch)
    rejection = log.record_validator.validate(batch, partition.tp, context.cluster.now_ms())
    if rejection is not None:
        return _rejection_response(index, rejection, log.start_offset)
    requires_zero_sequence = (
        batch.header.is_transactional and context.version >= IMPLICIT_ADD_MIN_VERSION
    )
    info = log.write(batch, context.cluster.now_ms(), requires_zero_sequence=requires_zero_sequence)
    if not info.duplicate:
        partition.notify_listeners()
    return PartitionProduceResponse(
        index=index,
        base_offset=info.base_offset,
        log_append_time_ms=info.append_time,
        log_start_offset=log.start_offset,
    )


def _rejection_response(
    index: int, rejection: BatchRejection, log_start_offset: int
) -> PartitionProduceResponse:
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
    """Raise an error unless a transactional batch belongs to a transaction."""
    if not header.is_transactional or header.producer_id == NO_PRODUCER_ID:
        return
    assert request.transactional_id is not None  # validated for the whole request
    code = context.cluster.transactions.check_produce(
        request.transactional_id, header.producer_id, header.producer_epoch, tp, context.version
    )
    if code:
        raise error_for(code)


def _error_response(
    context: RequestContext,
    topic: str,
    data: PartitionProduceData,
    error: KafkaError,
    message: str | None = None,
) -> PartitionProduceResponse:
    """Return an error response; as in Kafka, few errors have a message."""
    response = PartitionProduceResponse(
        index=data.index,
        error_code=error_code_of(error),
        base_offset=-1,
        error_message=message,
    )
    partition = context.cluster.topics.partition(TopicPartition(topic, data.index))
    if partition is None:
        return response
    if isinstance(error, NotLeaderOrFollowerError) and context.version >= LEADER_HINTS_MIN_VERSION:
        response.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return response


def _endpoints(context: RequestContext, response: ProduceResponse) -> list[NodeEndpoint]:
    """Return the addresses of the leaders in the response (KIP-951)."""
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
                raise Disconnect(f"error {partition.error_code} for {topic.name} with acks=0")


# Versions 0 to 2 are advertised but not supported: otherwise librdkafka before 2.11 would not
# compress batches (KIP-896).
ROUTE = Route(0, 3, 13, handle, advertised=0)
