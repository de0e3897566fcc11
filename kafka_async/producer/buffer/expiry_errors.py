"""Errors of batches that expire, with what has kept them from being delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.errors import KafkaTimeoutError
from kafka_async.producer.buffer.unpartitioned import missing_topic_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.errors import KafkaError
    from kafka_async.producer.buffer.partition_queue import ProducerBatch


class ExpiryErrors:
    """Notes what keeps batches from being delivered; no decision depends on it.

    Args:
        delivery_timeout: Seconds in which a batch must be delivered.
        max_block: Seconds in which its partition must be found.
        outage: Returns the last error while no broker can be reached, else None.
    """

    def __init__(
        self, delivery_timeout: float, max_block: float, outage: Callable[[], KafkaError | None]
    ) -> None:
        self._delivery_timeout = delivery_timeout
        self._max_block = max_block
        self._outage = outage
        self._connection_errors: dict[int, KafkaError] = {}
        self._throttles: dict[int, float] = {}

    def note_connected(self, node: int, error: KafkaError | None = None) -> None:
        """Note that a connection attempt has succeeded, or failed with an error."""
        if error is None:
            self._connection_errors.pop(node, None)
        else:
            self._connection_errors[node] = error

    def note_throttled(self, node: int, throttle_time: float | None) -> None:
        """Note the seconds for which a broker throttles waiting batches; None: they are sent."""
        if throttle_time is None:
            self._throttles.pop(node, None)
        else:
            self._throttles[node] = throttle_time

    def error(self, batch: ProducerBatch) -> KafkaError:
        """Return the error of a batch that was not delivered in time."""
        queue = batch.queue
        if not queue.exists:
            return missing_topic_error(queue.topic, queue.partition.partition, self._max_block)
        if queue.leader is None:  # the client has dropped all brokers, or the cluster has none
            connection_error, throttle_time = self._outage(), None
        else:
            connection_error = self._connection_errors.get(queue.leader)
            throttle_time = self._throttles.get(queue.leader)
        return _timeout_error(batch, self._delivery_timeout, connection_error, throttle_time)


def _timeout_error(
    batch: ProducerBatch,
    timeout: float,
    connection_error: KafkaError | None,
    throttle_time: float | None,
) -> KafkaError:
    """Return the error of a batch that was not delivered within `timeout` seconds.

    `connection_error` is the reason that its leader, or any broker, could not be reached;
    `throttle_time` is the time in seconds for which the leader throttles the client.
    """
    text = f"not delivered within delivery_timeout_ms ({timeout:g} s)"
    if batch.error is not None:
        text += f"; the last of {batch.attempts} attempts: {batch.error}"
    leader = batch.queue.leader
    if connection_error is not None:
        # A rebootstrap has dropped all leaders while no broker can be reached.
        known = batch.queue.last_leader if leader is None else leader
        text += "; no broker can" if known is None else f"; its leader, broker {known}, cannot"
        text += f" be reached: {connection_error}"
    elif leader is None:
        text += "; the partition has no leader"
    if throttle_time is not None:
        text += f"; broker {leader} throttles this client for {throttle_time:.3g} s"
    topic, partition = batch.partition
    error = KafkaTimeoutError(text, topic=topic, partition=partition)
    error.__cause__ = connection_error or batch.error
    return error
