"""Sends record batches to brokers and handles produce responses.

The send loop and the response handler run as event-loop callbacks, not as tasks: a task that waits
costs one event loop iteration per request. Only connecting, compressing off the loop and obtaining
a producer id are tasks, so that a slow broker or a large batch delays no other partition.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from kafka_async.backoff import delay_after
from kafka_async.clock import time_function
from kafka_async.cluster.broker_connection import ConnectionKind
from kafka_async.config import seconds
from kafka_async.errors import (
    KafkaError,
    UnknownServerError,
)
from kafka_async.hooks import BatchAcknowledged, BatchClosed, BatchFailed
from kafka_async.producer.accumulator import MAX_BATCHES_PER_REQUEST
from kafka_async.producer.batch_compressor import BatchCompressor
from kafka_async.producer.partition_queue import BatchState
from kafka_async.producer.produce_errors import MAYBE_WRITTEN_ERRORS, ProduceErrorAction, action_for
from kafka_async.producer.produce_requests import (
    ProduceCall,
    ProduceRequests,
    error_for_batch,
    leader_hints,
    responses_by_partition,
)
from kafka_async.producer.producer_id import request_producer_id
from kafka_async.producer.statistics import Counters
from kafka_async.producer.topic_metadata import TopicMetadataUpdater

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.client import Client
    from kafka_async.config import ProducerConfig
    from kafka_async.producer.accumulator import Accumulator
    from kafka_async.producer.partition_queue import PartitionQueue, ProducerBatch
    from kafka_async.protocol.messages.produce import ProduceResponse
    from kafka_async.supervisor import Supervisor
    from kafka_async.types import TopicPartition

__all__ = ["Sender"]

logger = logging.getLogger("kafka_async.producer")

MAX_BYTES_PER_ITERATION: Final = 8 * 1024 * 1024
"""Bytes sent to one broker per event loop iteration; their CRC takes about 0.4 ms."""
MIN_TIMER_DELAY: Final = 0.001
"""Seconds. uvloop's timers have millisecond resolution and fire early below it."""


