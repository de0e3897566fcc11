"""Produce: appends batches to logs, with the checks for idempotence and transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.request_validation import (
    VALID_ACKS,
    has_transactional_batches,
    require_single_batch,
    validate_batch,
)
from kafka_async.embedded.requests.context import Disconnect
from kafka_async.embedded.requests.error_responses import error_response
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.embedded.state.topics import is_internal
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
    from collections.abc import Callable

    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.partition import Partition
    from kafka_async.embedded.state.record_validator import BatchRejection
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.embedded.transactions.transaction_coordinator import TransactionCoordinator
    from kafka_async.records.batch import BatchHeader, BatchView

LEADER_HINTS_MIN_VERSION: Final = 10
ADMIN_CLIENT: Final = "__admin_client"
"""Client id of Kafka's tools, which may write to internal topics."""
TOPIC_ID_MIN_VERSION: Final = 13


async def handle(
    topics: TopicTable,
    transactions: TransactionCoordinator,
    brokers: Brokers,
    now_ms: Callable[[], int],
    authorization: Authorization,
    context: RequestContext,
    request: ProduceRequest,
) -> ProduceResponse | None:
    """Append each batch. With acks=0, send no response; an error resets the connection."""
    if not _allows_transaction(authorization, context, request):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        response = error_response(context, code, request) or ProduceResponse()
    else:
        append = _Append(context, request, topics, transactions, now_ms, authorization)
        response = ProduceResponse(responses=[append.topic(topic) for topic in request.topic_data])
    if request.acks == 0:
        _disconnect_on_error(response)
        return None
    if context.version >= LEADER_HINTS_MIN_VERSION:
        leaders = {
            partition.current_leader.leader_id
            for topic in response.responses
            for partition in topic.partition_responses
        }
        endpoints = brokers.endpoints(leaders, context.listener)
        response.node_endpoints = [NodeEndpoint(**each) for each in endpoints]
    return response


def _allows_transaction(
    authorization: Authorization, context: RequestContext, request: ProduceRequest
) -> bool:
    """Return whether a client may write the transactional batches of a request."""
    id_ = request.transactional_id
    if id_ is None:
        return not has_transactional_batches(request)
    return authorization.allows(
        context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, id_
    ) or not has_transactional_batches(request)


@dataclass(frozen=True, slots=True)
class _Append:
    """Appends the batches of one request."""

    context: RequestContext
    request: ProduceRequest
    topics: TopicTable
    transactions: TransactionCoordinator
    now_ms: Callable[[], int]
    authorization: Authorization

    def topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        """Append the batches of a topic."""
        response = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        # As in Kafka, the last of duplicate partitions counts.
        partitions = {data.index: data for data in topic.partition_data}.values()
        by_id = self.context.version >= TOPIC_ID_MIN_VERSION
        try:
            name = self.topics.resolve_name(topic.name, topic.topic_id, by_id=by_id)
            self.authorization.require_topic(self.context, Operation.WRITE, name)
        except KafkaError as error:
            response.partition_responses = [
                self._error_response(TopicPartition("", data.index), error) for data in partitions
            ]
            return response
        response.partition_responses = [
            self._partition(TopicPartition(name, data.index), data) for data in partitions
        ]
        return response

    def _partition(
        self, tp: TopicPartition, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        try:
            partition, batch = self._validate(tp, data)
        except (CorruptRecordError, InvalidTxnStateError) as error:
            return self._error_response(tp, error, error.message)
        except KafkaError as error:
            return self._error_response(tp, error)
        try:
            self._check_min_insync_replicas(partition)
            partition.log.validate_size_and_crc(batch)
        except KafkaError as error:
            return self._error_response(tp, error)
        try:
            return self._append(partition, batch)
        except KafkaError as error:
            response = self._error_response(tp, error)
            response.log_start_offset = partition.log.start_offset
            return response

    def _validate(
        self, tp: TopicPartition, data: PartitionProduceData
    ) -> tuple[Partition, BatchView]:
        """Return the partition and the batch, if the request and its transaction are valid."""
        if self.topics.partition(tp) is None:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        batch = require_single_batch(data.records, self.context.version)
        if self.request.acks not in VALID_ACKS:
            raise InvalidRequiredAcksError(f"acks must be -1, 0 or 1, not {self.request.acks}")
        if is_internal(tp.topic) and self.context.client_id != ADMIN_CLIENT:
            raise InvalidTopicError(f"Cannot append to internal topic {tp.topic}")
        partition = self.topics.leader_partition(self.context.broker.id, tp)
        self._check_transaction(tp, batch.header)
        return partition, batch

    def _check_transaction(self, tp: TopicPartition, header: BatchHeader) -> None:
        """Raise an error unless a transactional batch belongs to a transaction."""
        if not header.is_transactional or header.producer_id == NO_PRODUCER_ID:
            return
        assert self.request.transactional_id is not None  # already validated for the whole request
        code = self.transactions.check_produce(
            self.request.transactional_id,
            header.producer_id,
            header.producer_epoch,
            tp,
            self.context.version,
        )
        if code:
            raise error_for(code)

    def _check_min_insync_replicas(self, partition: Partition) -> None:
        """Raise NotEnoughReplicasError if acks=all requires more in-sync replicas."""
        min_isr = partition.log.min_insync_replicas
        min_isr = min(min_isr, len(partition.replicas))  # if there are fewer replicas
        if self.request.acks == -1 and len(partition.isr) < min_isr:
            raise NotEnoughReplicasError(
                f"The size of the current ISR {partition.isr} is insufficient to satisfy the "
                f"min.isr requirement of {min_isr} for partition {partition.tp}"
            )

    def _append(self, partition: Partition, batch: BatchView) -> PartitionProduceResponse:
        """Validate the records and append the batch."""
        log, now = partition.log, self.now_ms()
        validate_batch(batch)
        rejection = log.record_validator.validate(batch, partition.tp, now)
        if rejection is not None:
            return _rejection_response(partition.index, rejection, log.start_offset)
        requires_zero_sequence = (
            batch.header.is_transactional and self.context.version >= IMPLICIT_ADD_MIN_VERSION
        )
        info = log.write(batch, now, requires_zero_sequence=requires_zero_sequence)
        if not info.duplicate:
            partition.notify_listeners()
        return PartitionProduceResponse(
            index=partition.index,
            base_offset=info.base_offset,
            log_append_time_ms=info.append_time,
            log_start_offset=log.start_offset,
        )

    def _error_response(
        self, tp: TopicPartition, error: KafkaError, message: str | None = None
    ) -> PartitionProduceResponse:
        """Return an error response; as in Kafka, only a few errors have a message."""
        response = PartitionProduceResponse(
            index=tp.partition,
            error_code=error_code_of(error),
            base_offset=-1,
            error_message=message,
        )
        partition = self.topics.partition(tp)
        if (
            partition is not None
            and isinstance(error, NotLeaderOrFollowerError)
            and self.context.version >= LEADER_HINTS_MIN_VERSION
        ):
            response.current_leader = LeaderIdAndEpoch(
                leader_id=partition.leader, leader_epoch=partition.leader_epoch
            )
        return response


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


def _disconnect_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise Disconnect(f"error {partition.error_code} for {topic.name} with acks=0")
