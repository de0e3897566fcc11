"""DescribeProducers: the producers of partitions that this broker has replicas of (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.codes import code_of
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import hosted_partition
from kafka_async.embedded.topics import check_name
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
    """Describe the producers of each partition, or refuse the partition."""
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
        check_name(topic)
        producers = hosted_partition(context, topic, index).log.producers
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index,
            error_code=code_of(error),
            # As in Kafka a topic that exists gets no message.
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
            for producer_id, state in producers.states.items()
            for start in [producers.transaction_start(producer_id)]
        ],
    )


ROUTE = Route(61, 0, 0, handle)
