"""DescribeProducers: the producers of partitions with a replica on this broker (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.handlers.partition_lookup import replica_partition
from kafka_async.embedded.topics import validate_topic_name
from kafka_async.errors import KafkaError
from kafka_async.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext
    from kafka_async.protocol.messages.describe_producers import DescribeProducersRequest

NO_OFFSET: Final = -1


async def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition; errors are per partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _partition(context, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _partition(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        validate_topic_name(topic)
        manager = replica_partition(context, topic, index).log.producer_state_manager
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index,
            error_code=error_code_of(error),
            # As in Kafka, there is no message for a topic that exists.
            error_message=None if context.cluster.topics.get(topic) else error.message,
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=NO_OFFSET if start is None else start,
            )
            for producer_id, state in manager.producers.items()
            for start in [manager.current_txn_start_offset(producer_id)]
        ],
    )


ROUTE = Route(61, 0, 0, handle)