class BrokerState:
    """Connection and in-flight request count of one broker."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.in_flight = 0
        self.connecting = False
        self.failures = 0


class Sender:
    """Drains ready batches, sends produce requests and completes batches from the responses.

    One per producer; runs in the producer's event loop.

    Attributes:
        counters: Counts for `Producer.statistics`.
        add_partitions_to_txn: Called with partitions that must be added to the transaction first.
        requests: Builds produce requests.
        abort_error: While it is set, a batch that would be retried fails with it.
        in_flight: Number of requests without a response.
        last_error: Error of the last batch, connection attempt or producer id request that failed.
        run_count: Number of runs of the send loop.
        saturated: The last run sent a broker MAX_BYTES_PER_ITERATION, so other callbacks of the
            iteration should do little. The limit of batches per request does not set it.
        now: Returns the time in seconds, here and for appends. It is not the loop's clock: uvloop's
            `loop.time()` is fixed during an event loop iteration, so a batch that was opened within
            the iteration would seem to be from the future.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: Client,
        accumulator: Accumulator,
        supervisor: Supervisor,
        rng: random.Random,
    ) -> None:
        self.counters = Counters()
        self.add_partitions_to_txn: Callable[[list[PartitionQueue]], None] | None = None
        self.requests = ProduceRequests(config)
        self.abort_error: Exception | None = None
        self.in_flight = 0
        self.last_error: Exception | None = None
        self.run_count = 0
        self.saturated = False
        self._config = config
        self._client = client
        self._accumulator = accumulator
        self._incomplete = accumulator.incomplete
        self._incomplete.on_failure = self._on_batch_failed
        self._sequencer = accumulator.sequencer
        self._supervisor = supervisor
        self._rng = rng
        self._loop = supervisor.loop
        self.now = time_function(self._loop)
        self._brokers: dict[int, BrokerState] = {}
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._stopped_sending = False
        self._wakeup_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._next_run_at = inf
        # Callbacks must not see the context variables of the task that happens to wake the sender.
        self._context = contextvars.Context()
        self._requesting_producer_id = False
        self._request_timeout = seconds(config.request_timeout_ms)
        accumulator.set_wakeup(self.wakeup)
        self._compressor = BatchCompressor(
            config, accumulator, supervisor, now=self.now, wakeup=self.wakeup, fail=self._fail
        )
        self._topic_metadata = TopicMetadataUpdater(
            client,
            accumulator,
            supervisor,
            config.max_block_ms,
            now=self.now,
            wakeup=self.wakeup,
            delay=self._delay,
        )

    def wakeup(self) -> None:
        """Schedule a run of the send loop for the next event loop iteration."""
        if not self._wakeup_scheduled:
            self._wakeup_scheduled = True
            self._loop.call_soon(self._run_once, context=self._context)

    async def flush(self) -> None:
        """Wait until everything appended so far is acknowledged or has failed."""
        self._accumulator.flushes_in_progress += 1
        self.wakeup()
        try:
            for number, outcome in enumerate(self._incomplete.outcomes, 1):
                await outcome.wait_completed()
                if number % 1_000 == 0:  # completed outcomes do not suspend this task
                    await asyncio.sleep(0)
        finally:
            self._accumulator.flushes_in_progress -= 1

    def stop_sending(self) -> None:
        """Send no more batches; responses to those in flight are still handled."""
        self._stopped_sending = True

    async def run(self) -> None:
        """Send until cancelled; raise the exception of a run or response handler."""
        self.wakeup()
        try:
            await self._finished
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def close(self) -> list[BrokerConnection]:
        """Stop tracking topics, and return the connections for the caller to close."""
        self._topic_metadata.close()
        return [broker.connection for broker in self._brokers.values()]

    # -- send loop --------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Send what is ready now and set the timer for what becomes ready later."""
        self._wakeup_scheduled = False
        self.run_count += 1
        self.saturated = False
        if self._stopped_sending or self._finished.done():
            return
        now = self.now()
        self._next_run_at = inf
        try:
            self._send_ready(now)
        except Exception as error:  # noqa: BLE001  # stops the producer
            self._finished.set_exception(error)
        else:
            self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        """Set the timer for what is due next.

        An earlier timer is kept, since an extra run is harmless.
        """
        due = max(min(self._accumulator.next_due(), self._next_run_at), now + MIN_TIMER_DELAY)
        if due == inf:
            return
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_at(due, self._on_timer, context=self._context)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._wakeup_scheduled:
            self._run_once()

    def _send_ready(self, now: float) -> None:
        """Apply metadata, compress batches, and send to each broker with ready partitions."""
        accumulator = self._accumulator
        self._topic_metadata.update(now)
        if accumulator.tick(now):
            self.wakeup()  # more is due
        self._compressor.run()
        ready_partitions = accumulator.ready_partitions
        if ready_partitions.partitions_to_add and self.add_partitions_to_txn is not None:
            queues, ready_partitions.partitions_to_add = ready_partitions.partitions_to_add, {}
            self.add_partitions_to_txn(list(queues))
        nodes = ready_partitions.nodes()
        if nodes and not self._sequencer.ready:
            self._request_producer_id()
            return
        for node in nodes:
            if self._send_ready_batches(node, now):
                self.wakeup()  # continue in the next event loop iteration
                break
        if accumulator.has_batches_to_compress:
            self.wakeup()  # draining has closed open batches

    # -- requests ---------------------------------------------------------------------------------

    def _send_ready_batches(self, node: int, now: float) -> bool:
        """Send a broker its ready batches, until a limit of requests, batches or bytes is reached.

        Returns:
            True if a byte or batch limit was reached and more batches may be ready.
        """
        broker = self._brokers.get(node)
        if broker is None:
            broker = self._brokers[node] = BrokerState(
                self._client.connection(node, ConnectionKind.PRODUCE, self)
            )
        if broker.connecting:
            return False
        if not broker.connection.connected:
            broker.connecting = True
            self._supervisor.spawn(self._connect, broker, name=f"connecting to broker {node}")
            return False
        if broker.connection.muted_until > now:
            self._next_run_at = min(self._next_run_at, broker.connection.muted_until)
            return False
        ready_partitions, left = self._accumulator.ready_partitions, MAX_BYTES_PER_ITERATION
        max_in_flight = self._config.max_in_flight_requests_per_connection
        while broker.in_flight < max_in_flight and ready_partitions.has_ready(node):
            batches = self._accumulator.drain(node, self.requests.room, now)
            if batches:
                self._send_request(broker, batches, now)
            if len(batches) in (0, MAX_BATCHES_PER_REQUEST):
                return bool(batches)
            left -= sum([batch.wire_size for batch in batches])
            if left <= 0:
                self.saturated = True
                return True
        return False

    async def _connect(self, broker: BrokerState) -> None:
        try:
            await broker.connection.connect(
                seconds(self._config.socket_connection_setup_timeout_ms)
            )
        except KafkaError as error:
            logger.debug("broker %d: %s", broker.connection.node_id, error)
            self._accumulator.connection_errors[broker.connection.node_id] = self.last_error = error
            self._client.request_metadata_update()
            await asyncio.sleep(
                self._delay(broker.failures, floor=self._config.reconnect_backoff_ms)
            )
            broker.failures += 1
        else:
            broker.failures = 0
            self._accumulator.connection_errors.pop(broker.connection.node_id, None)
        finally:
            broker.connecting = False
        self.wakeup()

    def _send_request(
        self, broker: BrokerState, batches: Sequence[ProducerBatch], now: float
    ) -> None:
        broker.in_flight += 1
        self.in_flight += 1
        self.counters.requests += 1
        try:
            call = self.requests.build(
                batches, broker.connection, self._topic_metadata.metadata.topic_id
            )
            broker.connection.submit_with_callback(
                call.request,
                partial(self._on_response, broker, batches, call),
                timeout=self._request_timeout,
                expect_response=self.requests.acks != 0,
                version=call.version,
            )
        except KafkaError as error:
            broker.in_flight -= 1
            self.in_flight -= 1
            self._on_no_response(batches, error, now)
            return
        if self._client.hooks.active:
            self._emit_batch_closed(batches)

    def _on_response(
        self,
        broker: BrokerState,
        batches: Sequence[ProducerBatch],
        call: ProduceCall,
        response: ProduceResponse | KafkaError,
    ) -> None:
        """Complete, retry, split or fail each batch of a request."""
        broker.in_flight -= 1
        self.in_flight -= 1
        now = self.now()
        batches = [batch for batch in batches if batch.state is BatchState.IN_FLIGHT]
        try:
            if isinstance(response, KafkaError):
                self._on_no_response(batches, response, now)
            elif self.requests.acks == 0:
                for batch in batches:
                    self._acknowledge(batch, -1, -1, now)
            else:
                self._handle_response(batches, call, response, now)
        except Exception as error:  # noqa: BLE001  # stops the producer
            if not self._finished.done():
                self._finished.set_exception(error)
        if self._accumulator.ready_partitions.has_work:
            self.wakeup()

    def _handle_response(
        self,
        batches: Sequence[ProducerBatch],
        call: ProduceCall,
        response: ProduceResponse,
        now: float,
    ) -> None:
        self.counters.throttled(response.throttle_time_ms)
        responses = responses_by_partition(response, call.names)
        if response.node_endpoints:
            self._client.update_leaders(leader_hints(response, responses))
        for batch in batches:
            row = responses.get(batch.queue.partition)
            if row is None:
                missing = UnknownServerError("the broker's response lacks the partition")
                self._handle_error(batch, missing, now)
            elif row.error_code:
                self._handle_error(batch, error_for_batch(batch, row), now)
            else:
                self._acknowledge(batch, row.base_offset, row.log_append_time_ms, now)

    # -- outcomes ---------------------------------------------------------------------------------

    def _on_no_response(
        self, batches: Sequence[ProducerBatch], error: Exception, now: float
    ) -> None:
        """Handle a request that was not sent or got no response; it may have been written."""
        for batch in batches:
            self._handle_error(batch, error, now)

    def _handle_error(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Take the action that `produce_errors` defines for an error of a batch."""
        self.last_error = error
        action = action_for(error)
        batch.maybe_written = batch.maybe_written or isinstance(error, MAYBE_WRITTEN_ERRORS)
        if action is ProduceErrorAction.RESTART_SEQUENCE:
            self._on_out_of_order_sequence(batch, error, now)
        elif action is ProduceErrorAction.ACKNOWLEDGE:
            self._acknowledge(batch, -1, -1, now)
        elif action is ProduceErrorAction.SPLIT and batch.count > 1 and not batch.maybe_written:
            self.counters.splits += 1
            self._incomplete.split(batch, now)
        elif action in (ProduceErrorAction.RETRY, ProduceErrorAction.REFRESH_AND_RETRY):
            if action is ProduceErrorAction.REFRESH_AND_RETRY:
                self._client.request_metadata_update()
            self._retry(batch, error, now)
        else:
            self._fail(batch, error, now)

    def _retry(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        batch.error = error
        if self.abort_error is not None:
            self._fail(batch, self.abort_error, now, report=False)
        elif now >= batch.deadline:
            self._fail(batch, self._accumulator.timeout_error(batch), now)
        else:
            self.counters.retries += batch.count
            logger.debug("%s: retry after attempt %d: %s", batch, batch.attempts, error)
            self._incomplete.retry(batch, error, now + self._delay(batch.attempts - 1), now)

    def _on_out_of_order_sequence(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Handle OUT_OF_ORDER_SEQUENCE_NUMBER and UNKNOWN_PRODUCER_ID (KIP-360).

        Only the oldest unacknowledged batch proves a gap: a later one may have overtaken a retry
        and is retried. For the oldest, a transactional producer fails the batch; an idempotent one
        bumps the epoch and restarts the partition's sequence.
        """
        if not batch.queue.is_oldest(batch):
            self._retry(batch, error, now)
        elif self._config.transactional_id is not None or now >= batch.deadline:
            self._fail(batch, error, now)
        else:
            logger.info(
                "%s: sequence broken, the epoch is bumped: %s", batch.queue.partition, error
            )
            self.counters.retries += batch.count
            self._incomplete.restart_sequence(batch, error, now)

    def _acknowledge(
        self, batch: ProducerBatch, base_offset: int, append_time: int, now: float
    ) -> None:
        self.counters.records += batch.count
        self.counters.batches += 1
        self.counters.bytes += batch.wire_size
        if self._client.hooks.active:
            event = BatchAcknowledged(
                self._config.client_id,
                batch.queue.partition,
                batch.count,
                base_offset,
                now - batch.closed_at,
            )
            self._client.hooks.emit(event)
        self._incomplete.acknowledge(batch, base_offset, append_time, now)

    def _fail(
        self, batch: ProducerBatch, error: Exception, now: float, *, report: bool = True
    ) -> None:
        logger.debug("%s failed: %s", batch, error)
        self._incomplete.fail(batch, error, now, report=report)

    def _on_batch_failed(self, partition: TopicPartition, records: int, error: Exception) -> None:
        self.counters.errors += records
        self.last_error = error
        if self._client.hooks.active:
            event = BatchFailed(self._config.client_id, partition, records, error)
            self._client.hooks.emit(event)

    # -- producer id ------------------------------------------------------------------------------

    def _request_producer_id(self) -> None:
        if self._config.transactional_id is None and not self._requesting_producer_id:
            self._requesting_producer_id = True
            self._supervisor.spawn(self._get_producer_id, name="producer id")

    async def _get_producer_id(self) -> None:
        """Obtain a producer id; fail all batches if that is impossible."""
        try:
            self._sequencer.set_id_and_epoch(
                await request_producer_id(self._config, self._client, self._rng)
            )
        except KafkaError as error:
            logger.warning("no producer id: %s", error)
            self.last_error = error
            self._incomplete.fail_all(error, self.now())
        self._requesting_producer_id = False
        self.wakeup()

    # -- helpers ----------------------------------------------------------------------------------

    def _delay(self, failures: int, floor: float = 0.0) -> float:
        config = self._config
        initial, longest = seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms)
        delay = delay_after(failures, initial, longest) * self._rng.uniform(0.8, 1.2)
        return max(delay, seconds(floor))

    def _emit_batch_closed(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            if batch.attempts == 1:
                event = BatchClosed(
                    self._config.client_id,
                    batch.queue.partition,
                    batch.count,
                    batch.reserved_bytes,
                    batch.wire_size,
                )
                self._client.hooks.emit(event)
