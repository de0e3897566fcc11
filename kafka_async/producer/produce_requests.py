"""Builds produce requests from batches, and matches the parts of a response to the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_async.client.connection.connection import PRODUCE_API
from kafka_async.client.metadata.metadata import LeaderHint
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.config import request_ms, seconds
from kafka_async.errors import KafkaError, error_for
from kafka_async.producer.buffer.accumulator import REQUEST_OVERHEAD
from kafka_async.types import Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.config import ProducerConfig
    from kafka_async.producer.buffer.partition_queue import ProducerBatch
    from kafka_async.protocol.messages.produce import (
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
    )

__all__ = [
    "ProduceCall",
    "ProduceRequests",
    "error_for_batch",
    "leader_hints",
    "responses_by_partition",
]

MAX_VERSION_BEFORE_TRANSACTIONS_V2 = 11
"""Version 12 and later make the broker add the partition to the transaction (KIP-890)."""
_ACKS_ALL = -1


class ProduceCall(NamedTuple):
    """A produce request, its version, and the topic names by id.

    The ids are integers, since hashing a UUID calls a Python function.
    """

    request: ProduceRequest
    version: int
    names: Mapping[int, str]


class ProduceRequests:
    """Builds produce requests."""

    def __init__(self, config: ProducerConfig) -> None:
        self.acks: int = _ACKS_ALL if config.acks == "all" else config.acks
        self.room = max(0, config.max_request_size - REQUEST_OVERHEAD)
        self._transactional_id = config.transactional_id
        self._timeout_ms = request_ms(seconds(config.request_timeout_ms))
        # Imported here, since importing kafka_async must not load messages.
        from kafka_async.protocol.messages import produce

        self._messages = produce

    def build(
        self,
        batches: Sequence[ProducerBatch],
        connection: BrokerConnection,
        topic_id: Callable[[str], UUID],
        *,
        transactions_v2: bool,
    ) -> ProduceCall:
        """Return the request that carries the batches."""
        produce = self._messages
        transactional = self._transactional_id is not None
        rows: dict[str, list[PartitionProduceData]] = {}
        names: dict[int, str] = {}
        topics: list[TopicProduceData] = []
        for batch in batches:
            topic, partition = batch.partition
            if topic not in rows:
                rows[topic] = []
                uuid = topic_id(topic)
                names[uuid.int] = topic
                topics.append(
                    produce.TopicProduceData(name=topic, topic_id=uuid, partition_data=rows[topic])
                )
            records: Any = batch.frame(transactional=transactional)  # header and records
            rows[topic].append(produce.PartitionProduceData(index=partition, records=records))
        # A topic whose id is unknown (0) can only be sent by name: version 13 has ids alone
        # (KIP-516).
        max_version = LAST_VERSION_WITH_NAMES[PRODUCE_API] if 0 in names else None
        # After `AddPartitionsToTxn` the broker must not add the partition by itself.
        if transactional and not transactions_v2:
            max_version = MAX_VERSION_BEFORE_TRANSACTIONS_V2
        version = connection.version(PRODUCE_API, max_version)
        request = produce.ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self.acks,
            timeout_ms=self._timeout_ms,
            topic_data=topics,
        )
        return ProduceCall(request, version, names)


def responses_by_partition(
    response: ProduceResponse, names: Mapping[int, str]
) -> dict[tuple[str, int], PartitionProduceResponse]:
    """Return the response per partition; `names` has the topic names by the ids sent."""
    responses: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        # Versions with topic ids have no names.
        name = topic.name or names.get(topic.topic_id.int)
        if name is not None:
            for row in topic.partition_responses:
                responses[name, row.index] = row
    return responses


def leader_hints(response: ProduceResponse, names: Mapping[int, str]) -> list[LeaderHint]:
    """Return the current leaders of refused partitions that the response names (KIP-951).

    `names` has the topic names by the ids sent.
    """
    nodes = {
        row.node_id: Node(row.node_id, row.host, row.port, row.rack)
        for row in response.node_endpoints
    }
    return [
        LeaderHint(
            TopicPartition(name, row.index),
            hint.leader_id,
            hint.leader_epoch,
            nodes[hint.leader_id],
            topic.topic_id,
        )
        for topic in response.responses
        if (name := topic.name or names.get(topic.topic_id.int)) is not None
        for row in topic.partition_responses
        # A hint without an endpoint cannot be used, and -1 stands for no leader.
        if row.error_code and (hint := row.current_leader).leader_id in nodes
    ]


def error_for_batch(batch: ProducerBatch, response: PartitionProduceResponse) -> KafkaError:
    """Return the error of a batch, with the response's message about single records."""
    message = response.error_message
    # KIP-467: the broker names the records that it refuses; the first one is enough for the
    # message.
    if response.record_errors:
        row = response.record_errors[0]
        message = f"{message or 'refused'}; record {row.batch_index} of the batch"
        if row.batch_index_error_message:
            message += f": {row.batch_index_error_message}"
    topic, partition = batch.partition
    return error_for(response.error_code, message, topic=topic, partition=partition, needs="WRITE")
